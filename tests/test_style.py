"""How the tests are written: arrays and numbers are compared by one function, check.same, whose message says
which element differs and by how much; read from their source text.

Not asked of: comparisons that ask for a property, as `(x > 0).all()`, and statistics.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
OTHERS = {"allclose", "approx", "array_equal", "array_equiv", "isclose", "testing"}
MAY = {
    "test_fake_cupy.py": "the fake CuPy has an allclose too, which is tested there",
    "coarse.py": "arithmetic of few digits, which asks whether rounding changed something",
}
REMEDY = (
    "compare with check.same or check.same_numbers; where a test asks that something differs, check.apart"
)


def constant(node):
    return isinstance(getattr(node, "operand", node), ast.Constant)


def comparisons(text):
    """Lines that compare by another function than check's: (line, what stands there)."""
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Attribute(attr=name) | ast.alias(name=name) if name in OTHERS:
                found.append(node)
            case ast.ImportFrom(module="numpy.testing"):
                found.append(node)
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Compare(left=a, ops=[ast.Eq()], comparators=[b]) as inside, attr="all"
                )
            ) if not constant(a) and not constant(b):
                found.append(inside)
            case ast.Compare(left=a, ops=[ast.Eq()], comparators=[b]) if all(
                ast.unparse(side).endswith(".tobytes()") for side in (a, b)
            ):
                found.append(node)
    return [(node.lineno, ast.unparse(node)) for node in found]


def test_one_function_compares():
    """Of NumPy's and pytest's own none is used; bits are compared with a tolerance of 0."""
    paths = [path for path in sorted(TESTS.rglob("*.py")) if path.name not in MAY]
    assert len(paths) > 90
    found = [f"{path.name}:{line}: {said}" for path in paths for line, said in comparisons(path.read_text())]
    assert not found, "\n".join([REMEDY, *found])
    for name, why in MAY.items():
        assert comparisons(next(TESTS.rglob(name)).read_text()), f"{name} needs no exception any more ({why})"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("np.testing.assert_allclose(a, b)", 1),
        ("from numpy.testing import assert_equal", 1),
        ("from numpy import allclose", 1),
        ("assert x == pytest.approx(1)", 1),
        ("map(np.array_equal, a, b)", 1),
        ("assert (a == b).all()", 1),
        ("assert a.tobytes() == b.tobytes()", 1),
        ("assert (a == 0).all() and (a == -1).all() and (a > b).all()", 0),
        ("same(a, b, 0)", 0),
    ],
)
def test_a_comparison_is_found(text, count):
    assert len(comparisons(text)) == count
