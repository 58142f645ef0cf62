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
        "nothing else is worth a look before this is right",
        "compare shapes, names and order of axes first",
    ),
    "option": trap(
        "OPTION",
        "an option away from its default",
        "the option is ignored or means something else",
        "hand the option on from the config; the line of the encoding in SPEC.md says what each value does",
    ),
    "rope.layout.half": trap(
        "LAYOUT",
        "pairs (i, i + R/2) in place of (2i, 2i+1), or the other way round",
        "text that looks plausible and falls apart with length",
        "take the layout that the weights were trained with; permuting the rows of W_q and W_k changes "
        "from one to the other",
        "huggingface/transformers#25199",
        "huggingface/transformers#39687",
        "karpathy/nanochat#264",
        "huggingface/nanotron#427",
    ),
    "rope.partial.exponent_head_dim": trap(
        "SCALING",
        "frequencies of partial rotation made from the head width",
        "right at position 0, drifts with length",
        "the exponent is 2n/R, R the rotary width",
        "pie-project/pie#603",
        "vllm-project/vllm#43770",
    ),
    "rope.partial.pairing": trap(
        "LAYOUT",
        "pairs of partial rotation split at half the head width",
        "channels that should pass are turned",
        "pairs are (n, n + R/2), R the rotary width",
        "labscommunity/cascadia#69",
        "pie-project/pie#603",
    ),
    "rope.partial.passthrough": trap(
        "MISSING_STEP",
        "channels beyond the rotary width are dropped, zeroed or scaled",
        "half of each head is lost",
        "join them to the turned ones as they are; a gain is for the turned ones alone",
    ),
    "rope.phase.low_precision": trap(
        "PRECISION",
        "angles or inverse frequencies in bfloat16 or float16",
        "cosines wrong by up to 1 at positions in the thousands",
        "compute positions times frequencies in float32 at least, cast cosines and sines afterwards",
        "EleutherAI/gpt-neox#1003",
        "huggingface/transformers#25681",
        "huggingface/transformers#29285",
        "Modalities/modalities#462",
    ),
    "rope.table.clip": trap(
        "RANGE",
        "a table of cosines and sines that ends, with positions clipped to it",
        "all tokens from there on are at one position",
        "grow the table or compute the angles where they are needed",
        "fla-org/flash-linear-attention#1177",
    ),
    "rope.table.wrap": trap(
        "RANGE",
        "positions modulo the length of a table",
        "far tokens look near",
        "grow the table, or compute the angles where they are needed",
    ),
    "rope.base.ignored": trap(
        "OPTION",
        "the base is 10000 whatever was configured",
        "models with another base fail with length",
        "take `base` (rope_theta) from the config, and see that it reaches the frequencies",
    ),
    "rope.ntk.static_as_dynamic": trap(
        "CACHE",
        "dynamic NTK that scales by a fixed factor, or by the wrong length",
        "short text suffers, or cached keys are of another base",
        "scale by the length that the cache is made for, and not below the length trained for",
        "huggingface/transformers#25104",
        "vllm-project/vllm#5093",
        "vllm-project/vllm#52665",
    ),
    "bias.sign": trap(
        "SIGN",
        "j - i for i - j",
        "past and future change places",
        "d = i - j is positive where the key is in the past",
    ),
    "bias.transposed": trap(
        "LAYOUT",
        "keys down and queries across",
        "past and future change places",
        "rows are queries, columns are keys: bias[h, i, j] is of d = i - j",
    ),
    "position.counted": trap(
        "MISSING_STEP",
        "positions counted from 0 whatever was given",
        "padding and packing are ignored",
        "hand the positions that are given to every layer, in place of 0, 1, 2, ...",
    ),
    "position.batch": trap(
        "SHAPE",
        "the first sequence's positions used for all",
        "every other sequence is elsewhere",
        "positions [B,T] give angles [B,T,R/2]: gather cosines and sines for each sequence",
    ),
    "position.rounded": trap(
        "PRECISION",
        "positions cast to whole numbers",
        "interpolated positions collapse",
        "keep positions in float32 or float64 until they meet the frequencies",
    ),
    "position.axes": trap(
        "SHAPE",
        "axes of a position exchanged or one used for all",
        "rows and columns of an image mixed",
        "positions come as time, height, width or as row, column, the axis first",
    ),
    "cache.position_restarts": trap(
        "CACHE",
        "a call through a cache counts its positions from 0",
        "every new token is where the text began",
        "positions go on from the last key",
    ),
    "cache.not_cleared": trap(
        "CACHE",
        "keys, features or states of an earlier text are still there",
        "one answer leaks into another",
        "a new text begins with an empty cache",
    ),
    "cache.state_dropped": trap(
        "CACHE",
        "a recurrence that begins at zero in every call",
        "nothing before the call is remembered",
        "hand the last state of a call to the next",
    ),
    "cache.tail_dropped": trap(
        "CACHE",
        "a short convolution or a shift by one token that sees zeros at the start of a call",
        "the first tokens of every call are off",
        "keep the last inputs of a call",
    ),
    "cache.features_dropped": trap(
        "CACHE",
        "what a cached token has beside key and value (a gate, a transition) is lost",
        "old keys weigh as if nothing had come since",
        "keep it in the cache",
    ),
    "cache.ring_positions": trap(
        "CACHE",
        "the place in a ring taken for the position",
        "right until the ring is full, then every distance is wrong",
        "keep the position of each key beside it",
        "ollama/ollama#14912",
        "Blaizzy/mlx-vlm#1715",
    ),
    "cache.window_late": trap(
        "CACHE",
        "a rolling cache that has dropped keys which the first tokens of a chunk still see",
        "chunks lose their past, single tokens do not",
        "drop keys after the call, or keep window - 1 of them before it",
        "ollama/ollama#15591",
        "huggingface/transformers#37574",
    ),
    "mask.top_left": trap(
        "MASK",
        "the causal mask of a chunk aligned with the first key in place of the last",
        "a token decoded alone sees one key",
        "query t of T sees the keys up to S - T + t",
        "pytorch/pytorch#108108",
        "pytorch/pytorch#144858",
        "onnx/onnx#8068",
    ),
    "block.post_norm": trap(
        "MISSING_STEP",
        "the norm after the sum in place of before the sublayer",
        "another model: the sum that runs through all layers is normed in each",
        "x + attention(norm1 x), then x + feed(norm2 x)",
    ),
    "block.parallel": trap(
        "MISSING_STEP",
        "the feed-forward layer reads what attention reads",
        "attention has no say in it",
        "add attention first, then norm and go on",
    ),
    "block.swiglu_swapped": trap(
        "LAYOUT",
        "silu on the other half",
        "gate and up have changed roles",
        "silu(W_gate x) times W_up x; files that stack both have the gate first",
    ),
    "block.gelu_exact": trap(
        "OPTION",
        "GELU by the error function in place of tanh",
        "off by up to 5e-4 in each unit",
        "GPT-2 has the tanh form (gelu_new)",
    ),
    "block.qk_norm_order": trap(
        "MISSING_STEP",
        "q and k are normed after they turn",
        "the weights of the norm act on other channels",
        "norm q and k in each head, then turn them, then cache",
    ),
    "norm.mean": trap(
        "OPTION",
        "the mean is taken off in an RMSNorm, or is not in a LayerNorm",
        "small where the mean is small",
        "RMSNorm divides by the root of the mean square alone, LayerNorm takes the mean off first",
    ),
    "norm.eps": trap(
        "OPTION",
        "another epsilon, or outside the root",
        "small inputs are blown up or lost",
        "it is added under the root, to the mean square",
    ),
    "model.final_norm": trap(
        "MISSING_STEP",
        "no norm before the head",
        "logits of another size",
        "norm once more after the last layer",
    ),
    "model.tied_gradient": trap(
        "MISSING_STEP",
        "the gradient of a tied embedding has one of its two parts",
        "training drifts, the loss looks right",
        "add what comes by the head and what comes by the rows",
    ),
    "loss.ignored_targets": trap(
        "OFF_BY_ONE",
        "the mean is over all targets, also those that nobody asks for",
        "the loss shrinks with the padding",
        "divide by the number of targets asked",
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
        "Adam with L2, which decays what moves little",
        "take it off the weight itself",
    ),
    "adamw.bias_correction": trap(
        "MISSING_STEP",
        "the moments are not divided by 1 - beta^t",
        "the first steps are too small or too large",
        "divide m by 1 - beta1^t and v by 1 - beta2^t, t counted from 1",
    ),
    "schedule.counted_from_0": trap(
        "OFF_BY_ONE",
        "steps are counted from 0",
        "the first step does nothing and all others come late",
        "the first update has t = 1, in the rate as in the bias correction",
    ),
    "clip.missing": trap(
        "MISSING_STEP",
        "gradients are not clipped",
        "one long gradient is remembered by the moments for many steps",
        "where the length of all gradients together is above clip, multiply each by clip / length, before "
        "the moments see them",
    ),
    "mask.padding": trap(
        "MASK",
        "a row that sees nothing is NaN or uniform",
        "one padded row spoils the batch",
        "where a query sees no key its output and its gradients are 0: divide by 1 in place of 0",
    ),
    "mask.documents": trap(
        "MASK",
        "packed documents see one another",
        "a leak from one document into the next",
        "mask by segment, and begin positions and states anew in each document",
    ),
    "mask.window": trap(
        "OFF_BY_ONE",
        "a window that counts the query twice or not at all",
        "one key more or less",
        "i - window < j <= i",
    ),
    "mask.causal": trap(
        "MASK",
        "causal although asked for both sides",
        "the future is missing",
        "mask by `causal` of the config; two-sided biases need rows for d < 0 too",
    ),
    "gqa.order": trap(
        "SHAPE",
        "key-value heads tiled in place of repeated",
        "query heads read the keys of others",
        "head h reads key-value head h // (H/G)",
    ),
    "ambiguous": trap(
        "AMBIGUOUS",
        "respected sources differ",
        "weights trained with one reading run with another",
        "find out which one the weights were trained with; the case names the readings",
        "NVIDIA/TensorRT-LLM#1611",
        "baichuan-inc/Baichuan2#225",
        "state-spaces/mamba#19",
    ),
    "refuse.setting": trap(
        "VALIDATION",
        "a setting without meaning is computed with",
        "numbers that mean nothing, or NaN far from here",
        "check settings before computing; say the name, the value and what is expected",
    ),
    "refuse.width": trap(
        "VALIDATION",
        "a width whose channels cannot pair up is taken",
        "a channel is dropped, or the kernel reads past the head",
        "refuse an odd width, 0 and one beyond the head, and say which there are",
        "huggingface/transformers#48101",
        "fla-org/flash-linear-attention#1177",
        "ohdearquant/lattice#401",
    ),
    "refuse.heads": trap(
        "VALIDATION",
        "heads that do not divide into groups",
        "some heads read others' keys",
        "refuse unless H is a multiple of G",
    ),
    "refuse.shape": trap(
        "VALIDATION",
        "arrays that do not fit are stretched to fit",
        "one row stands for all",
        "compare shapes before computing, and refuse sizes of 1 where they should be more",
    ),
    "refuse.position": trap(
        "VALIDATION",
        "a position that is no position is clamped, wrapped or cast",
        "tokens beyond the table all look alike",
        "refuse NaN, infinity, and what a table has no row for",
    ),
    "refuse.mask": trap(
        "VALIDATION",
        "a mask that does not fit, or that the encoding has no form for",
        "tokens see what they should not",
        "compare its shape with B and T, and refuse window or two-sided attention where the encoding is "
        "only causal",
    ),
    "refuse.dtype": trap(
        "VALIDATION",
        "whole numbers in place of real ones",
        "results are cut off to whole numbers",
        "refuse, or cast and say so",
    ),
    "law.norm": trap(
        "LAW",
        "a rotation that changes lengths",
        "logits grow or shrink with position",
        "cosine and sine of the same angle, a gain of 1",
    ),
    "law.composition": trap(
        "LAW",
        "turning by m and by n is not turning by m + n",
        "cached keys cannot be shifted",
        "the angle is the position times a frequency that no position changes",
    ),
    "law.adjoint": trap(
        "LAW",
        "a gradient that does not turn back",
        "training goes astray",
        "the sine has the other sign in the backward pass",
    ),
    "law.shift": trap(
        "LAW",
        "absolute positions matter where only distances should",
        "text far from 0 reads differently",
        "let positions in only as i - j; see that nothing counts slots",
    ),
    "law.softmax": trap(
        "LAW",
        "probabilities that are not the softmax of the scores",
        "a bias or scale is added in one place only",
        "put everything into the logit, then one softmax over the keys seen",
    ),
    "law.fading": trap(
        "LAW",
        "a bias that grows with distance",
        "far tokens drown near ones",
        "the bias is minus a positive slope times the distance",
    ),
    "law.causal": trap(
        "LAW",
        "the future is seen",
        "a leak: training looks good and generation fails",
        "leave out keys of later slots before the softmax, and look no token ahead in convolutions and "
        "shifts",
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
        "a leak from one document into the next",
        "mask by segment, and begin positions, states, shifts and convolutions anew where it changes",
    ),
    "law.groups": trap(
        "LAW",
        "key-value heads go to other query heads",
        "heads are mixed up",
        "query head h reads key-value head h // (H/G): repeat each head, do not tile them",
    ),
    "law.order": trap(
        "LAW",
        "order matters where nothing says it",
        "a position leaks in",
        "look for an index, a mask or a cache slot that enters the numbers",
    ),
    "position.off_by_one": trap(
        "OFF_BY_ONE",
        "positions one too early or too late",
        "every token stands where its neighbour should: weights read with another's places",
        "begin at the position that the case gives for the first token, and go on from the last key in a "
        "cache",
    ),
    "attn.scale": trap(
        "MISSING_STEP",
        "logits not divided as this encoding has it",
        "attention too sharp or too flat, the more the wider the head",
        "multiply q k by D**-0.5; t5 by 1, yarn with mscale_all_dim by D**-0.5 y(M)^2",
    ),
    "attn.softmax": trap(
        "MISSING_STEP",
        "weights that do not add up to 1 over the keys seen",
        "outputs too large or too small, or mixed over queries",
        "divide by the sum over the keys that the query sees, along the axis of keys",
    ),
    "embed.scale": trap(
        "SCALING",
        "rows multiplied by something",
        "positions drown the tokens or drown in them",
        "add the rows as they are; a factor sqrt(C) belongs to the token embedding, before the sum",
    ),
    "rope.layout.mixed": trap(
        "LAYOUT",
        "frequencies laid out for halves, pairs that are adjacent",
        "each pair turns by two angles, lengths change",
        "repeat the angles as the pairs lie: [w, w] for halves, each w twice in turn for adjacent pairs",
    ),
    "rope.sign": trap(
        "SIGN",
        "a turn the other way, sine for cosine, a reflection",
        "past and future change places, or lengths change",
        "first: a cos - b sin, second: a sin + b cos, of the pair (a, b)",
    ),
    "rope.one_of_two": trap(
        "MISSING_STEP",
        "q turned and k not, or one of them twice",
        "logits depend on absolute positions and not on distances",
        "turn q and k, each once; keys go into the cache turned and are not turned again",
    ),
    "rope.exponent": trap(
        "SCALING",
        "exponents of the ladder other than 2n/R from n = 0",
        "every frequency off but one",
        "base^(-2n/R) for n = 0 .. R/2-1, R the rotary width",
    ),
    "rope.frequencies": trap(
        "RANGE",
        "frequencies in another order, or slow ones dropped",
        "far tokens are confused, or near ones are",
        "n = 0 is the fastest, 1 radian for each token; the last is the slowest and is not 0",
    ),
    "rope.factor.ignored": trap(
        "OPTION",
        "frequencies that are not rescaled",
        "long text fails as without scaling",
        "read `factor` and the kind of scaling from the config",
    ),
    "rope.factor.twice": trap(
        "SCALING",
        "a factor applied twice, or half of it",
        "every position off by that factor",
        "scale positions or frequencies, not both, and once",
    ),
    "bias.negated": trap(
        "SIGN",
        "a bias with the other sign",
        "far keys are rewarded and near ones punished",
        "subtract the slope times the distance: it is 0 at 0 and falls",
    ),
    "bias.off_by_one": trap(
        "OFF_BY_ONE",
        "distances one too large or too small",
        "one row of a table for the next",
        "d = i - j, which is 0 for the token itself",
    ),
    "bias.heads": trap(
        "LAYOUT",
        "heads in another order, or one for all",
        "each head has the reach of another",
        "head 1 comes first; broadcast over queries and keys, not over heads",
    ),
    "bias.scale": trap(
        "SCALING",
        "a bias inside the softmax scale, or in other units",
        "it counts sqrt(D) times too little, or too much",
        "divide q k alone, then add the bias",
    ),
    "mix.norm": trap(
        "MISSING_STEP",
        "another norm over the heads, or none",
        "outputs of another size, heads that drown others",
        "mean and variance (or mean square) of each head by itself, with the eps of the case",
    ),
    "mix.gate": trap(
        "LAYOUT",
        "gate and value exchanged, or another gate",
        "outputs of another model",
        "retnet, rwkv6, mamba: silu(gate) times the normed output; rwkv4: sigmoid(r); rwkv7: g as it is; "
        "s4d: the second half through a sigmoid",
    ),
    "mix.discretisation": trap(
        "OPTION",
        "another discretisation",
        "steps too long or too short, the more the larger dt A",
        "mamba: dt B (euler) or (exp(dt A) - 1)/A B (zoh); s4d: zoh or bilinear",
    ),
    "mix.skip": trap(
        "MISSING_STEP",
        "D missing or negated",
        "the direct path from input to output is lost",
        "add D u to each channel of the output",
    ),
    "mix.activation": trap(
        "MISSING_STEP",
        "another activation",
        "other numbers wherever it bends",
        "silu after the convolution (mamba, path), gelu in its tanh or erf form (s4d)",
    ),
    "mix.chunk": trap(
        "CACHE",
        "a state that is lost where a chunk ends",
        "pieces of text that know nothing of one another",
        "hand the state after a chunk to the next; the size of chunks changes no number",
    ),
    "mix.conv": trap(
        "LAYOUT",
        "a convolution that is reversed or late",
        "tokens see others than they should, or the future",
        "the last tap belongs to the present token, zeros stand before the first",
    ),
    "mix.shift": trap(
        "OFF_BY_ONE",
        "another shift of tokens",
        "the layer sees the wrong neighbour",
        "mix with x_(t-1), the token before; 0 before the first of a document",
    ),
    "mix.time": trap(
        "LAYOUT",
        "time that runs backward or is shifted",
        "the future leaks, or the present token is missing",
        "from the first token to the last; rwkv6 reads the state before it writes the token, the others "
        "after",
    ),
    "grad.rotation": trap(
        "GRADIENT",
        "a derivative that turns forward, or not, or without the gain",
        "training learns something else than what it computes",
        "turn the cotangent by minus the angle and multiply by the gain",
    ),
    "grad.passthrough": trap(
        "GRADIENT",
        "no derivative for the channels that pass",
        "those channels of q and k do not learn",
        "hand the cotangent on as it is for channels from R on",
    ),
    "grad.zero": trap(
        "GRADIENT",
        "no derivative at all",
        "the parameter never moves",
        "write the backward pass of this input; see that nothing is detached or copied out of the graph",
    ),
    "grad.sign": trap(
        "GRADIENT",
        "a derivative with the other sign",
        "training runs uphill",
        "compare one number with (f(x + h) - f(x - h)) / 2h",
    ),
    "grad.factor": trap(
        "GRADIENT",
        "a derivative that is a mean, or counts twice",
        "it learns at another rate than it should",
        "sum over all that used the number, each once; vjp is of the sum of cotangent times output",
    ),
    "grad.sum": trap(
        "GRADIENT",
        "a derivative of a part of those who used the number",
        "what the other tokens, sequences or heads teach is lost",
        "add up with += over batch, tokens and heads that read the parameter, and over the query heads of "
        "a group; scatter with add, not with =",
    ),
    "grad.heads_permuted": trap(
        "GRADIENT",
        "derivatives of other heads",
        "each head learns another's lesson",
        "undo in backward the very transposition of forward, heads before tokens",
    ),
    "grad.tie": trap(
        "GRADIENT",
        "a maximum of two equal numbers whose derivative goes to one of them",
        "what begins at a tie learns too fast or not at all",
        "give half to each of the two, as a central difference does",
    ),
    "grad.time": trap(
        "GRADIENT",
        "derivatives of other tokens",
        "each token learns another's lesson",
        "undo shifts and reversals in backward: the cotangent of token t goes to those that t has read",
    ),
    "grad.softmax": trap(
        "GRADIENT",
        "a derivative of the softmax without its mean or its scale",
        "logits drift, sharp attention learns wrongly",
        "p (dp - sum over keys of p dp), then times the scale for q and k",
    ),
}


def every() -> dict[str, dict[str, Any]]:
    """Flag -> its words, of all recipes."""
    found = dict(SHARED)
    for name in files():
        found |= getattr(module(name), "TRAPS", {})
    return found
