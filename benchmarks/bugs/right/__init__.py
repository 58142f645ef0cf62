"""Right programs for the encodings, written from golden/SPEC.md alone, a class for each: what bugs are
made of.
"""

from . import biases, layers, mixes, rotations, terms

RIGHT = {
    "none": layers.Layer,
    "rope": rotations.Rope,
    "pi": rotations.Pi,
    "ntk": rotations.Ntk,
    "dynamic_ntk": rotations.DynamicNtk,
    "ntk_by_parts": rotations.NtkByParts,
    "yarn": rotations.Yarn,
    "longrope": rotations.LongRope,
    "llama3": rotations.Llama3,
    "p_rope": rotations.PRope,
    "xpos": rotations.XPos,
    "mrope": rotations.MRope,
    "axial": rotations.Axial,
    "alibi": biases.Alibi,
    "kerple_log": biases.KerpleLog,
    "kerple_power": biases.KerplePower,
    "learned_bias": biases.LearnedBias,
    "t5": biases.T5,
    "sandwich": biases.Sandwich,
    "dynamic_bias": biases.DynamicBias,
    "cope": terms.Cope,
    "fire": terms.Fire,
    "forgetting": terms.Forgetting,
    "dape": terms.Dape,
    "transformer_xl": terms.TransformerXl,
    "shaw": terms.Shaw,
    "path": terms.Path,
    "sinusoidal": mixes.Sinusoidal,
    "learned": mixes.Learned,
    "mamba": mixes.Mamba,
    "retnet": mixes.Retnet,
    "rwkv4": mixes.Rwkv4,
    "rwkv6": mixes.Rwkv6,
    "rwkv7": mixes.Rwkv7,
    "s4d": mixes.S4d,
}
