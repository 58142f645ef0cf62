"""Golden cases of llama3."""

from recipes.families import attention, case, rotation, usual

RECIPES = [
    *usual("llama3"),
    *rotation("llama3"),
    *attention("llama3"),
    case("llama3", "table", "borders", "Width 128, length 8192: both borders of the blend lie inside.", "rope.llama3.blend", D=128, T=3, L=8192),
]
