"""What each flag means: the trap, what it does to somebody who falls in, the remedy, and where it was seen."""

from collections.abc import Mapping

from peref.golden.traps import entries

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


def flag(kind: str, title: str, effect: str, fix: str, *refs: str) -> dict[str, object]:
    return {"kind": kind, "title": title, "effect": effect, "fix": fix, "refs": list(refs)}


SHARED: dict[str, dict[str, object]] = {
    "basic": flag(
        "BASIC", "the usual settings", "nothing else is worth a look before this is right", "compare shapes, names and order of axes first"
    ),
    "option": flag(
        "OPTION",
        "an option away from its default",
        "the option is ignored or means something else",
        "hand the option on from the config; the line of the encoding in SPEC.md says what each value does",
    ),
    "rope.layout.half": flag(
        *("LAYOUT", "pairs (i, i + R/2) in place of (2i, 2i+1), or the other way round", "text that looks plausible and falls apart with length"),
        *("take the layout that the weights were trained with; permuting the rows of W_q and W_k changes from one to the other",),
        *("huggingface/transformers#25199", "huggingface/transformers#39687", "karpathy/nanochat#264", "huggingface/nanotron#427"),
    ),
    "rope.partial.exponent_head_dim": flag(
        *("SCALING", "frequencies of partial rotation made from the head width", "right at position 0, drifts with length"),
        *("the exponent is 2n/R, R the rotary width", "pie-project/pie#603", "vllm-project/vllm#43770"),
    ),
    "rope.partial.pairing": flag(
        *("LAYOUT", "pairs of partial rotation split at half the head width", "channels that should pass are turned"),
        *("pairs are (n, n + R/2), R the rotary width", "labscommunity/cascadia#69", "pie-project/pie#603"),
    ),
    "rope.partial.passthrough": flag(
        *("MISSING_STEP", "channels beyond the rotary width are dropped, zeroed or scaled", "half of each head is lost"),
        *("join them to the turned ones as they are; a gain is for the turned ones alone",),
    ),
    "rope.phase.low_precision": flag(
        *("PRECISION", "angles or inverse frequencies in bfloat16 or float16", "cosines wrong by up to 1 at positions in the thousands"),
        *("compute positions times frequencies in float32 at least, cast cosines and sines afterwards",),
        *("EleutherAI/gpt-neox#1003", "huggingface/transformers#25681", "huggingface/transformers#29285", "Modalities/modalities#462"),
    ),
    "rope.table.clip": flag(
        *("RANGE", "a table of cosines and sines that ends, with positions clipped to it", "all tokens from there on are at one position"),
        *("grow the table or compute the angles where they are needed", "fla-org/flash-linear-attention#1177"),
    ),
    "rope.table.wrap": flag(
        "RANGE", "positions modulo the length of a table", "far tokens look near", "grow the table, or compute the angles where they are needed"
    ),
    "rope.base.ignored": flag(
        "OPTION",
        "the base is 10000 whatever was configured",
        "models with another base fail with length",
        "take `base` (rope_theta) from the config, and see that it reaches the frequencies",
    ),
    "rope.pi.factor": flag(
        "SCALING",
        "positions multiplied by the factor, or divided as integers",
        "positions farther out than in training, or many at one place",
        "divide positions by the factor as real numbers, then multiply by the frequencies",
    ),
    "rope.ntk.exponent": flag(
        "SCALING",
        "the base scaled by s^(d/(d-2)) with another d",
        "ends of the ladder off",
        "base s^(R/(R-2)), R the rotary width and not that of the head: the last frequency is divided by s, the first stays",
    ),
    "rope.ntk.static_as_dynamic": flag(
        *("CACHE", "dynamic NTK that scales by a fixed factor, or by the wrong length", "short text suffers, or cached keys are of another base"),
        *("scale by the length that the cache is made for, and not below the length trained for",),
        *("huggingface/transformers#25104", "vllm-project/vllm#5093", "vllm-project/vllm#52665"),
    ),
    "rope.yarn.ramp": flag(
        "SCALING",
        "the ramp of YaRN begins or ends elsewhere",
        "pairs of middle speed are scaled too much or too little: right within the length trained for, and worse the longer the text",
        "the ramp rises over the index of the pair from the one that turns beta_fast times within L (rounded down, at least 0) to the one "
        "that turns beta_slow times (rounded up, at most R-1); divided by the factor are the slow pairs behind it",
    ),
    "rope.yarn.mscale_missing": flag(
        *(
            "MISSING_STEP",
            "YaRN without its magnitude",
            "attention too flat, quality falls with length",
            "multiply cosines and sines of q and of k by it",
        ),
        *("vllm-project/vllm#46280", "ml-explore/mlx-lm#1507"),
    ),
    "rope.yarn.mscale_twice": flag("SCALING", "the magnitude squared", "attention too sharp", "on q and on k once each", "sgl-project/sglang#33558"),
    "rope.yarn.mscale_override": flag(
        *("OPTION", "mscale and mscale_all_dim ignored or combined otherwise", "attention at another temperature", "their quotient is the magnitude"),
        *("vllm-project/vllm#48351",),
    ),
    "rope.longrope.switch": flag(
        "CACHE",
        "short and long factors switched at the wrong length",
        "a jump where a text passes L",
        "the long factors from L + 1 tokens on, the short ones up to L",
        "openvino#37682",
    ),
    "rope.llama3.blend": flag(
        "SCALING",
        "the blend of Llama 3 with its borders elsewhere",
        "middle frequencies off",
        "left alone below the wavelength L / high_freq_factor, divided above L / low_freq_factor, a straight line in L / wavelength between",
    ),
    "sin.order": flag(
        *("LAYOUT", "sines and cosines in halves in place of alternating, or the other way round", "a permutation of channels"),
        *("the paper alternates; many codes have halves", "tensorflow/tensor2tensor#1925", "facebookresearch/fairseq#4648"),
    ),
    "alibi.slopes.non_pow2": flag(
        *("RANGE", "slopes for a number of heads that is no power of two", "some heads see too far, others not far enough"),
        *("the authors' code takes every other slope of the next power of two", "ml-explore/mlx#343", "NVIDIA/TensorRT-LLM#1611"),
    ),
    "bias.bucket.border": flag(
        *("OFF_BY_ONE", "a distance in the bucket beside its own", "small at first sight: one row of a table for another"),
        *("count in whole numbers, or in float64", "huggingface/candle#727", "lucidrains/x-transformers#10"),
    ),
    "bias.bucket.clamp": flag(
        "RANGE",
        "far distances beyond the table",
        "reads beside the table",
        "the last bucket serves all distances from max_distance on",
        "huggingface/candle#1312",
    ),
    "bias.sign": flag("SIGN", "j - i for i - j", "past and future change places", "d = i - j is positive where the key is in the past"),
    "bias.transposed": flag(
        "LAYOUT", "keys down and queries across", "past and future change places", "rows are queries, columns are keys: bias[h, i, j] is of d = i - j"
    ),
    "position.counted": flag(
        "MISSING_STEP",
        "positions counted from 0 whatever was given",
        "padding and packing are ignored",
        "hand the positions that are given to every layer, in place of 0, 1, 2, ...",
    ),
    "position.batch": flag(
        "SHAPE",
        "the first sequence's positions used for all",
        "every other sequence is elsewhere",
        "positions [B,T] give angles [B,T,R/2]: gather cosines and sines for each sequence",
    ),
    "position.rounded": flag(
        "PRECISION",
        "positions cast to whole numbers",
        "interpolated positions collapse",
        "keep positions in float32 or float64 until they meet the frequencies",
    ),
    "position.axes": flag(
        "SHAPE",
        "axes of a position exchanged or one used for all",
        "rows and columns of an image mixed",
        "positions come as time, height, width or as row, column, the axis first",
    ),
    "rope.ntk.cache_mixed_bases": flag(
        *("CACHE", "keys in the cache turned with another base than the query", "every distance to a cached key is off"),
        *("fix the length when the cache is made, or turn cached keys anew", "huggingface/transformers#25104", "vllm-project/vllm#52665"),
    ),
    "rope.ntk.long_then_short": flag(
        *("CACHE", "the length of an earlier text decides the frequencies of the next", "a result that depends on what was asked before"),
        *("set it back where a new text begins", "huggingface/transformers#25306", "huggingface/transformers#27226"),
    ),
    "rope.longrope.cache_mixed": flag(
        *("CACHE", "keys turned by the factors for short text, queries by those for long", "a jump where the text passes the length trained for"),
        *("decide once, by the length that the cache is made for", "openvino#37682"),
    ),
    "cache.position_restarts": flag(
        *("CACHE", "a call through a cache counts its positions from 0", "every new token is where the text began"),
        *("positions go on from the last key",),
    ),
    "cache.not_cleared": flag(
        *("CACHE", "keys, features or states of an earlier text are still there", "one answer leaks into another"),
        *("a new text begins with an empty cache",),
    ),
    "cache.state_dropped": flag(
        *("CACHE", "a recurrence that begins at zero in every call", "nothing before the call is remembered"),
        *("hand the last state of a call to the next",),
    ),
    "cache.tail_dropped": flag(
        *("CACHE", "a short convolution or a shift by one token that sees zeros at the start of a call", "the first tokens of every call are off"),
        *("keep the last inputs of a call",),
    ),
    "cache.features_dropped": flag(
        *("CACHE", "what a cached token has beside key and value (a gate, a transition) is lost", "old keys weigh as if nothing had come since"),
        *("keep it in the cache",),
    ),
    "cache.ring_positions": flag(
        *("CACHE", "the place in a ring taken for the position", "right until the ring is full, then every distance is wrong"),
        *("keep the position of each key beside it", "ollama/ollama#14912", "Blaizzy/mlx-vlm#1715"),
    ),
    "cache.window_late": flag(
        *(
            "CACHE",
            "a rolling cache that has dropped keys which the first tokens of a chunk still see",
            "chunks lose their past, single tokens do not",
        ),
        *("drop keys after the call, or keep window - 1 of them before it", "ollama/ollama#15591", "huggingface/transformers#37574"),
    ),
    "t5.bias.dropped_on_decode": flag(
        "CACHE",
        "no bias once there is a cache",
        "right in the prefill, wrong from the first token on",
        "with a cache of S keys add the last rows of the bias over all S, not that of the new tokens alone",
        "NVIDIA/TensorRT-LLM#13870",
    ),
    "mask.top_left": flag(
        *("MASK", "the causal mask of a chunk aligned with the first key in place of the last", "a token decoded alone sees one key"),
        *("query t of T sees the keys up to S - T + t", "pytorch/pytorch#108108", "pytorch/pytorch#144858", "onnx/onnx#8068"),
    ),
    "block.post_norm": flag(
        "MISSING_STEP",
        "the norm after the sum in place of before the sublayer",
        "another model: the sum that runs through all layers is normed in each",
        "x + attention(norm1 x), then x + feed(norm2 x)",
    ),
    "block.parallel": flag(
        "MISSING_STEP", "the feed-forward layer reads what attention reads", "attention has no say in it", "add attention first, then norm and go on"
    ),
    "block.swiglu_swapped": flag(
        "LAYOUT", "silu on the other half", "gate and up have changed roles", "silu(W_gate x) times W_up x; files that stack both have the gate first"
    ),
    "block.gelu_exact": flag(
        "OPTION", "GELU by the error function in place of tanh", "off by up to 5e-4 in each unit", "GPT-2 has the tanh form (gelu_new)"
    ),
    "block.qk_norm_order": flag(
        "MISSING_STEP",
        "q and k are normed after they turn",
        "the weights of the norm act on other channels",
        "norm q and k in each head, then turn them, then cache",
    ),
    "norm.mean": flag(
        "OPTION",
        "the mean is taken off in an RMSNorm, or is not in a LayerNorm",
        "small where the mean is small",
        "RMSNorm divides by the root of the mean square alone, LayerNorm takes the mean off first",
    ),
    "norm.eps": flag(
        "OPTION", "another epsilon, or outside the root", "small inputs are blown up or lost", "it is added under the root, to the mean square"
    ),
    "model.final_norm": flag("MISSING_STEP", "no norm before the head", "logits of another size", "norm once more after the last layer"),
    "model.tied_gradient": flag(
        *("MISSING_STEP", "the gradient of a tied embedding has one of its two parts", "training drifts, the loss looks right"),
        *("add what comes by the head and what comes by the rows",),
    ),
    "model.shared_gradient": flag(
        "MISSING_STEP",
        "a table that layers share has the gradient of one of them",
        "it learns too slowly",
        "add up the gradients of all layers that read the table",
    ),
    "loss.ignored_targets": flag(
        *("OFF_BY_ONE", "the mean is over all targets, also those that nobody asks for", "the loss shrinks with the padding"),
        *("divide by the number of targets asked",),
    ),
    "adamw.decay_everywhere": flag(
        *("OPTION", "norms, biases and tables decay too", "norms, biases and tables shrink towards 0"),
        *("only names that end in .weight with two axes decay", "ServiceNow/Fast-LLM#542", "huggingface/transformers#4360"),
    ),
    "adamw.decay_coupled": flag(
        "MISSING_STEP", "the decay is added to the gradient", "Adam with L2, which decays what moves little", "take it off the weight itself"
    ),
    "adamw.bias_correction": flag(
        "MISSING_STEP",
        "the moments are not divided by 1 - beta^t",
        "the first steps are too small or too large",
        "divide m by 1 - beta1^t and v by 1 - beta2^t, t counted from 1",
    ),
    "schedule.counted_from_0": flag(
        "OFF_BY_ONE",
        "steps are counted from 0",
        "the first step does nothing and all others come late",
        "the first update has t = 1, in the rate as in the bias correction",
    ),
    "clip.missing": flag(
        "MISSING_STEP",
        "gradients are not clipped",
        "one long gradient is remembered by the moments for many steps",
        "where the length of all gradients together is above clip, multiply each by clip / length, before the moments see them",
    ),
    "mask.padding": flag(
        "MASK",
        "a row that sees nothing is NaN or uniform",
        "one padded row spoils the batch",
        "where a query sees no key its output and its gradients are 0: divide by 1 in place of 0",
    ),
    "mask.documents": flag(
        "MASK",
        "packed documents see one another",
        "a leak from one document into the next",
        "mask by segment, and begin positions and states anew in each document",
    ),
    "mask.window": flag("OFF_BY_ONE", "a window that counts the query twice or not at all", "one key more or less", "i - window < j <= i"),
    "mask.causal": flag(
        "MASK",
        "causal although asked for both sides",
        "the future is missing",
        "mask by `causal` of the config; two-sided biases need rows for d < 0 too",
    ),
    "gqa.order": flag(
        *("SHAPE", "key-value heads tiled in place of repeated", "query heads read the keys of others", "head h reads key-value head h // (H/G)"),
    ),
    "ambiguous": flag(
        *("AMBIGUOUS", "respected sources differ", "weights trained with one reading run with another"),
        *("find out which one the weights were trained with; the case names the readings",),
        *("NVIDIA/TensorRT-LLM#1611", "baichuan-inc/Baichuan2#225", "state-spaces/mamba#19"),
    ),
    "refuse.setting": flag(
        "VALIDATION",
        "a setting without meaning is computed with",
        "numbers that mean nothing, or NaN far from here",
        "check settings before computing; say the name, the value and what is expected",
    ),
    "refuse.width": flag(
        *("VALIDATION", "a width whose channels cannot pair up is taken", "a channel is dropped, or the kernel reads past the head"),
        *("refuse an odd width, 0 and one beyond the head, and say which there are",),
        *("huggingface/transformers#48101", "fla-org/flash-linear-attention#1177", "ohdearquant/lattice#401"),
    ),
    "refuse.heads": flag("VALIDATION", "heads that do not divide into groups", "some heads read others' keys", "refuse unless H is a multiple of G"),
    "refuse.shape": flag(
        "VALIDATION",
        "arrays that do not fit are stretched to fit",
        "one row stands for all",
        "compare shapes before computing, and refuse sizes of 1 where they should be more",
    ),
    "refuse.position": flag(
        *("VALIDATION", "a position that is no position is clamped, wrapped or cast", "tokens beyond the table all look alike"),
        *("refuse NaN, infinity, and what a table has no row for",),
    ),
    "refuse.mask": flag(
        "VALIDATION",
        "a mask that does not fit, or that the encoding has no form for",
        "tokens see what they should not",
        "compare its shape with B and T, and refuse window or two-sided attention where the encoding is only causal",
    ),
    "refuse.dtype": flag("VALIDATION", "whole numbers in place of real ones", "results are cut off to whole numbers", "refuse, or cast and say so"),
    "law.norm": flag(
        "LAW", "a rotation that changes lengths", "logits grow or shrink with position", "cosine and sine of the same angle, a gain of 1"
    ),
    "law.composition": flag(
        "LAW",
        "turning by m and by n is not turning by m + n",
        "cached keys cannot be shifted",
        "the angle is the position times a frequency that no position changes",
    ),
    "law.adjoint": flag("LAW", "a gradient that does not turn back", "training goes astray", "the sine has the other sign in the backward pass"),
    "law.shift": flag(
        "LAW",
        "absolute positions matter where only distances should",
        "text far from 0 reads differently",
        "let positions in only as i - j; see that nothing counts slots",
    ),
    "law.softmax": flag(
        "LAW",
        "probabilities that are not the softmax of the scores",
        "a bias or scale is added in one place only",
        "put everything into the logit, then one softmax over the keys seen",
    ),
    "law.fading": flag(
        "LAW", "a bias that grows with distance", "far tokens drown near ones", "the bias is minus a positive slope times the distance"
    ),
    "law.buckets": flag(
        *("LAW", "buckets that a rounded logarithm made", "a distance at an edge has its neighbour's bias"),
        *("compare whole powers in place of logarithms", "huggingface/candle#727", "mindspore-lab/mindone#670"),
    ),
    "law.causal": flag(
        "LAW",
        "the future is seen",
        "a leak: training looks good and generation fails",
        "leave out keys of later slots before the softmax, and look no token ahead in convolutions and shifts",
    ),
    "law.prefix": flag(
        "LAW",
        "rows depend on how many tokens follow",
        "decoding step by step differs from the prompt",
        "let nothing depend on how many tokens there are: fix n when the cache is made",
    ),
    "law.packed": flag(
        "LAW",
        "documents in one sequence influence one another",
        "a leak from one document into the next",
        "mask by segment, and begin positions, states, shifts and convolutions anew where it changes",
    ),
    "law.groups": flag(
        "LAW",
        "key-value heads go to other query heads",
        "heads are mixed up",
        "query head h reads key-value head h // (H/G): repeat each head, do not tile them",
    ),
    "law.order": flag(
        "LAW", "order matters where nothing says it", "a position leaks in", "look for an index, a mask or a cache slot that enters the numbers"
    ),
}

FLAGS: Mapping[str, dict[str, object]] = SHARED | entries()
