"""What each flag means: the trap, what it does to somebody who falls in, the remedy, and where it was seen."""

from collections.abc import Mapping

from peref.golden.traps import entries

KINDS = ("BASIC", "LAYOUT", "SIGN", "OFF_BY_ONE", "PRECISION", "RANGE", "MISSING_STEP", "SCALING", "CACHE", "MASK", "SHAPE", "OPTION", "GRADIENT")


def flag(kind: str, title: str, effect: str, fix: str, *refs: str) -> dict[str, object]:
    return {"kind": kind, "title": title, "effect": effect, "fix": fix, "refs": list(refs)}


SHARED: dict[str, dict[str, object]] = {
    "basic": flag(
        "BASIC", "the usual settings", "nothing else is worth a look before this is right", "compare shapes, names and order of axes first"
    ),
    "option": flag("OPTION", "an option away from its default", "the option is ignored or means something else", "read what the option says"),
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
    "rope.table.wrap": flag("RANGE", "positions modulo the length of a table", "far tokens look near", "grow the table"),
    "rope.base.ignored": flag("OPTION", "the base is 10000 whatever was configured", "models with another base fail with length", "use the base"),
    "rope.pi.factor": flag("SCALING", "positions multiplied by the factor, or divided as integers", "as no scaling at all", "divide real positions"),
    "rope.ntk.exponent": flag("SCALING", "the base scaled by s^(d/(d-2)) with another d", "ends of the ladder off", "d is the rotary width"),
    "rope.ntk.static_as_dynamic": flag(
        *("CACHE", "dynamic NTK that scales by a fixed factor, or by the wrong length", "short text suffers, or cached keys are of another base"),
        *("scale by the length that the cache is made for, and not below the length trained for",),
        *("huggingface/transformers#25104", "vllm-project/vllm#5093", "vllm-project/vllm#52665"),
    ),
    "rope.yarn.ramp": flag(
        "SCALING", "the ramp of YaRN begins or ends elsewhere", "middle frequencies scaled wrongly", "floor the low end, ceil the high"
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
        "CACHE", "short and long factors switched at the wrong length", "a jump", "long from one beyond L on", "openvino#37682"
    ),
    "rope.llama3.blend": flag(
        "SCALING", "the blend of Llama 3 with its borders elsewhere", "middle frequencies off", "wavelengths L/4 and L are the borders"
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
    "bias.bucket.clamp": flag("RANGE", "far distances beyond the table", "reads outside", "the last row serves them all", "huggingface/candle#1312"),
    "bias.sign": flag("SIGN", "j - i for i - j", "past and future change places", "d = i - j is positive where the key is in the past"),
    "bias.transposed": flag("LAYOUT", "keys down and queries across", "past and future change places", "queries are rows"),
    "position.counted": flag(
        "MISSING_STEP", "positions counted from 0 whatever was given", "padding and packing are ignored", "use the positions given"
    ),
    "position.batch": flag("SHAPE", "the first sequence's positions used for all", "every other sequence is elsewhere", "gather for each sequence"),
    "position.rounded": flag("PRECISION", "positions cast to whole numbers", "interpolated positions collapse", "keep them real"),
    "position.axes": flag(
        "SHAPE", "axes of a position exchanged or one used for all", "rows and columns of an image mixed", "mind the order of the axes"
    ),
    "mask.padding": flag("MASK", "a row that sees nothing is NaN or uniform", "one padded row spoils the batch", "it is 0, in both passes"),
    "mask.documents": flag("MASK", "packed documents see one another", "a leak", "mask by segment, and restart positions and states"),
    "mask.window": flag("OFF_BY_ONE", "a window that counts the query twice or not at all", "one key more or less", "i - window < j <= i"),
    "mask.causal": flag("MASK", "causal although asked for both sides", "the future is missing", "mask only what is asked for"),
    "gqa.order": flag(
        *("SHAPE", "key-value heads tiled in place of repeated", "query heads read the keys of others", "head h reads key-value head h // (H/G)"),
    ),
}

FLAGS: Mapping[str, dict[str, object]] = SHARED | entries()
