"""Golden cases of axial."""

from recipes.families import attention, laws, refusals, refused, rotation, usual

RECIPES = [
    *usual("axial"),
    *rotation("axial"),
    *attention("axial"),
]

REFUSED = [
    *refusals("axial"),
    refused("axial", "op", "width-6", "width", "3 pairs cannot be shared by two axes.", facts={"R": 6}),
    refused("axial", "op", "image-width-0", "setting", "An image without columns.", options={"width": 0}),
]

LAWS = [
    *laws("axial"),
]
