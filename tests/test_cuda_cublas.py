"""Products through the cuBLAS binding: what is asked of the library is right to the last argument, and
they are the twins of the plain ones.
"""

import ctypes

import fake_cublas
import fake_cupy
import numpy as np
import pytest
from check import each_array, same
from emulated.twins import emulated, pulled, sent
from fake_device import Device

from peref.backends.cuda.cublas import Cublas
from peref.backends.cuda.flat import ALIGNED, Flat
from peref.backends.cuda.products import products
from peref.errors import Misuse, PerefError
from peref.ops.activation import gelu, swiglu
from peref.ops.feed import activated_linear
from peref.ops.linear import linear, matmul
from peref.tape import Tape


@pytest.fixture
def cp():
    with fake_cupy.installed(memory=True) as module:
        yield module


def blas_of(cp, **given):
    return Cublas(cp, fake_cublas.Library(), **given)


# the stand-in itself, by hand


def test_no_sum_is_cut_to_bfloat16(cp):
    """The mode is set once, with the handle; without it the stand-in refuses bfloat16, as cuBLAS may then
    add in it.
    """
    x = cp.ones((2, 2), pytest.importorskip("ml_dtypes").bfloat16)
    blas = blas_of(cp)
    assert blas.library.asked == ["cublasCreate_v2", "cublasSetMathMode"]
    assert blas(x, x).astype(np.float32).tolist() == [[2, 2], [2, 2]]
    blas.library.cublasSetMathMode(blas.handle, 0)
    with pytest.raises(RuntimeError, match="in the narrow type of the result"):
        blas(x, x)


def test_the_stand_in_is_column_major(cp):
    """C = alpha op(A) op(B) + beta C for a worked example with padded leading dimensions, a transpose, and
    both pointer modes.
    """
    library = fake_cublas.Library()
    handle = ctypes.c_void_p()
    library.cublasCreate_v2(ctypes.byref(handle))
    # A is 2 x 3 = [[1 2 3] [4 5 6]], stored with ld 4; B is 3 x 2 = [[1 0] [0 1] [2 2]], stored transposed
    # (2 x 3) with ld 2
    A = cp.asarray(np.array([1, 4, 9, 9, 2, 5, 9, 9, 3, 6, 9, 9], np.float32))
    B = cp.asarray(np.array([1, 0, 0, 1, 2, 2], np.float32))
    C = cp.asarray(np.array([1, 1, 7, 1, 1, 7], np.float32))  # 2 x 2, ld 3
    ask = lambda alpha, beta: library.cublasGemmStridedBatchedEx(
        handle,
        0,
        1,
        2,
        2,
        3,
        alpha,
        A.data.ptr,
        0,
        4,
        0,
        B.data.ptr,
        0,
        2,
        0,
        beta,
        C.data.ptr,
        0,
        3,
        0,
        1,
        68,
        -1,
    )
    two, ten = ctypes.c_float(2), ctypes.c_float(10)
    assert ask(ctypes.byref(two), ctypes.byref(ten)) == 0
    assert C.tolist() == [2 * 7 + 10, 2 * 16 + 10, 7, 2 * 8 + 10, 2 * 17 + 10, 7]
    library.cublasSetPointerMode_v2(handle, 1)
    there = cp.asarray(np.array([1, 0], np.float32))
    assert ask(there.data.ptr, there[1:].data.ptr) == 0
    assert C.tolist() == [7, 16, 7, 8, 17, 7]
    wrong = library.cublasGemmStridedBatchedEx(
        handle,
        0,
        1,
        2,
        2,
        3,
        there.data.ptr,
        A.data.ptr,
        0,
        1,
        0,
        B.data.ptr,
        0,
        2,
        0,
        there.data.ptr,
        C.data.ptr,
        0,
        3,
        0,
        1,
        68,
        -1,
    )
    assert wrong == 7


# the binding

VIEWS = {
    "as it is": lambda x: x,
    "transposed": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "part of wider rows": lambda x: np.concatenate([x, x + 1], -1)[..., : x.shape[-1]],
    "every second number": lambda x: np.repeat(x, 2, -1)[..., ::2],
    "heads beside each other": lambda x: (
        np.ascontiguousarray(np.moveaxis(x, 0, -2)).swapaxes(0, -2) if x.ndim == 3 else x
    ),
}


def view(cp, x, how):
    """`x` on the device with the strides that `how` gives it."""
    host = VIEWS[how](x)
    base = host if host.base is None else host.base
    there = cp.asarray(np.ascontiguousarray(base))._host
    got = (
        np.ndarray(host.shape, host.dtype, there.reshape(-1), 0, host.strides)
        if host.base is not None and host.flags.c_contiguous is False
        else there
    )
    made = fake_cupy.held(got.reshape(host.shape) if got.shape != host.shape else got)
    same(made._host, x, 0)
    return made


@pytest.mark.parametrize("b_how", ["as it is", "transposed", "part of wider rows", "every second number"])
@pytest.mark.parametrize("a_how", ["as it is", "transposed", "part of wider rows", "every second number"])
def test_every_layout_gives_the_product(cp, rng, a_how, b_how):
    """M, K, N all different, batches of three: transposes and padded rows are read in place, everything
    else is copied first.
    """
    a, b = (
        rng.standard_normal((3, 4, 5)).astype(np.float32),
        rng.standard_normal((3, 5, 6)).astype(np.float32),
    )
    got = blas_of(cp)(view(cp, a, a_how), view(cp, b, b_how))
    same(got.get(), a @ b, 1e-6)


@pytest.mark.parametrize(
    ("one", "other"),
    [((4, 5), (5, 6)), ((3, 4, 5), (5, 6)), ((4, 5), (3, 5, 6)), ((2, 3, 4, 5), (2, 3, 5, 6)),
     ((2, 1, 4, 5), (3, 5, 6)), ((2, 1, 4, 5), (1, 3, 5, 6)), ((1, 1), (1, 1)), ((3, 1, 5), (3, 5, 1)),
     ((7, 1, 4, 5), (7, 2, 5, 1)), ((0, 5), (5, 6)), ((2, 4, 0), (0, 6)), ((2, 3, 1, 2, 5), (3, 4, 5, 2))],
)  # fmt: skip
def test_leading_axes_broadcast(cp, rng, one, other):
    """As in NumPy, sizes of 0 and 1 too."""
    a, b = rng.standard_normal(one).astype(np.float32), rng.standard_normal(other).astype(np.float32)
    got = blas_of(cp)(cp.asarray(a), cp.asarray(b)).get()
    assert got.shape == (a @ b).shape
    same(got, a @ b, 1e-6) if got.size else None


def test_out_is_added_to(cp, rng):
    """beta is 1 where there is something to add to, and what is there is not read where there is not."""
    a, b, c = (rng.standard_normal(s).astype(np.float32) for s in ((4, 5), (5, 6), (4, 6)))
    out = cp.asarray(c)
    assert blas_of(cp)(cp.asarray(a), cp.asarray(b), out) is out
    same(out.get(), a @ b + c, 1e-6)
    for wrong in (cp.zeros((6, 4), np.float32), cp.zeros((6, 4), np.float32).T):
        with pytest.raises(Misuse, match=r"out is .*expected C-contiguous"):
            blas_of(cp)(cp.asarray(a), cp.asarray(b), wrong)


def test_tf32_and_bfloat16(cp, rng):
    """TF32 only where it is asked for; bfloat16 in and out, summed in float32."""
    bf16 = pytest.importorskip("ml_dtypes").bfloat16
    a, b = rng.standard_normal((4, 64)).astype(np.float32), rng.standard_normal((64, 6)).astype(np.float32)
    error = lambda got: (
        np.linalg.norm(got.astype(np.float64) - a.astype(np.float64) @ b)
        / np.linalg.norm(a.astype(np.float64) @ b)
    )
    assert error(blas_of(cp)(cp.asarray(a), cp.asarray(b)).get()) < 1e-6
    assert 1e-5 < error(blas_of(cp, tf32=True)(cp.asarray(a), cp.asarray(b)).get()) < 1e-3
    got = blas_of(cp)(cp.asarray(a.astype(bf16)), cp.asarray(b.astype(bf16))).get()
    assert got.dtype == bf16
    assert 1e-4 < error(got) < 1e-2


def test_the_stream_is_cupys_and_the_workspace_ours(cp):
    """A stream is set once for as long as it lasts, and the workspace again after it; a captured product
    repeats.
    """
    blas, x = blas_of(cp), cp.asarray(np.eye(3, dtype=np.float32))
    y = cp.asarray(np.arange(9, dtype=np.float32).reshape(3, 3))
    changes = lambda: blas.library.asked.count("cublasSetStream_v2")
    blas(x, y)
    before = changes()
    blas(x, y)
    assert changes() == before
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        z = blas(x, y)
        graph = stream.end_capture()
    assert blas.library.asked[-3:] == [
        "cublasSetStream_v2",
        "cublasSetWorkspace_v2",
        "cublasGemmStridedBatchedEx",
    ]
    for factor in (1, 2):
        graph.launch()
        assert z.tolist() == (factor * np.arange(9.0).reshape(3, 3)).tolist()
        y *= 2
    inside = changes()
    blas(x, y)
    assert changes() > inside > before


def test_a_captured_product_needs_the_workspace(cp):
    """The stand-in sees it when the workspace was taken away by setting the stream."""
    blas, x = blas_of(cp), cp.zeros((2, 2), np.float32)
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        blas(x, x)
        blas.library.handles[blas.handle.value].workspace = None
        stream.begin_capture()
        with pytest.raises(RuntimeError, match="allocates a workspace"):
            blas(x, x)
    blas.library.handles[blas.handle.value].stream, blas.told = 99, (0, False)
    with pytest.raises(RuntimeError, match="another stream"):
        blas(x, x)


def test_products_side_by_side_need_two_workspaces(cp):
    """Of a branch and of the chain beside it, until the chain has waited for the branch."""
    blas, x = blas_of(cp), cp.zeros((2, 2), np.float32)
    one, two = blas.workspaces
    for workspaces, refused in (([one, two], False), ([one, one], True)):
        blas.workspaces, blas.told = workspaces, None
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            stream.begin_capture()
            with blas.branch() as beside:
                blas(x, x)
                beside(lambda: blas(x, x))
                if refused:
                    with pytest.raises(RuntimeError, match="one workspace"):
                        blas(x, x)
                else:
                    blas(x, x)
            blas(x, x)
            stream.end_capture()


def test_refusals(cp):
    """Other dtypes, sizes that do not fit, and what the library refuses: in words."""
    blas, x = blas_of(cp), cp.zeros((2, 3), np.float32)
    for one, other, word in (
        (x.astype(np.float64), x.T.astype(np.float64), "float32 or bfloat16 matrices, got float64"),
        (x, x, r"sizes \[2, 3\] and \[2, 3\] do not fit"),
        (cp.zeros((2, 2, 3), np.float32), cp.zeros((4, 3, 2), np.float32), "leading axes"),
    ):
        with pytest.raises(Misuse, match=word):
            blas(one, other)
    blas.library.cublasGemmStridedBatchedEx = lambda *given: 13
    with pytest.raises(PerefError, match="cublasGemmStridedBatchedEx failed: execution failed"):
        blas(x, x.T)


# the ops


@pytest.mark.parametrize(
    ("what", "shapes"),
    [
        ("linear", [(2, 3, 5), (4, 5), None]),
        ("linear", [(2, 3, 5), (4, 5), (4,)]),
        ("linear", [(5,), (4, 5), (4,)]),
        ("matmul", [(2, 3, 4, 5), (2, 3, 5, 6)]),
        ("matmul", [(2, 1, 4, 5), (3, 5, 6)]),
        ("activated_linear", [(2, 3, 5), (2, 3, 5), (4, 5), (4,), (2, 3, 4)]),
        ("activated_linear", [(2, 3, 5), None, (4, 5), None, (2, 3, 4)]),
        ("activated_linear", [(2, 3, 5), (2, 3, 5), (4, 5), (4,), None]),
        ("activated_linear", [(2, 3, 5), None, (4, 5), None, None]),
    ],
)
def test_the_products_are_the_plain_twins(rng, what, shapes):
    """Value and every gradient, against float64."""
    arrays = [None if s is None else rng.standard_normal(s) for s in shapes]
    plain = {"linear": linear, "matmul": matmul, "activated_linear": activated_linear}[what]
    with emulated() as cp:
        ours = getattr(products(blas_of(cp), gelu, swiglu), what)
        single = [None if a is None else a.astype(np.float32) for a in arrays]
        got, dy = pulled(ours, single, {}, send=lambda x: sent(cp, x))
        got = [a.get() for a in got]
        assert Device.now.counts.get("syncs", 0) == len(got)
    want, _ = pulled(
        plain, [None if a is None else a.astype(np.float64) for a in single], {}, dy=dy.astype(np.float64)
    )
    for one, expected in zip(got, want, strict=True):
        same(one, expected.astype(np.float32), 1e-5)


def test_a_product_of_one_row_leaves_the_bias_alone(rng):
    """What the product is added to is a copy, also where the bias has its shape already."""
    x, w, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 1, 5), (3, 5), (3,)))
    with emulated() as cupy:
        ours = products(Cublas(cupy, fake_cublas.Library()), gelu, swiglu)
        there = [cupy.asarray(a) for a in (x, w, b)]
        ys = [ours.linear(*there).get() for _ in range(2)]
        same(there[2].get(), b, 0)
    same(ys[0], ys[1], 0)
    same(ys[0], linear(x, w, b), 1e-6)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("heights", "flat", "count"),
    [
        ((16, 16, 16), True, 1 + 2),
        ((32, 16, 16), True, 3 + 2),
        ((16, 16, 16), False, 3 + 6),
        ((5, 3, 7), True, 3 + 6),
    ],
)
def test_maps_of_one_input_are_one_product(rng, heights, flat, count, biased):
    """As each map alone, value and every gradient; in fewer products where weights of one height lie side by
    side, as those of a model do, and where their gradients are columns of one array.
    """
    drawn = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    x, dy, ends = drawn(2, 3, 16), drawn(2, 3, sum(heights)), np.cumsum(heights)
    ws = {f"0.{role}.weight": drawn(n, 16) for role, n in zip("qkv", heights, strict=True)}
    bs = [drawn(n) if biased else None for n in heights]
    with fake_cupy.installed(memory=True) as cupy:
        blas, tape = blas_of(cupy), Tape()
        ours = products(blas, gelu, swiglu).linears
        there = Flat(ws, cupy) if flat else {name: cupy.asarray(w) for name, w in ws.items()}
        of_x, weights = tape.watch(cupy.asarray(x)), [tape.watch(there[name]) for name in ws]
        biases = [None if b is None else tape.watch(cupy.asarray(b)) for b in bs]
        ys = tuple(ours(of_x, *zip(weights, biases, strict=True)))
        whole = cupy.asarray(dy)
        dys = (whole[..., end - n : end] for n, end in zip(heights, map(int, ends), strict=True))
        found = tape.gradients(ys, tuple(dys))
        asked = blas.library.asked.count("cublasGemmStridedBatchedEx")
        of_maps = [found[a].get() for a in (*weights, *biases) if a is not None]
        got = [[y.value.get() for y in ys], found[of_x].get(), of_maps]
    parts = np.split(dy.astype(np.float64), ends[:-1], -1)
    each = [linear.forward(x.astype(np.float64), w, b) for w, b in zip(ws.values(), bs, strict=True)]
    back = [linear.backward(saved, d) for (_, saved), d in zip(each, parts, strict=True)]
    dxs, dws, dbs = zip(*back, strict=True)
    want = [[y for y, _ in each], sum(dxs), [a for a in (*dws, *dbs) if a is not None]]
    same(got, each_array(lambda a: a.astype(np.float32), want), 1e-6)
    assert asked == count


def test_a_map_that_nobody_reads():
    """Has gradients of 0, and the others theirs."""
    with fake_cupy.installed(memory=True) as cupy:
        ours, tape = products(blas_of(cupy), gelu, swiglu).linears, Tape()
        x, *ws = (tape.watch(cupy.ones((2, 2), np.float32)) for _ in range(3))
        read, _ = ours(x, *((w, None) for w in ws))
        found = tape.gradients(read, cupy.ones((2, 2), np.float32))
        assert [found[a].get().tolist() for a in (x, *ws)] == [[[2, 2]] * 2, [[2, 2]] * 2, [[0, 0]] * 2]


def test_q_k_and_v_lie_side_by_side():
    """In every layer, and the number that tells of a gradient is still that of the name in alphabetical
    order.
    """
    roles = ("down", "k", "norm1", "o", "q", "up", "v")
    given = {f"{layer}.{role}.weight": np.ones((16, 16), np.float32) for layer in range(2) for role in roles}
    with fake_cupy.installed(memory=True) as cupy:
        p = Flat(given, cupy)
    for layer in range(2):
        q, k, v = (p.starts[f"{layer}.{role}.weight"] for role in "qkv")
        assert (k - q, v - k) == (256, 256)
    assert {name: p.chunks[start // ALIGNED] for name, start in p.starts.items()} == {
        name: n for n, name in enumerate(sorted(given))
    }
