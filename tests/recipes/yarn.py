"""Golden cases of yarn."""

from recipes.families import attention, case, rotation, usual

RECIPES = [
    *usual("yarn"),
    *rotation("yarn"),
    *attention("yarn"),
    case("yarn", "table", "llama-2", "Llama 2: width 128, length 4096, the ramp goes from pair 20 to 46.", "rope.yarn.ramp", D=128, T=3, L=4096),
    case("yarn", "table", "factor-1", "A factor of 1 scales nothing, magnitude included.", "rope.yarn.mscale_twice", options={"factor": 1.0}),
    case(
        "yarn",
        "attn",
        "magnitude",
        "The magnitude is on q and on k, so on logits it counts twice; no other channel has it.",
        "rope.yarn.mscale_missing",
        options={"factor": 40.0},
        R=4,
        L=64,
    ),
    case(
        "yarn",
        "table",
        "mscale",
        "mscale over mscale_all_dim.",
        "rope.yarn.mscale_override",
        options={"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 1.0},
    ),
]
