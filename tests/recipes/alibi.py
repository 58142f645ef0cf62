"""Golden cases of alibi."""

from recipes.families import attention, distances, law, laws, refusals, refused, usual

RECIPES = [
    *usual("alibi"),
    *distances("alibi"),
    *attention("alibi"),
]

REFUSED = [
    *refusals("alibi"),
    refused("alibi", "op", "heads-0", "heads", "No heads.", facts={"H": 0}),
]

LAWS = [
    *laws("alibi"),
    law("alibi", "attn", "softmax", "-m (i - j) and + m j differ by a number for each row: scores differ, probabilities must not."),
    law("alibi", "table", "fading", "The farther, the less: nothing is added at distance 0.", H=6, T=40),
    law("alibi", "table", "fading", "Both sides alike.", slug="fading-two-sided", H=6, causal=False),
]
