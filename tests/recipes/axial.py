"""Golden cases of axial."""

from recipes.families import attention, case, laws, refusals, refused, rotation, usual

GRID = (((0, 0, 0, 1, 1, 1),), ((0, 1, 2, 0, 1, 2),))

RECIPES = [
    *usual("axial", B=1, T=5, beside={name: {"options": {"ladder": "pixel"}} for name in ("width", "max_freq")}),
    *rotation("axial"),
    *attention("axial"),
    case("axial", "table", "grid", "Rows and columns of a grid, each axis a ladder of its own.", "position.axes", B=1, T=6, positions=GRID),
    case("axial", "table", "grid-global", "One ladder over both axes.", "position.axes", B=1, T=6, positions=GRID, options={"ladder": "global"}),
    case(
        "axial",
        "table",
        "grid-pixel",
        "Rows and columns from -1 to 1 in an image of 3.",
        "position.axes",
        B=1,
        T=6,
        positions=GRID,
        options={"ladder": "pixel", "width": 3},
    ),
]

REFUSED = [
    *refusals("axial"),
    refused("axial", "op", "width-6", "width", "3 pairs cannot be shared by two axes.", facts={"R": 6}),
    refused("axial", "op", "image-width-0", "setting", "An image without columns.", options={"width": 0}),
]

LAWS = [
    *laws("axial"),
]
