"""Whole models on the cuda backend, its kernels run on the CPU, against the plain ops in float64."""

import fake_cublas
import numpy as np
import pytest
from emulated.twins import CLOSE, distance, emulated
from generated import config, tokens, weights

from peref import backends, model
from peref.backends.cuda import opened
from peref.tape import Tape

PLAIN = backends.get("numpy")
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
CASES = [
    ("rope", {}, SEGMENTS),
    ("xpos", {"layout": "interleaved", "norm": "layer", "activation": "gelu", "biases": True}, None),
    ("alibi", {"window": 3}, None),
    ("t5", {"G": 1}, None),
    ("t5", {}, SEGMENTS),
    ("forgetting", {}, SEGMENTS),
    ("fire", {}, SEGMENTS),
    ("retnet", {}, SEGMENTS),
]


def of_model(be, cfg, p, x, seg):
    """Loss of each token and gradient of every parameter, in NumPy."""
    tape = Tape()
    leaves = tape.watch(be.place(p))
    y, nll = model.loss(cfg, leaves, x, x, be=be, seg=seg)
    found = tape.gradients(y, be.place(np.ones((), y.dtype)))
    host = lambda a: a.get() if hasattr(a, "get") else np.asarray(a)
    return {"nll": host(nll)} | {n: host(found[a]) for n, a in leaves.items()}


@pytest.mark.parametrize(("name", "shape", "seg"), CASES, ids=[f"{name}{'' if seg is None else ' packed'}" for name, _, seg in CASES])
def test_models_are_their_plain_twins(name, shape, seg):
    """Each way in which an encoding meets the kernels: angles, gains, tables by diagonal and by index, term, row, column, retention.

    Where the plain ops in float32 are further off than kernels may be, a rounding decides, and kernels have another sample of the same.
    """
    cfg = config(name, C=36, F=50, **shape)
    p, x = {n: a.astype(np.float32) for n, a in weights(cfg).items()}, tokens(2, 9)
    want = of_model(PLAIN, cfg, {n: a.astype(np.float64) for n, a in p.items()}, x, seg)
    rounded = of_model(PLAIN, cfg, p, x, seg)
    with emulated() as cupy:
        got = of_model(opened(cupy, fake_cublas.Library()), cfg, p, x, seg)
        assert len(set(cupy.emulated.launched)) > 8
    for n, a in want.items():
        assert got[n].dtype == np.float32
        error, allowed = distance(got[n], a), max(CLOSE, 4 * distance(rounded[n], a))
        assert error <= allowed, f"{n}: {error:.1e}, allowed {allowed:.1e}"
