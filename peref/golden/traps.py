"""The traps of single encodings and of derivatives: kind, what is wrong, its effect, the remedy. Indented lines go on. flags.py has shared ones."""

import re

LINES = """
position.off_by_one OFF_BY_ONE positions one too early or too late | every token stands where its neighbour should: weights read with another's places
    | begin at the position that the case gives for the first token, and go on from the last key in a cache
attn.scale MISSING_STEP logits not divided as this encoding has it | attention too sharp or too flat, the more the wider the head
    | multiply q k by D**-0.5; t5 by 1, yarn with mscale_all_dim by D**-0.5 y(M)^2
attn.softmax MISSING_STEP weights that do not add up to 1 over the keys seen | outputs too large or too small, or mixed over queries
    | divide by the sum over the keys that the query sees, along the axis of keys
sin.denominator SCALING exponents of the sinusoids other than 2k/C | every wave but the first has another length
    | base^(-2k/C); base^(-k/(C//2 - 1)) only where `ladder` is endpoint
embed.rows RANGE another row of the table, or one for all | tokens in wrong places, or all in one
    | take row i for position i, and refuse a position without a row
embed.scale SCALING rows multiplied by something | positions drown the tokens or drown in them
    | add the rows as they are; a factor sqrt(C) belongs to the token embedding, before the sum
rope.layout.mixed LAYOUT frequencies laid out for halves, pairs that are adjacent | each pair turns by two angles, lengths change
    | repeat the angles as the pairs lie: [w, w] for halves, each w twice in turn for adjacent pairs
rope.sign SIGN a turn the other way, sine for cosine, a reflection | past and future change places, or lengths change
    | first: a cos - b sin, second: a sin + b cos, of the pair (a, b)
rope.one_of_two MISSING_STEP q turned and k not, or one of them twice | logits depend on absolute positions and not on distances
    | turn q and k, each once; keys go into the cache turned and are not turned again
rope.exponent SCALING exponents of the ladder other than 2n/R from n = 0 | every frequency off but one
    | base^(-2n/R) for n = 0 .. R/2-1, R the rotary width
rope.frequencies RANGE frequencies in another order, or slow ones dropped | far tokens are confused, or near ones are
    | n = 0 is the fastest, 1 radian for each token; the last is the slowest and is not 0
rope.factor.ignored OPTION frequencies that are not rescaled | long text fails as without scaling
    | read `factor` and the kind of scaling from the config
rope.factor.twice SCALING a factor applied twice, or half of it | every position off by that factor
    | scale positions or frequencies, not both, and once
rope.ntk.form OPTION another form of NTK-aware scaling | all frequencies but the ends of the ladder are off
    | bloc97 raises the base, kexue and mixed divide each frequency by a power of its own: see which one the weights had
rope.parts.ramp SCALING ramps of NTK-by-parts elsewhere, or one in place of two | middle frequencies off
    | one ramp between the pairs that turn beta times within L (NTK against PI), one for gamma (RoPE against both)
rope.p.fraction OPTION another share of the pairs turns | channels meant for content are turned, or the other way round
    | the first int(fraction R // 2) pairs turn by their own frequencies, the slow rest has angle 0
rope.xpos.gain SIGN gains of xPos that are not inverse to one another, or centred elsewhere | logits depend on the place and not on the distance
    | z^((i - centre)/scale_base) on q and z^(-(j - centre)/scale_base) on k, one centre for both
rope.mrope.sections LAYOUT sections of M-RoPE in another order, or ladders that begin anew | each axis is seen at frequencies of another
    | one ladder over all R/2 pairs; `order` and `sections` say which axis a pair takes its position from
rope.axial.axes SHAPE rows and columns exchanged, or another width of the image | pixels at places of another image
    | the first half of the pairs takes i // width, the row, the second i mod width, the column
rope.axial.ladder OPTION another ladder for the two axes | one axis is seen too coarsely
    | restart: the same ladder for both axes; global: one over both; alternate: dealt out in turn; pixel: even steps
bias.negated SIGN a bias with the other sign | far keys are rewarded and near ones punished
    | subtract the slope times the distance: it is 0 at 0 and falls
bias.off_by_one OFF_BY_ONE distances one too large or too small | one row of a table for the next | d = i - j, which is 0 for the token itself
bias.heads LAYOUT heads in another order, or one for all | each head has the reach of another
    | head 1 comes first; broadcast over queries and keys, not over heads
bias.scale SCALING a bias inside the softmax scale, or in other units | it counts sqrt(D) times too little, or too much
    | divide q k alone, then add the bias
bias.rows RANGE another row of a learned table | one distance has the number of another
    | row d; two-sided tables begin with the farthest future: d + L - 1
alibi.slopes.exponent SCALING slopes other than 2^(-max_bias h/H) from h = 1 | heads see too near or too far
    | the first slope is 2^(-max_bias/H), the last 2^(-max_bias)
t5.bidirectional OPTION buckets divided otherwise between past and future | past and future share rows, or half of the table is never read
    | two-sided: half of the buckets for each side, those of d = i - j < 0 (the future) behind the others; causal: all for the past, the future as 0
kerple.parameters MISSING_STEP r1 and r2 exchanged, or read without softplus | biases of the wrong sign or strength
    | take the softplus of both before use (of kerple_power's r2 and of r3 twice the sigmoid)
kerple.formula SCALING another logarithm or power | biases that fall too fast or too slowly | -r1 ln(1 + r2 |d|), and -r1 |d|^r2
sandwich.formula SCALING waves, width or heads otherwise | biases of another shape or size
    | H/(8h) times the sum over k = 0 .. width/2 - 1 of cos(d base^(-2k/width)), h from 1
dynamic_bias.network MISSING_STEP another network: activation, norm or distance | biases of another shape
    | the activation after each layer but the last, `norm` before it; d goes in, with `distance` log sign(d) ln(1 + |d|)
cope.interpolation MISSING_STEP a row that is rounded, or neighbours exchanged | counts lose their fractions, and gates have no gradient
    | (1 - t) e[n] + t e[n+1] for a count n + t
cope.count OFF_BY_ONE a count without the key, or of the future | every key is one place off
    | sum the gates from the key to the query, both included, and cut at npos - 1
cope.scale SCALING q e divided otherwise | positions count sqrt(D) times too much or too little
    | divide q e by sqrt(D) with `divided` both, not with qk
dape.network MISSING_STEP another network across the heads | another correction of every cell
    | W_2 leaky(W_1 [s; b] + a), slope 0.01, the scores of all heads first and their biases after them, before the mask
dape.bias MISSING_STEP the static bias missing beside the network, or twice | distance is seen by the network alone
    | s + b + network: b goes in and is added as well
fire.normaliser SCALING another normaliser | distances are shares of something else
    | psi of the larger of |m threshold| and the query's position, eps added after the logarithm
fire.formula SCALING logarithms otherwise | a bias of another shape | psi(|d|) / (psi(...) + eps), psi(x) = ln(|c| x + 1)
fire.network MISSING_STEP another network | another bias for every share | W_2 relu(W_1 u + a): one hidden layer, a bias in the first alone
xl.terms MISSING_STEP u and w exchanged or missing | two of the four terms wrong
    | u is added to the query that meets keys, w to the one that meets distances
xl.scale SCALING a term that is divided otherwise | terms out of proportion | sqrt(D) divides the sum of all four terms
xl.distance SIGN distances reversed, negated or shifted | past for future | r belongs to d = i - j; a relative shift that is one row off shows here
forgetting.range OFF_BY_ONE gates summed over one token more or less | each key too old or too young
    | over the tokens j+1 to i: the key's own gate is not in it, the query's is
forgetting.gate MISSING_STEP gates that are no logarithm of a sigmoid | forgetting turns into something else, or overflows
    | ln sigmoid(W x + b), as -softplus(-z)
shaw.rows SIGN another row for a distance | past for future
    | clip(j - i, -m, m) + m: row 0 is the far past; code with i - j has its tables upside down
shaw.value MISSING_STEP vectors of values missing or others | half of the encoding is lost | sum over keys of p (v + value[r]), r as for the keys
shaw.key MISSING_STEP vectors of keys missing or scaled otherwise | half of the encoding is lost | q (k + key[r]) / sqrt(D): both are divided
shaw.clip RANGE distances clipped elsewhere | far rows are never used, or rows beside the table are read
    | clip to -max_distance .. max_distance, both included
path.beta SCALING beta otherwise | maps too weak or too strong: at 1 a projection, at 2 a reflection | 2 sigmoid(W x + b), which is between 0 and 2
path.w MISSING_STEP w not of length one, or made otherwise | maps that stretch in place of turning
    | the low-rank map, the convolution, silu, then over the root of |w|^2 + 1e-6 in each head
path.order OFF_BY_ONE maps of other tokens between key and query | products of the wrong tokens, or in the wrong order
    | q_i' H_i H_(i-1) ... H_(j+1) k_j: the query's own map is in it, the key's is not
pyramid.window OFF_BY_ONE a window of another size | tokens twice or not at all | w keys, the query's own included; blocks end just before them
pyramid.blocks MISSING_STEP blocks that weigh otherwise, sums for means | far text counts too little or too much
    | means of keys and values, and ln n added to the logit of a block of n
pyramid.gate SIGN another gate | near and far out of proportion | g near + (1 - g) far, g = sigmoid(W x + b) of the query, 1 without blocks
retnet.decay SCALING another decay | memories of another length | head h, from 0, decays by 1 - 2^(-5-h) for each token
retnet.scale SCALING q k divided otherwise | the norm behind it hides it but for eps | divide q k by sqrt(D), once
retnet.ladder OPTION another ladder | every pair but the first turns at another speed
    | endpoint: base^(-n/(D/2-1)), the authors' code; paper: base^(-2n/D)
mix.norm MISSING_STEP another norm over the heads, or none | outputs of another size, heads that drown others
    | mean and variance (or mean square) of each head by itself, with the eps of the case
mix.gate LAYOUT gate and value exchanged, or another gate | outputs of another model
    | retnet, rwkv6, mamba: silu(gate) times the normed output; rwkv4: sigmoid(r); rwkv7: g as it is; s4d: the second half through a sigmoid
mix.discretisation OPTION another discretisation | steps too long or too short, the more the larger dt A
    | mamba: dt B (euler) or (exp(dt A) - 1)/A B (zoh); s4d: zoh or bilinear
mix.skip MISSING_STEP D missing or negated | the direct path from input to output is lost | add D u to each channel of the output
mix.activation MISSING_STEP another activation | other numbers wherever it bends
    | silu after the convolution (mamba, path), gelu in its tanh or erf form (s4d)
mix.chunk CACHE a state that is lost where a chunk ends | pieces of text that know nothing of one another
    | hand the state after a chunk to the next; the size of chunks changes no number
mix.conv LAYOUT a convolution that is reversed or late | tokens see others than they should, or the future
    | the last tap belongs to the present token, zeros stand before the first
mix.shift OFF_BY_ONE another shift of tokens | the layer sees the wrong neighbour
    | mix with x_(t-1), the token before; 0 before the first of a document
mix.time LAYOUT time that runs backward or is shifted | the future leaks, or the present token is missing
    | from the first token to the last; rwkv6 reads the state before it writes the token, the others after
s4d.conjugates MISSING_STEP one of each pair of conjugates forgotten | the output is half of what it should be
    | 2 Re of the sum over the modes that are kept
mamba.step MISSING_STEP another step | time runs at another speed in every channel | dt = softplus(W_dt W_down u + b), the bias inside the softplus
mamba.projections LAYOUT projections exchanged | outputs of another model | in_proj is x then z; x_proj is the step (rank), B, C in this order
mamba.decay SIGN another A | states that grow, or never forget | A = -exp(A_log), and the decay exp(dt A)
rwkv.bonus MISSING_STEP another bonus for the present token | the present token counts too little or too much
    | u in place of the decay for the present token alone; the state takes it without u
rwkv.decay SCALING another decay | memories of another length
    | rwkv4: e^(-w), w = exp(decay); rwkv6: exp(-exp(d)); rwkv7: exp(-e^(-1/2) sigmoid(d)); the token before has not decayed when it is read (4, 6)
rwkv.scale SCALING another eps or scale | small outputs are off, all others nearly right
    | the eps of the head norm is 64e-5 in released code (D 1e-5 in fla), and r k is not divided by sqrt(D)
rwkv.projections LAYOUT projections exchanged | outputs of another model
    | r meets the state, k and v are written, g gates; each has its own token shift
rwkv7.kappa MISSING_STEP kappa not of length one in each head | the state may grow without end
    | xi k over its length in each head, k before it is changed by a
rwkv7.removal SIGN what is taken out of the state otherwise | the state forgets too little or too much
    | subtract (a kappa) (kappa' S): a on the side of the rows
rwkv7.key MISSING_STEP a key not changed by a | too much is written | write k (1 + (a - 1) alpha), also in the bonus
grad.rotation GRADIENT a derivative that turns forward, or not, or without the gain | training learns something else than what it computes
    | turn the cotangent by minus the angle and multiply by the gain
grad.passthrough GRADIENT no derivative for the channels that pass | those channels of q and k do not learn
    | hand the cotangent on as it is for channels from R on
grad.zero GRADIENT no derivative at all | the parameter never moves
    | write the backward pass of this input; see that nothing is detached or copied out of the graph
grad.sign GRADIENT a derivative with the other sign | training runs uphill | compare one number with (f(x + h) - f(x - h)) / 2h
grad.factor GRADIENT a derivative that is a mean, or counts twice | it learns at another rate than it should
    | sum over all that used the number, each once; vjp is of the sum of cotangent times output
grad.sum GRADIENT a derivative of a part of those who used the number | what the other tokens, sequences or heads teach is lost
    | add up with += over batch, tokens and heads that read the parameter, and over the query heads of a group; scatter with add, not with =
grad.heads_permuted GRADIENT derivatives of other heads | each head learns another's lesson
    | undo in backward the very transposition of forward, heads before tokens
grad.tie GRADIENT a maximum of two equal numbers whose derivative goes to one of them | what begins at a tie learns too fast or not at all
    | give half to each of the two, as a central difference does
grad.time GRADIENT derivatives of other tokens | each token learns another's lesson
    | undo shifts and reversals in backward: the cotangent of token t goes to those that t has read
grad.softmax GRADIENT a derivative of the softmax without its mean or its scale | logits drift, sharp attention learns wrongly
    | p (dp - sum over keys of p dp), then times the scale for q and k
"""


def entries() -> dict[str, dict[str, object]]:
    """Flag -> what stands in the golden files."""
    found: dict[str, dict[str, object]] = {}
    for line in re.sub(r"\n +", " ", LINES).strip().splitlines():
        name, kind, words = line.split(None, 2)
        title, effect, fix = (part.strip() for part in words.split(" | "))
        found[name] = {"kind": kind, "title": title, "effect": effect, "fix": fix, "refs": []}
    return found
