"""Golden cases of llama3."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("llama3"),
    *rotation("llama3"),
    *attention("llama3"),
    case("llama3", "table", "borders", "Width 128, length 8192: both borders of the blend lie inside.", "rope.llama3.blend", D=128, T=3, L=8192),
]

REFUSED = [
    *refusals("llama3"),
    refused("llama3", "op", "factor-0", "setting", "A factor of 0.", options={"factor": 0.0}),
    refused("llama3", "op", "borders-equal", "setting", "Between equal borders there is no line.", options={"low_freq_factor": 4.0}),
]

LAWS = [
    *laws("llama3"),
]
