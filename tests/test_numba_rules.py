"""Rules of the numba backend that are read off its sources, and laws that hold in its float32."""

import ast
import sys
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from check import same
from generated import NAMES, config, logits, of, tokens, weights
from test_numba import NUMBA, PLAIN, U, neighbours

import peref
import peref.backends.numba
from peref import model
from peref.backends.numba import kernel
from peref.ops import linear as ops
from peref.recipe import Recipe
from peref.train import one_step

FOLDER = Path(peref.backends.numba.__file__).parent
FILES = sorted(FOLDER.rglob("*.py"))
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "stencil", "cfunc"}
PRODUCTS = {"dot", "matmul", "einsum", "inner", "outer", "tensordot", "vdot", "linalg"}


def dotted(node):
    """The parts of a.b.c, or of a name."""
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)} | {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name)
    }


def blas(text):
    """Lines at which NumPy would multiply matrices with threads of its own."""
    found = []
    for node in ast.walk(ast.parse(text)):
        at = isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult)
        named = (
            isinstance(node, ast.Attribute)
            and node.attr in PRODUCTS
            and getattr(node.value, "id", "") in ("np", "numpy", "xp")
        )
        method = (
            isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "dot"
        )
        if at or named or method:
            found.append(node.lineno)
    return sorted(found)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_product_of_matrices_is_numpys(file):
    """No threaded BLAS beside the kernels' own threads."""
    assert not blas(file.read_text())
    assert blas("y = a @ b\ny = np.einsum('ij', a)\ny = a.dot(b)\na @= b") == [1, 2, 3, 4]


PLAIN_PRODUCTS = {
    f.__code__ for f in (ops.linear_forward, ops.linear_backward, ops.matmul_forward, ops.matmul_backward)
}


def products_of(step):
    """How often a call runs the products of the plain ops, which are NumPy's."""
    found = []
    sys.setprofile(
        lambda frame, event, argument: (
            found.append(1) if event == "call" and frame.f_code in PLAIN_PRODUCTS else None
        )
    )
    try:
        step()
    finally:
        sys.setprofile(None)
    return len(found)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_multiplies_by_the_kernels_alone(name):
    """Whatever the encoding computes of its own: loss, gradients, AdamW, and a token through the cache."""
    cfg, x = config(name), tokens(2, 9)
    p, recipe = narrow(cfg), Recipe()

    def step(be):
        m, v = ({n: np.zeros_like(a) for n, a in p.items()} for _ in range(2))
        one_step(be, cfg, recipe.rule, {n: a.copy() for n, a in p.items()}, m, v, [(x, x)], recipe.numbers(1))
        memory = model.decode(cfg, p, x[:1, :8], model.cache(cfg, 16), be=be)[1]
        model.decode(cfg, p, x[:1, 8:], memory, be=be)

    products = products_of(lambda: step(NUMBA))
    assert products == 0, (
        f"{name} multiplies matrices past the backend {products} times; use be.linear or be.matmul"
    )
    assert products_of(lambda: step(PLAIN)) > 0


def test_no_other_op_or_encoding_multiplies_matrices():
    """Of the plain text linear.py alone does. S4D's start, which no step computes, is made by NumPy; experts
    have no kernel, each multiplies the tokens that chose it.
    """
    folders = [Path(peref.__file__).parent / name for name in ("ops", "encodings")]
    assert {file.name for folder in folders for file in folder.rglob("*.py") if blas(file.read_text())} == {
        "linear.py",
        "s4d.py",
        "experts.py",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_every_function_is_compiled_with_the_same_options(file):
    """Of fastmath `contract` alone: any other lets the compiler change the order of a sum, or assume that
    nothing is NaN.
    """
    assert kernel.OPTIONS["fastmath"] == kernel.INNER["fastmath"] == {"contract"}
    assert file.name == "kernel.py" or "fastmath" not in file.read_text()
    for node in ast.walk(ast.parse(file.read_text())):
        if (
            isinstance(node, ast.Call)
            and not isinstance(node.func, ast.Call)
            and dotted(node.func) & COMPILERS
        ):
            assert any(k.arg is None and dotted(k.value) & {"INNER", "OPTIONS"} for k in node.keywords), (
                file.name,
                node.lineno,
            )
            assert not {k.arg for k in node.keywords} & {"parallel", "fastmath"}, (file.name, node.lineno)
        for used in getattr(node, "decorator_list", ()):
            assert not (isinstance(used, (ast.Name, ast.Attribute)) and dotted(used) & {"njit", "jit"}), (
                file.name,
                node.lineno,
            )


# ---------------------------------------------------------------- laws


@lru_cache
def both_sides(name):
    """How far two computations of the same logits may be apart: for each 4 times what the plain ops are
    off in float32, as in as_close_as_float32.
    """
    cfg, x, worst = config(name), tokens(2, 9), U
    narrow = {n: a.astype(np.float32) for n, a in weights(cfg).items()}
    exact = logits(cfg, {n: a.astype(np.float64) for n, a in narrow.items()}, x)
    for p in (narrow, neighbours(narrow, 1), neighbours(narrow, 2)):
        worst = max(worst, abs(logits(cfg, p, x, be=PLAIN) - exact).max() / abs(exact).max())
    return 8 * worst


def narrow(cfg):
    return {n: a.astype(np.float32) for n, a in weights(cfg).items()}


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_packing_on_the_kernels(name):
    """Padded and packed tokens equal those alone; what stands in padding has no say to the bit."""
    cfg, x, close = config(name), tokens(2, 9), both_sides(name)
    p, seg = narrow(cfg), np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
    got = logits(cfg, p, x, seg=seg, be=NUMBA)
    same(got[:1, 3:], logits(cfg, p, x[:1, 3:], be=NUMBA), close)
    for a, b in ((0, 2), (2, 7), (7, 9)):
        same(got[1:, a:b], logits(cfg, p, x[1:, a:b], be=NUMBA), close)
    other = x.copy()
    other[0, :3] = 0
    same(logits(cfg, p, other, seg=seg, be=NUMBA)[0, 3:], got[0, 3:], 0)


@pytest.mark.parametrize("name", NAMES)
def test_decoding_is_the_whole_on_the_kernels(name):
    """In pieces and token by token; what was computed in between changes no bit."""
    cfg, x = config(name), tokens(1, 9)
    p = narrow(cfg)
    whole = logits(cfg, p, x, be=NUMBA)
    for cuts in ((3, 4, 9), tuple(range(1, 10))):
        memory, rows, start = model.cache(cfg, 16), [], 0
        for stop in cuts:
            y, memory = model.decode(cfg, p, x[:, start:stop], memory, be=NUMBA)
            rows.append(y)
            start = stop
        same(np.concatenate(rows, 1), whole, both_sides(name))
    same(logits(cfg, p, x, be=NUMBA), whole, 0)


@pytest.mark.parametrize("name", of("shift"))
def test_shift_on_the_kernels(name):
    """Positions 1,000 further on give the same logits."""
    cfg, x = config(name, L=64), tokens(2, 7)
    p = narrow(cfg)
    same(
        logits(cfg, p, x, positions=1000 + np.arange(7), be=NUMBA),
        logits(cfg, p, x, be=NUMBA),
        both_sides(name),
    )


@pytest.mark.parametrize("name", of("window"))
def test_window_on_the_kernels(name):
    """In one layer a query with window 3 reads itself and two before, to the bit no more."""
    cfg, x = config(name, window=3, layers=1), tokens(2, 9)
    p, other = narrow(cfg), x.copy()
    features = 2 if cfg.encoding(0).features else 0  # features may look back themselves
    other[:, 0] = (other[:, 0] + 3) % 11
    change = abs(logits(cfg, p, other, be=NUMBA) - logits(cfg, p, x, be=NUMBA)).max((0, 2))
    assert (change[:3] > 0).all()
    assert not change[3 + features :].any()


@pytest.mark.parametrize("name", of("two_sided"))
def test_two_sided_on_the_kernels(name):
    """The last token reaches the first row, and no document another."""
    cfg, x = config(name, causal=False), tokens(1, 7)
    p, other, seg = narrow(cfg), x.copy(), np.array([[0, 1, 1, 1, 2, 2, 2]])
    other[:, -1] = (other[:, -1] + 3) % 11
    assert abs(logits(cfg, p, other, be=NUMBA) - logits(cfg, p, x, be=NUMBA))[:, 0].max() > 0
    got = logits(cfg, p, x, seg=seg, be=NUMBA)
    same(logits(cfg, p, other, seg=seg, be=NUMBA)[:, 1:4], got[:, 1:4], 0)
    same(got[:, 1:4], logits(cfg, p, x[:, 1:4], be=NUMBA), both_sides(name))


@pytest.mark.parametrize("name", [name for name in NAMES if name in of("window")])
def test_grouped_heads_on_the_kernels(name):
    """G heads of keys and values serve H queries as H repeated ones would."""
    few, many, x = config(name, G=2, layers=1), config(name, G=6, layers=1), tokens(2, 7)
    p = narrow(few)
    full = dict(p)
    for n, a in narrow(many).items():
        if p[n].shape != a.shape:
            heads = (
                p[n].reshape(2, -1, *p[n].shape[1:])
                if p[n].shape[0] != 2
                else p[n].reshape(2, 1, *p[n].shape[1:])
            )
            full[n] = np.repeat(heads, 3, 0).reshape(a.shape)
    same(logits(many, full, x, be=NUMBA), logits(few, p, x, be=NUMBA), both_sides(name))
