"""How the tests are written: arrays and numbers are compared by one function, check.same, whose message says
which element differs and by how much; read from their source text.

Not asked of: comparisons that ask for a property, as `(x > 0).all()`, and statistics of one number.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
OTHERS = {"allclose", "approx", "array_equal", "array_equiv", "isclose", "testing"}
MAY = {
    "test_fake_cupy.py": "the fake CuPy has an allclose too, which is tested there",
    "coarse.py": "arithmetic of few digits, which asks whether rounding changed something",
    "test_numba_exp.py": "each number in units of its own last place",
}
REMEDY = (
    "compare with check.same or check.same_numbers; where a test asks that something differs, check.apart"
)


def constant(node):
    return isinstance(getattr(node, "operand", node), ast.Constant)


def difference(node):
    """Whether it is abs(a - b) of two arrays, a change of their shape or place in between."""
    match node:
        case ast.Call(func=ast.Name("abs") | ast.Attribute(attr="abs"), args=[inside]):
            subs = [one for one in ast.walk(inside) if isinstance(one, ast.BinOp)]
            return [type(one.op) for one in subs] == [ast.Sub] and not constant(subs[0].right)
    return False


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
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Compare(left=a, ops=[ast.Lt() | ast.LtE()]) as inside, attr="all"
                )
            ) if difference(a):
                found.append(inside)
            case ast.Compare(
                left=ast.Call(func=ast.Attribute(value=a, attr="max")), ops=[ast.Lt() | ast.LtE()]
            ) if difference(a):
                found.append(node)
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
        ("assert abs(a - b).max() < 1e-5", 1),
        ("assert np.abs(np.tril(a[0] - f(b))).max() <= 1e-5", 1),
        ("assert (np.abs(a - b) <= c * abs(b)).all()", 1),
        ("assert abs(a - 1).max() < 1 and abs(a - b).max() > 1 and abs(a - b) < 1", 0),
        ("assert (a == 0).all() and (a == -1).all() and (a > b).all()", 0),
        ("same(a, b, 0)", 0),
    ],
)
def test_a_comparison_is_found(text, count):
    assert len(comparisons(text)) == count
