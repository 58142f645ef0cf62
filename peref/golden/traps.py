"""The traps of single encodings and of derivatives, a line each: kind, what is wrong, its effect, the remedy. flags.py has shared ones."""

LINES = """
position.off_by_one OFF_BY_ONE positions one too early or too late | one model's weights read with another's places | count as the case does
attn.scale MISSING_STEP logits not divided as this encoding has it | attention too sharp or too flat | D**-0.5, but for t5: 1
attn.softmax           MISSING_STEP  weights that do not add up to 1 over the keys seen | outputs too large, or mixed over queries | softmax over keys
sin.denominator SCALING exponents of the sinusoids other than 2k/C | frequencies of another ladder | base^(-2k/C), or ending at 1/base if asked
embed.rows             RANGE         another row of the table, or one for all | tokens in wrong places | row i for position i
embed.scale            SCALING       rows multiplied by something | positions drown the tokens or drown in them | add the rows as they are
rope.layout.mixed LAYOUT frequencies laid out for halves, pairs that are adjacent | each pair turns by two angles | one convention for both
rope.sign SIGN a turn the other way, sine for cosine, a reflection | past and future change places | a cos - b sin and a sin + b cos
rope.one_of_two        MISSING_STEP  q turned and k not, or one of them twice | logits see positions, not distances | turn both once
rope.exponent          SCALING       exponents of the ladder other than 2n/R from n = 0 | every frequency off but one | base^(-2n/R)
rope.frequencies       RANGE         frequencies in another order, or slow ones dropped | far tokens are confused | n = 0 is the fastest, none is zero
rope.factor.ignored    OPTION        frequencies that are not rescaled | long text fails as without scaling | read the factor
rope.factor.twice      SCALING       a factor applied twice, or half of it | every position off | once
rope.ntk.form          OPTION        another form of NTK-aware scaling | other frequencies | bloc97, kexue and mixed are three
rope.parts.ramp SCALING ramps of NTK-by-parts elsewhere, or one in place of two | middle frequencies off | beta for the inner, gamma for the outer
rope.p.fraction        OPTION        another share of the pairs turns | channels meant for content are turned | the first fraction R/2 pairs turn
rope.xpos.gain SIGN gains of xPos that are not inverse to one another, or centred elsewhere | decay that depends on place | z^i on q, z^-j on k
rope.mrope.sections LAYOUT sections of M-RoPE in another order, or ladders that begin anew | axes see wrong frequencies | one ladder over all pairs
rope.axial.axes        SHAPE         rows and columns exchanged, or another width of the image | places of another image | row first, i // width
rope.axial.ladder      OPTION        another ladder for the two axes | one axis is seen too coarsely | restart, global, alternate and pixel are four
bias.negated           SIGN          a bias with the other sign | distance is rewarded | it falls with distance
bias.off_by_one        OFF_BY_ONE    distances one too large or too small | one row of a table for the next | d = i - j, 0 for itself
bias.heads             LAYOUT        heads in another order, or one for all | each head has the reach of another | head 1 comes first
bias.scale             SCALING       a bias inside the softmax scale, or in other units | it counts too little | add it to scaled logits
bias.rows              RANGE         another row of a learned table | one distance for another | row d
alibi.slopes.exponent SCALING slopes other than 2^(-max_bias h/H) from h = 1 | heads see too near or far | the first slope is 2^(-max_bias/H)
t5.bidirectional OPTION buckets divided otherwise between past and future | past and future share rows | causal: all for the past
kerple.parameters MISSING_STEP r1 and r2 exchanged, or read without softplus | biases of the wrong sign or strength | softplus of what is on disk
kerple.formula         SCALING       another logarithm or power | biases of another shape | -r1 log(1 + r2 d), -r1 d^r2
sandwich.formula       SCALING       waves, width or heads otherwise | biases of another shape | H/(8h) times the sum of the cosines
dynamic_bias.network   MISSING_STEP  another network: activation, norm or distance | another bias | silu after each layer but the last
cope.interpolation     MISSING_STEP  a row that is rounded, or neighbours exchanged | counts lose their fractions | (1-t) e[n] + t e[n+1]
cope.count OFF_BY_ONE a count without the key, or of the future | other positions | from the key to the query, both included
cope.scale             SCALING       q e divided otherwise | positions count too much or too little | as `divided` says
dape.network           MISSING_STEP  another network across the heads | another correction | leaky relu of slope 0.01, logits before bias
dape.bias              MISSING_STEP  the static bias missing beside the network, or twice | a model without its bias | s + b + network
fire.normaliser        SCALING       another normaliser | distances are shares of something else | the larger of |m L| and i
fire.formula           SCALING       logarithms otherwise | another shape | psi(d) / (psi(...) + eps)
fire.network           MISSING_STEP  another network | another bias | relu, with a bias in the first layer
xl.terms               MISSING_STEP  u and w exchanged or missing | two of the four terms wrong | u with keys, w with distances
xl.scale               SCALING       a term that is divided otherwise | terms out of proportion | sqrt(D) divides the sum of all four
xl.distance            SIGN          distances reversed, negated or shifted | past for future | r of i - j
forgetting.range       OFF_BY_ONE    gates summed over one token more or less | each key too old or too young | from j+1 to i
forgetting.gate        MISSING_STEP  gates that are no logarithm of a sigmoid | forgetting turns into something else | log sigmoid(W x + b)
shaw.rows              SIGN          another row for a distance | past for future | clip(j - i, -m, m) + m
shaw.value             MISSING_STEP  vectors of values missing or others | half of the encoding | p (v + value[r])
shaw.key               MISSING_STEP  vectors of keys missing or scaled otherwise | half of the encoding | q (k + key[r]) / sqrt(D)
shaw.clip              RANGE         distances clipped elsewhere | far rows are never used | at max_distance
path.beta              SCALING       beta otherwise | maps too weak or too strong | 2 sigmoid
path.w                 MISSING_STEP  w not of length one, or made otherwise | maps that are no reflections | conv, silu, then length one
path.order             OFF_BY_ONE    maps of other tokens between key and query | wrong products | of the tokens j+1 to i
pyramid.window         OFF_BY_ONE    a window of another size | tokens twice or not at all | w keys, the own one included
pyramid.blocks MISSING_STEP blocks that weigh otherwise, sums for means | far text counts too little or too much | means, and ln n on the logit
pyramid.gate           SIGN          another gate | near and far out of proportion | g near + (1 - g) far
retnet.decay           SCALING       another decay | memories of another length | 1 - 2^(-5-h)
retnet.scale           SCALING       q k divided otherwise | the norm hides it but for eps | sqrt(D)
retnet.ladder          OPTION        another ladder | angles of another model | as `ladder` says
mix.norm               MISSING_STEP  another norm over the heads, or none | outputs of another size | each head by itself
mix.gate               LAYOUT        gate and value exchanged, or another gate | outputs of another model | as the formula has it
mix.discretisation     OPTION        another discretisation | steps too long or too short | as `discretisation` says
mix.skip               MISSING_STEP  D missing or negated | the direct path is lost | + D u
mix.activation         MISSING_STEP  another activation | another function | as the formula has it
mix.chunk              CACHE         a state that is lost where a chunk ends | pieces that know nothing of one another | hand it on to the next chunk
mix.conv               LAYOUT        a convolution that is reversed or late | tokens see others than they should | the last tap is the present token
mix.shift              OFF_BY_ONE    another shift of tokens | the layer sees the wrong neighbour | the token before
mix.time               LAYOUT        time that runs backward or is shifted | the future leaks | from the first token to the last
s4d.conjugates         MISSING_STEP  one of each pair of conjugates forgotten | half of the output | 2 Re
mamba.step             MISSING_STEP  another step | time runs at another speed | softplus(W u + b)
mamba.projections      LAYOUT        projections exchanged | outputs of another model | x, z; step, B, C
mamba.decay            SIGN          another A | states that grow or stay | -exp(A_log)
rwkv.bonus             MISSING_STEP  another bonus for the present token | it counts too little or too much | u for the present token alone
rwkv.decay             SCALING       another decay | memories of another length | as the formula has it
rwkv.scale             SCALING       another eps or scale | small outputs are off | as the formula has it
rwkv.projections       LAYOUT        projections exchanged | outputs of another model | r, k, v, g
rwkv7.kappa            MISSING_STEP  kappa not of length one in each head | the state may grow | unit(xi k), over each head
rwkv7.removal          SIGN          what is taken out of the state otherwise | the state forgets too little or too much | (a kappa) kappa'
rwkv7.key              MISSING_STEP  a key not changed by a | too much is written | k (1 + (a - 1) alpha)
grad.rotation GRADIENT a derivative that turns forward, or not, or without the gain | training learns something else | turn back, and gain
grad.passthrough       GRADIENT      no derivative for the channels that pass | half of each head does not learn | hand it on
grad.zero              GRADIENT      no derivative at all | nothing is learned | write it
grad.sign              GRADIENT      a derivative with the other sign | training runs uphill | check with differences
grad.factor            GRADIENT      a derivative that is a mean, or counts twice | the learning rate is another | it is a sum
grad.sum               GRADIENT      a derivative of a part of those who used the number | the others do not teach | sum over batch and heads
grad.heads_permuted    GRADIENT      derivatives of other heads | each head learns another's lesson | mind the order of heads
grad.time              GRADIENT      derivatives of other tokens | each token learns another's lesson | mind the order of tokens
grad.softmax           GRADIENT      a derivative of the softmax without its mean or its scale | logits drift | p (dp - sum p dp)
"""


def entries() -> dict[str, dict[str, object]]:
    """Flag -> what stands in the manifest."""
    found: dict[str, dict[str, object]] = {}
    for line in LINES.strip().splitlines():
        name, kind, words = line.split(None, 2)
        title, effect, fix = (part.strip() for part in words.split(" | "))
        found[name] = {"kind": kind, "title": title, "effect": effect, "fix": fix, "refs": []}
    return found
