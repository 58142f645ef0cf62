"""Golden cases of yarn."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("yarn"),
    *rotation("yarn"),
    *attention("yarn"),
    case("yarn", "table", "llama-2", "Llama 2: width 128, length 4096, the ramp goes from pair 20 to 46.", "rope.yarn.ramp", D=128, T=3, L=4096),
    case("yarn", "table", "factor-1", "A factor of 1 scales nothing, magnitude included.", "basic", options={"factor": 1.0}),
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
    case(
        "yarn",
        "attn",
        "softmax-scale",
        "mscale_all_dim is in the softmax scale, on channels that turn and on those that do not.",
        "rope.yarn.mscale_override",
        options={"factor": 40.0, "mscale": 0.707, "mscale_all_dim": 0.707},
        R=4,
    ),
]

REFUSED = [
    *refusals("yarn"),
    refused("yarn", "op", "factor-0", "setting", "Frequencies cannot be divided by 0.", options={"factor": 0.0}),
    refused("yarn", "op", "no-original-length", "setting", "Without the length trained for there is no ramp.", options={"original": 0}),
    refused("yarn", "op", "ends-reversed", "setting", "beta_fast is the larger number of turns.", options={"beta_fast": 1.0, "beta_slow": 32.0}),
    refused("yarn", "op", "base-1", "setting", "With base 1 all pairs turn alike and the ramp divides by ln 1.", options={"base": 1.0}),
    refused("yarn", "op", "attention-factor-0", "setting", "A magnitude of 0 leaves nothing of q and k.", options={"attention_factor": 0.0}),
    refused(
        "yarn",
        "op",
        "ends-of-the-paper",
        "setting",
        "The paper's ramp has no ends that could be left unrounded.",
        options={"ramp": "paper", "truncate": False},
    ),
]

LAWS = [
    *laws("yarn"),
]
