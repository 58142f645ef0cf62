"""Golden cases of longrope."""

from recipes.families import attention, case, rotation, usual

RECIPES = [
    *usual("longrope"),
    *rotation("longrope"),
    *attention("longrope"),
    case("longrope", "table", "one-beyond", "Made for 17 tokens, trained for 16: the factors for long text.", "rope.longrope.switch", n=17),
    case("longrope", "table", "at-length", "Made for 16 tokens, trained for 16: the factors for short text.", "rope.longrope.switch", n=16),
]
