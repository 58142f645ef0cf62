"""What each flag means: the trap, what it does to somebody who falls in, the remedy, and where it was seen.

Here are the traps that many encodings share. Those of one encoding (and what near relatives share with it)
stand in its recipe, as TRAPS. The golden files carry the words of all, so that an installed package has them.
"""

from collections.abc import Mapping
from typing import Any

from recipes import files, module

KINDS = (
    "BASIC",
    "LAYOUT",
    "SIGN",
    "OFF_BY_ONE",
    "PRECISION",
    "RANGE",
    "MISSING_STEP",
    "SCALING",
    "CACHE",
    "MASK",
    "SHAPE",
    "OPTION",
    "VALIDATION",
    "LAW",
    "GRADIENT",
    "AMBIGUOUS",
)


def trap(kind: str, title: str, effect: str, fix: str, *refs: str) -> dict[str, Any]:
    """The words of a flag: what is wrong, its effect, the remedy, and threads where it was seen."""
    return {"kind": kind, "title": title, "effect": effect, "fix": fix, "refs": list(refs)}


SHARED: Mapping[str, dict[str, Any]] = {
    "basic": trap(
        "BASIC",
        "the usual settings",
        "nothing else is worth looking at until this is right",
        "compare shapes, names and the order of axes first",
    ),
    "option": trap(
        "OPTION",
        "an option away from its default",
        "the option is ignored or means something else",
        "pass the option on from the config; the line of the encoding in SPEC.md says what each value does",
    ),
    "rope.layout.half": trap(
        "LAYOUT",
        "pairs (i, i + R/2) instead of (2i, 2i+1), or the other way round",
        "text looks plausible and falls apart as it gets longer",
        "take the layout that the weights were trained with; permuting the rows of W_q and W_k converts "
        "one into the other",
        "huggingface/transformers#25199",
        "huggingface/transformers#39687",
        "karpathy/nanochat#264",
        "huggingface/nanotron#427",
    ),
    "rope.partial.exponent_head_dim": trap(
        "SCALING",
        "the frequencies of partial rotation are computed from the head width",
        "right at position 0, and worse the longer the text",
        "the exponent is 2n/R, where R is the rotary width",
        "pie-project/pie#603",
        "vllm-project/vllm#43770",
    ),
    "rope.partial.pairing": trap(
        "LAYOUT",
        "the pairs of partial rotation are split at half the head width",
        "channels that should pass unchanged are turned",
        "the pairs are (n, n + R/2), where R is the rotary width",
        "labscommunity/cascadia#69",
        "pie-project/pie#603",
    ),
    "rope.partial.passthrough": trap(
        "MISSING_STEP",
        "the channels beyond the rotary width are dropped, zeroed or scaled",
        "part of each head is lost",
        "concatenate them unchanged with the turned channels; a gain applies to the turned channels only",
    ),
    "rope.phase.low_precision": trap(
        "PRECISION",
        "angles or inverse frequencies in bfloat16 or float16",
        "cosines are wrong by up to 1 at positions in the thousands",
        "multiply positions by frequencies in float32 or better, and cast the cosines and sines afterwards",
        "EleutherAI/gpt-neox#1003",
        "huggingface/transformers#25681",
        "huggingface/transformers#29285",
        "Modalities/modalities#462",
    ),
    "rope.table.clip": trap(
        "RANGE",
        "a table of cosines and sines ends, and positions are clipped to its end",
        "all tokens beyond the table have the same position",
        "grow the table, or compute the angles where they are needed",
        "fla-org/flash-linear-attention#1177",
    ),
    "rope.table.wrap": trap(
        "RANGE",
        "positions are taken modulo the length of a table",
        "distant tokens look near",
        "grow the table, or compute the angles where they are needed",
    ),
    "rope.base.ignored": trap(
        "OPTION",
        "the base is 10000 whatever the config says",
        "models with another base get worse the longer the text",
        "take `base` (rope_theta) from the config, and check that it reaches the frequencies",
    ),
    "rope.ntk.static_as_dynamic": trap(
        "CACHE",
        "dynamic NTK scales by a fixed factor, or by the wrong length",
        "short text suffers, or cached keys were turned with another base",
        "scale by the length that the cache is made for, but never by less than the length trained for",
        "huggingface/transformers#25104",
        "vllm-project/vllm#5093",
        "vllm-project/vllm#52665",
    ),
    "bias.sign": trap(
        "SIGN",
        "j - i instead of i - j",
        "past and future are exchanged",
        "d = i - j is positive where the key is in the past",
    ),
    "bias.transposed": trap(
        "LAYOUT",
        "the matrix is transposed: keys down and queries across",
        "past and future are exchanged",
        "rows are queries and columns are keys: bias[h, i, j] belongs to d = i - j",
    ),
    "position.counted": trap(
        "MISSING_STEP",
        "positions are counted from 0 although others were given",
        "padding and packing are ignored",
        "pass the positions that are given to every layer, instead of 0, 1, 2, ...",
    ),
    "position.batch": trap(
        "SHAPE",
        "the positions of the first sequence are used for all",
        "the tokens of every other sequence are in the wrong place",
        "positions [B,T] give angles [B,T,R/2]: gather cosines and sines for each sequence",
    ),
    "position.rounded": trap(
        "PRECISION",
        "positions are cast to integers",
        "interpolated positions fall together",
        "keep positions in float32 or float64 until they are multiplied by the frequencies",
    ),
    "position.axes": trap(
        "SHAPE",
        "the axes of a position are exchanged, or one is used for all",
        "the rows and columns of an image are mixed up",
        "positions come as time, height, width or as row, column; this is their first axis",
    ),
    "cache.position_restarts": trap(
        "CACHE",
        "a call with a cache counts its positions from 0, or from another place than that of its first token",
        "new tokens are placed at the beginning of the text, or too far on",
        "continue the positions from the last cached key",
    ),
    "cache.not_cleared": trap(
        "CACHE",
        "the keys, features or states of an earlier text are still there",
        "one answer leaks into another",
        "start every new text with an empty cache",
    ),
    "cache.position_offset": trap(
        "CACHE",
        "the offset of a call counts twice, or is not that of its first token",
        "every distance across calls is wrong",
        "a call begins at the position after the last key, once",
    ),
    "cache.ignored": trap(
        "CACHE",
        "keys of earlier calls are not read",
        "every call sees its own tokens alone",
        "join the keys and values of the cache before those of the call",
    ),
    "cache.keys_lost": trap(
        "CACHE",
        "keys of some calls are missing in the cache",
        "some of the text is forgotten",
        "write keys and values of every call, of a single token too, behind those that are there",
    ),
    "cache.keys_turned_again": trap(
        "CACHE",
        "keys that come out of the cache are turned once more",
        "every distance to a cached key is off",
        "turn keys when they come, once, and cache them turned",
    ),
    "cache.bias_dropped": trap(
        "CACHE",
        "no bias once there is a cache, or none for cached keys",
        "right in the prefill, wrong from the first token on",
        "add the last rows of the bias over all keys, not that of the new tokens alone",
    ),
    "mask.chunk_open": trap(
        "MASK",
        "tokens of a later chunk see one another's future",
        "decoding in chunks differs from the whole",
        "a chunk behind a cache is causal too: query t of the call sees keys up to S - T + t",
    ),
    "cache.state_dropped": trap(
        "CACHE",
        "what earlier calls left is not read: a state starts at zero in every call, or keys are missing",
        "nothing from before the call is remembered, or not all of it",
        "pass the last state of a call on to the next one; join cached keys and values before those of it",
    ),
    "state.gradient": trap(
        "GRADIENT",
        "the gradient that arrives through the last state is dropped, or is not that of the last state",
        "a text that is trained in pieces forgets what the next piece wants of this one",
        "begin the backward pass over tokens with the gradient of the last state in place of zeros",
    ),
    "state.first": trap(
        "GRADIENT",
        "the state that is handed in gets no gradient, or not what is left of it after the first token",
        "nothing before the call learns from it; a learned first state never moves",
        "return what the backward pass over tokens holds once it has gone past the first one",
    ),
    "state.decay": trap(
        "OFF_BY_ONE",
        "the last state has decayed once more, or once less",
        "right within a call; every call after it has forgotten too much or too little",
        "hand on the state as the next token finds it: written by the last one, and not decayed since",
    ),
    "state.transposed": trap(
        "SHAPE",
        "the state has its two axes exchanged",
        "right within one program; wrong where a state comes from another, and no shape says so",
        "rows belong to keys and columns to values: S = k v'",
    ),
    "cache.tail_dropped": trap(
        "CACHE",
        "a short convolution or token shift sees zeros at the start of a call",
        "the first tokens of every call are wrong",
        "keep the last inputs of a call for the next one",
    ),
    "cache.features_dropped": trap(
        "CACHE",
        "what a cached token has besides key and value (a gate, a transition) is lost",
        "old keys weigh as if nothing had come since",
        "keep it in the cache, beside the key and the value",
    ),
    "cache.ring_positions": trap(
        "CACHE",
        "the slot in a ring buffer is taken for the position",
        "right until the ring is full; then every distance is wrong",
        "store the position of each key beside the key",
        "ollama/ollama#14912",
        "Blaizzy/mlx-vlm#1715",
    ),
    "cache.window_late": trap(
        "CACHE",
        "a rolling cache has dropped keys that the first tokens of a chunk still see",
        "chunks lose part of their past, single tokens do not",
        "drop keys after the call, or keep window - 1 of them before it",
        "ollama/ollama#15591",
        "huggingface/transformers#37574",
    ),
    "mask.top_left": trap(
        "MASK",
        "the causal mask of a chunk is aligned with the first key instead of the last",
        "a token decoded alone sees only one key",
        "query t of T sees the keys up to S - T + t",
        "pytorch/pytorch#108108",
        "pytorch/pytorch#144858",
        "onnx/onnx#8068",
    ),
    "block.post_norm": trap(
        "MISSING_STEP",
        "the norm comes after the sum instead of before the sublayer",
        "it is another model: the residual stream is normed in every layer",
        "x + attention(norm1 x), then x + feed(norm2 x)",
    ),
    "block.parallel": trap(
        "MISSING_STEP",
        "the feed-forward layer reads the input of attention instead of the sum after it",
        "the feed-forward layer knows nothing of attention",
        "add the output of attention first, then apply the second norm",
    ),
    "block.swiglu_swapped": trap(
        "LAYOUT",
        "silu is applied to the other half",
        "gate and up have changed roles",
        "silu(W_gate x) times W_up x; files that stack both have the gate first",
    ),
    "block.gelu_exact": trap(
        "OPTION",
        "GELU by the error function instead of tanh",
        "off by up to 5e-4 in each unit",
        "GPT-2 uses the tanh form (gelu_new)",
    ),
    "block.qk_norm_order": trap(
        "MISSING_STEP",
        "q and k are normed after they are turned",
        "the weights of the norm act on other channels",
        "norm q and k in each head, then turn them, then cache the keys",
    ),
    "norm.mean": trap(
        "OPTION",
        "an RMSNorm subtracts the mean, or a LayerNorm does not",
        "the error is small where the mean is small",
        "RMSNorm only divides by the root of the mean square; LayerNorm subtracts the mean first",
    ),
    "norm.eps": trap(
        "OPTION",
        "another epsilon, or one outside the root",
        "small inputs are blown up or lost",
        "add it to the mean square, under the root",
    ),
    "model.final_norm": trap(
        "MISSING_STEP",
        "there is no norm before the head",
        "the logits have another size",
        "apply the norm once more after the last layer",
    ),
    "model.tied_gradient": trap(
        "MISSING_STEP",
        "the gradient of a tied embedding has only one of its two parts",
        "training drifts although the loss looks right",
        "add the gradient from the head to the gradient from the embedding rows",
    ),
    "loss.ignored_targets": trap(
        "OFF_BY_ONE",
        "the mean is over all targets, including the ignored ones",
        "the loss shrinks with the padding",
        "divide by the number of targets that are not ignored",
    ),
    "adamw.decay_everywhere": trap(
        "OPTION",
        "norms, biases and tables decay too",
        "norms, biases and tables shrink towards 0",
        "only names that end in .weight with two axes decay",
        "ServiceNow/Fast-LLM#542",
        "huggingface/transformers#4360",
    ),
    "adamw.decay_coupled": trap(
        "MISSING_STEP",
        "the decay is added to the gradient",
        "this is Adam with L2, which decays most what moves least",
        "subtract the decay from the weight itself",
    ),
    "adamw.bias_correction": trap(
        "MISSING_STEP",
        "the moments are not divided by 1 - beta^t",
        "the first steps are too small or too large",
        "divide m by 1 - beta1^t and v by 1 - beta2^t, with t counted from 1",
    ),
    "schedule.counted_from_0": trap(
        "OFF_BY_ONE",
        "steps are counted from 0",
        "the first step does nothing and all others come late",
        "the first update has t = 1, in the rate as well as in the bias correction",
    ),
    "clip.missing": trap(
        "MISSING_STEP",
        "gradients are not clipped",
        "the moments remember one long gradient for many steps",
        "where the norm of all gradients together exceeds clip, multiply each by clip / norm before the "
        "moments see them",
    ),
    "mask.padding": trap(
        "MASK",
        "a row that sees nothing is NaN or uniform",
        "one padded row spoils the batch",
        "where a query sees no key, its output and its gradients are 0: divide by 1 instead of 0",
    ),
    "mask.documents": trap(
        "MASK",
        "packed documents see one another",
        "one document leaks into the next",
        "mask by segment, and restart positions and states in each document",
    ),
    "mask.window": trap(
        "OFF_BY_ONE",
        "a window that counts the query twice or not at all",
        "each query sees one key too many or too few",
        "i - window < j <= i",
    ),
    "mask.causal": trap(
        "MASK",
        "causal although both sides were asked for, or the future is seen",
        "the future is missing, or known before it comes",
        "mask by `causal` of the config, in a chunk behind a cache too; two-sided biases need rows for d < 0",
    ),
    "gqa.order": trap(
        "SHAPE",
        "key-value heads are tiled instead of repeated",
        "query heads read the keys of other groups",
        "query head h reads key-value head h // (H/G)",
    ),
    "ambiguous": trap(
        "AMBIGUOUS",
        "respected sources differ",
        "weights trained with one reading are run with another",
        "find out which reading the weights were trained with; the case names the readings",
        "NVIDIA/TensorRT-LLM#1611",
        "baichuan-inc/Baichuan2#225",
        "state-spaces/mamba#19",
    ),
    "refuse.setting": trap(
        "VALIDATION",
        "a meaningless setting is computed with",
        "numbers that mean nothing, or NaN much later",
        "check settings before computing, and name the setting, its value and what is expected",
    ),
    "refuse.width": trap(
        "VALIDATION",
        "a width is accepted whose channels cannot be paired",
        "a channel is dropped, or the kernel reads past the head",
        "refuse an odd width, 0, and a width beyond the head, and say which widths are possible",
        "huggingface/transformers#48101",
        "fla-org/flash-linear-attention#1177",
        "ohdearquant/lattice#401",
    ),
    "refuse.heads": trap(
        "VALIDATION",
        "a number of heads is accepted that does not divide into groups",
        "some heads read the keys of others",
        "refuse unless H is a multiple of G",
    ),
    "refuse.shape": trap(
        "VALIDATION",
        "arrays that do not fit are broadcast to fit",
        "one row is used for all",
        "compare shapes before computing, and refuse sizes of 1 where more are expected",
    ),
    "refuse.position": trap(
        "VALIDATION",
        "an impossible position is clamped, wrapped or cast",
        "tokens beyond the table all look alike",
        "refuse NaN, infinity, and every position that a table has no row for",
    ),
    "refuse.mask": trap(
        "VALIDATION",
        "a mask is accepted that does not fit, or that the encoding cannot follow",
        "tokens see what they should not",
        "compare its shape with B and T, and refuse window or two-sided attention where the encoding is "
        "only causal",
    ),
    "refuse.dtype": trap(
        "VALIDATION",
        "integers are accepted in place of real numbers",
        "results are truncated to integers",
        "refuse integers, or cast them and say so",
    ),
    "law.norm": trap(
        "LAW",
        "a rotation changes lengths",
        "logits grow or shrink with the position",
        "use cosine and sine of the same angle, and a gain of 1",
    ),
    "law.composition": trap(
        "LAW",
        "turning by m and then by n is not turning by m + n",
        "cached keys cannot be shifted",
        "the angle is the position times a frequency that depends on no position",
    ),
    "law.adjoint": trap(
        "LAW",
        "the gradient is not turned back",
        "training goes astray",
        "in the backward pass the sine has the opposite sign",
    ),
    "law.shift": trap(
        "LAW",
        "absolute positions matter where only distances should",
        "text far from position 0 is read differently",
        "use positions only as i - j, and check that nothing counts slots",
    ),
    "law.softmax": trap(
        "LAW",
        "the probabilities are not the softmax of the scores",
        "a bias or scale is added in one place only",
        "put everything into the logit, then take one softmax over the keys that are seen",
    ),
    "law.fading": trap(
        "LAW",
        "a bias grows with distance",
        "distant tokens drown out near ones",
        "the bias is minus a positive slope times the distance",
    ),
    "law.causal": trap(
        "LAW",
        "the future is seen",
        "training looks good and generation fails",
        "leave out the keys of later slots before the softmax, and look no token ahead in convolutions "
        "and shifts",
    ),
    "law.prefix": trap(
        "LAW",
        "rows depend on how many tokens follow",
        "decoding step by step differs from the prompt",
        "let nothing depend on how many tokens there are: fix n when the cache is made",
    ),
    "law.packed": trap(
        "LAW",
        "documents in one sequence influence one another",
        "one document leaks into the next",
        "mask by segment, and restart positions, states, shifts and convolutions where the segment changes",
    ),
    "law.groups": trap(
        "LAW",
        "key-value heads go to the wrong query heads",
        "heads are mixed up",
        "query head h reads key-value head h // (H/G): repeat each head, do not tile them",
    ),
    "law.order": trap(
        "LAW",
        "the order of tokens matters where nothing encodes it",
        "a position leaks in",
        "look for an index, a mask or a cache slot that enters the numbers",
    ),
    "position.off_by_one": trap(
        "OFF_BY_ONE",
        "positions are one too early or too late",
        "every token stands in the place of its neighbour",
        "start at the position that the case gives for the first token, and continue from the last key of "
        "a cache",
    ),
    "attn.scale": trap(
        "MISSING_STEP",
        "the logits are not divided as this encoding requires",
        "attention is too sharp or too flat, more so the wider the head",
        "multiply q k by D**-0.5; t5 by 1, yarn with mscale_all_dim by D**-0.5 y(M)^2",
    ),
    "attn.softmax": trap(
        "MISSING_STEP",
        "the weights do not add up to 1 over the keys that are seen",
        "outputs are too large or too small, or mixed across queries",
        "divide by the sum over the keys that the query sees, along the axis of the keys",
    ),
    "embed.scale": trap(
        "SCALING",
        "the rows are multiplied by something",
        "positions drown out the tokens, or are drowned out by them",
        "add the rows unchanged; a factor sqrt(C) belongs to the token embedding, before the sum",
    ),
    "rope.layout.mixed": trap(
        "LAYOUT",
        "frequencies are laid out for halves, but the pairs are adjacent",
        "each pair turns by two different angles, so lengths change",
        "repeat the angles in the layout of the pairs: [w, w] for halves, each w twice in a row for "
        "adjacent pairs",
    ),
    "rope.sign": trap(
        "SIGN",
        "a turn in the wrong direction, sine and cosine exchanged, or a reflection",
        "past and future are exchanged, or lengths change",
        "of the pair (a, b), first: a cos - b sin, second: a sin + b cos",
    ),
    "rope.one_of_two": trap(
        "MISSING_STEP",
        "q is turned and k is not, or one of them is turned twice",
        "logits depend on absolute positions instead of distances",
        "turn q and k once each; keys are cached after turning and not turned again",
    ),
    "rope.exponent": trap(
        "SCALING",
        "the exponents of the ladder are not 2n/R from n = 0",
        "all frequencies but one are wrong",
        "base^(-2n/R) for n = 0 .. R/2-1, where R is the rotary width",
    ),
    "rope.frequencies": trap(
        "RANGE",
        "the frequencies are in another order, or the slow ones are dropped",
        "distant tokens are confused, or near ones are",
        "n = 0 is the fastest with 1 radian per token; the last is the slowest and is not 0",
    ),
    "rope.factor.ignored": trap(
        "OPTION",
        "the frequencies are not rescaled",
        "long text fails as it does without scaling",
        "read `factor` and the kind of scaling from the config",
    ),
    "rope.factor.twice": trap(
        "SCALING",
        "a factor is applied twice, or only half of it",
        "every position is off by that factor",
        "scale either the positions or the frequencies, and only once",
    ),
    "bias.negated": trap(
        "SIGN",
        "the bias has the opposite sign",
        "distant keys are rewarded and near ones punished",
        "subtract the slope times the distance: the bias is 0 at distance 0 and falls from there",
    ),
    "bias.off_by_one": trap(
        "OFF_BY_ONE",
        "distances are one too large or too small",
        "each distance reads the row of the next",
        "d = i - j, which is 0 for the token itself",
    ),
    "bias.heads": trap(
        "LAYOUT",
        "the heads are in another order, or one is used for all",
        "each head has the reach of another",
        "head 1 comes first; broadcast over queries and keys, not over heads",
    ),
    "bias.scale": trap(
        "SCALING",
        "the bias is inside the softmax scale, or in other units",
        "it counts sqrt(D) times too little or too much",
        "divide only q k, then add the bias",
    ),
    "mix.norm": trap(
        "MISSING_STEP",
        "another norm over the heads, or none",
        "outputs have another size, and some heads drown out others",
        "take the mean and variance (or mean square) of each head by itself, with the eps of the case",
    ),
    "mix.gate": trap(
        "LAYOUT",
        "gate and value are exchanged, or the gate is another one",
        "the outputs are those of another model",
        "retnet, rwkv6, mamba: silu(gate) times the normed output; rwkv4: sigmoid(r); rwkv7: g as it is; "
        "s4d: the second half through a sigmoid",
    ),
    "mix.discretisation": trap(
        "OPTION",
        "another discretisation",
        "steps are too long or too short, more so the larger dt A",
        "mamba: dt B (euler) or (exp(dt A) - 1)/A B (zoh); s4d: zoh or bilinear",
    ),
    "mix.skip": trap(
        "MISSING_STEP",
        "D is missing or negated",
        "the direct path from input to output is lost",
        "add D u to each channel of the output",
    ),
    "mix.activation": trap(
        "MISSING_STEP",
        "another activation",
        "the numbers differ wherever the activation is curved",
        "silu after the convolution (mamba, path), gelu in its tanh or erf form (s4d)",
    ),
    "mix.chunk": trap(
        "CACHE",
        "the state is lost where a chunk ends",
        "each chunk knows nothing of the ones before it",
        "pass the state after a chunk on to the next; the size of chunks changes no number",
    ),
    "mix.conv": trap(
        "LAYOUT",
        "the convolution is reversed or late",
        "tokens see the wrong neighbours, or the future",
        "the last tap belongs to the present token, and zeros stand before the first token",
    ),
    "mix.shift": trap(
        "OFF_BY_ONE",
        "another token shift",
        "the layer sees the wrong neighbour",
        "mix with x_(t-1), the token before; it is 0 before the first token of a document",
    ),
    "mix.time": trap(
        "LAYOUT",
        "time runs backward or is shifted",
        "the future leaks in, or the present token is missing",
        "go from the first token to the last; rwkv6 reads the state before it writes the token, the "
        "others after",
    ),
    "delta.decay": trap(
        "SIGN",
        "another decay",
        "heads forget at once, or never, or the state grows",
        "exp(g), g = -exp(A_log) softplus(z + dt bias), with the bias inside the softplus",
    ),
    "delta.order": trap(
        "OFF_BY_ONE",
        "the state decays after it was written, or after the value was taken out",
        "each token is written too weakly, or too much is taken out",
        "decay first; read what stands under k in the decayed state; write the difference; then q reads",
    ),
    "delta.beta": trap(
        "SCALING",
        "another beta",
        "the state keeps too much or too little of what stood under a key",
        "beta = sigmoid(W_b x) stands once before k (v - S' k)'; twice that where it may reach 2",
    ),
    "delta.unit": trap(
        "MISSING_STEP",
        "q and k do not have length one in each head",
        "the state may grow without bound",
        "divide each by sqrt(sum of squares + 1e-6), after the convolution and silu",
    ),
    "delta.scale": trap(
        "SCALING",
        "q is not divided by sqrt(D)",
        "where a norm comes after it, that hides the error, except for eps",
        "divide q by sqrt(D), once",
    ),
    "delta.heads": trap(
        "LAYOUT",
        "heads are grouped by another division",
        "heads read keys of a head that is not theirs",
        "the heads of a group stand next to one another: head h of N reads group h G/N, rounded down",
    ),
    "delta.projections": trap(
        "LAYOUT",
        "projections are exchanged",
        "the outputs are those of another model",
        "Qwen3-Next stacks q, k, v and z in each key head, and b before a; Mamba-2 stacks z, x, B, C and dt",
    ),
    "grad.rotation": trap(
        "GRADIENT",
        "the derivative is turned forward, or not at all, or lacks the gain",
        "training follows the gradient of another function",
        "turn the cotangent by minus the angle, and multiply it by the gain",
    ),
    "grad.passthrough": trap(
        "GRADIENT",
        "the channels that pass unchanged get no derivative",
        "those channels of q and k do not learn",
        "pass the cotangent on unchanged for channels from R on",
    ),
    "grad.zero": trap(
        "GRADIENT",
        "there is no derivative at all",
        "the parameter never moves",
        "write the backward pass of this input, and check that nothing is detached or copied out of the "
        "graph",
    ),
    "grad.sign": trap(
        "GRADIENT",
        "the derivative has the opposite sign",
        "training runs uphill",
        "compare one number with (f(x + h) - f(x - h)) / 2h",
    ),
    "grad.factor": trap(
        "GRADIENT",
        "the derivative is a mean instead of a sum, or counts twice",
        "the parameter learns too slowly or too fast",
        "sum over everything that used the number, once each; vjp is of the sum of cotangent times output",
    ),
    "grad.sum": trap(
        "GRADIENT",
        "the derivative comes from only a part of what used the number",
        "what the other tokens, sequences or heads contribute is lost",
        "accumulate with += over the batch, tokens and heads that read the parameter, and over the query "
        "heads of a group; scatter with add, not with =",
    ),
    "grad.heads_permuted": trap(
        "GRADIENT",
        "the derivatives belong to other heads",
        "each head learns from the errors of another",
        "undo in the backward pass exactly the transposition of the forward pass, heads before tokens",
    ),
    "grad.tie": trap(
        "GRADIENT",
        "at a maximum of two equal numbers the whole derivative goes to one of them",
        "what begins at a tie learns too fast or not at all",
        "give half to each of the two, as a central difference does",
    ),
    "grad.time": trap(
        "GRADIENT",
        "the derivatives belong to other tokens",
        "each token learns from the errors of another",
        "undo shifts and reversals in the backward pass: the cotangent of token t goes to the tokens that "
        "t has read",
    ),
    "grad.softmax": trap(
        "GRADIENT",
        "the derivative of the softmax lacks its mean or its scale",
        "logits drift, and sharp attention learns wrongly",
        "p (dp - sum over keys of p dp), then times the scale for q and k",
    ),
}


def every() -> dict[str, dict[str, Any]]:
    """Flag -> its words, of all recipes."""
    found = dict(SHARED)
    for name in files():
        found |= getattr(module(name), "TRAPS", {})
    return found
