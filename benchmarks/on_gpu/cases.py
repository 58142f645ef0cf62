"""The cases of phase 4: what each op of the backend is given, and how far from float64 it may be in
float32.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from peref.backends.cuda import activation as own
from peref.encodings.mix.mamba import selective_scan
from peref.encodings.mix.retnet import retention
from peref.encodings.mix.rwkv4 import wkv4
from peref.encodings.mix.rwkv6 import wkv6
from peref.encodings.mix.rwkv7 import wkv7
from peref.encodings.mix.s4d import diagonal_scan
from peref.ops import activation as plain_activation
from peref.ops.place import At
from peref.ops.scan import short_conv
from peref.tape import Op

ELEMENTWISE, PRODUCT = 2e-6, 1e-5  # relative Frobenius, in float32: what adds little, sums

# kernel files, title, (be, arrays) -> y, arrays, settings, tolerance
Case = tuple[str, str, Callable, list[Any], dict[str, Any], float]


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def field(name: str) -> Callable:
    return lambda be, *arrays, **settings: getattr(be, name)(*arrays, **settings)


def activation(name: str) -> Callable:
    """The backend's own, without the product behind it, in which alone it is a field."""
    return lambda be, *x: getattr(own if be.name.startswith("cuda") else plain_activation, name)(*x)


def recurrence(plain: Op) -> Callable:
    """An encoding's own, by the name under which it asks for it."""
    name = plain.forward.__name__.removesuffix("_forward")
    return lambda be, *arrays, **settings: be.recurrence(name, plain)(*arrays, **settings)


def rows(tiny: bool, sizes: tuple[int, ...] = (1000, 1536, 3, 77)) -> Iterator[Case]:
    """The kernels that go over rows. sizes: rows, channels, heads, tokens."""
    N, C, H, T = (5, 40, 3, 7) if tiny else sizes
    x, w, b = draw(N, C), draw(C, seed=1), draw(C, seed=2)
    yield "norm", "rms_norm", field("rms_norm"), [x, w], {"eps": 1e-5}, PRODUCT
    yield "norm", "layer_norm", field("layer_norm"), [x, w, b], {"eps": 1e-5}, PRODUCT
    index = np.random.default_rng(4).integers(0, N, 3 * N)
    yield "embedding", "take", field("take"), [x, index], {}, PRODUCT
    yield (
        "loss",
        "cross_entropy",
        field("cross_entropy"),
        [x, np.random.default_rng(5).integers(-1, C, N)],
        {},
        PRODUCT,
    )
    q, angle = draw(2, H, T, 64), draw(T, 24, seed=6)
    for layout in ("half", "interleaved"):
        yield (
            "turn",
            f"turn {layout}",
            lambda be, x, layout=layout: be.turn(x, be.place(angle), None, layout=layout),
            [q],
            {},
            ELEMENTWISE,
        )
    yield (
        "turn",
        "turn by learned angles",
        lambda be, x, angle: be.turn(x, angle, None, layout="half"),
        [q, angle],
        {},
        PRODUCT,
    )
    yield "activation", "gelu", activation("gelu"), [x], {}, ELEMENTWISE
    yield "activation", "swiglu", activation("swiglu"), [x, draw(N, C, seed=3)], {}, ELEMENTWISE
    # other kernels take rows of another length
    C, other = (544, "longer") if tiny else (256, "shorter")
    x, targets = draw(N, C), np.random.default_rng(5).integers(-1, C, N)
    yield "norm", f"rms_norm of {other} rows", field("rms_norm"), [x, draw(C)], {"eps": 1e-5}, PRODUCT
    yield "loss", f"cross_entropy of {other} rows", field("cross_entropy"), [x, targets], {}, PRODUCT


def attended(B: int, H: int, G: int, T: int, D: int) -> Iterator[Case]:
    """Attention without a table and with one, in a window, over documents, and with positions that are not
    consecutive.
    """
    q, k, v = (draw(B, heads, T, D, seed=n) for n, heads in enumerate((H, G, G)))
    seg = np.repeat([[1, 2]], B, 0).repeat([T // 3, T - T // 3], 1)
    apart = At.of(T, seg=seg, positions=np.arange(T) // 2 * 2)  # read through an index
    for kind, table, at in (
        ("", None, At.of(T)),
        (" table", draw(H, T, seed=3), At.of(T)),
        (" window", None, At.of(T, window=max(2, T // 5))),
        (" packed", None, At.of(T, seg=seg)),
        (" index", draw(H, len(apart.distances), seed=3), apart),
    ):
        files = f"attention attention_backward{' by_index' if kind == ' index' else ''}"
        given = {"at": at, "scale": D**-0.5}
        yield files, f"attention {D} x {T}{kind}", field("attention"), [q, k, v, table], given, PRODUCT


def stopping(H: int, T: int, D: int) -> Case:
    steep = -np.arange(1.0, H + 1)[:, None] * np.arange(T) / H
    given = [*(draw(1, H, T, D, seed=s) for s in range(3)), steep]
    files, settings = "attention attention_backward reach", {"at": At.of(T), "scale": D**-0.5}
    return files, "attention that stops", field("attention"), given, settings, PRODUCT


def retained(B: int, H: int, T: int, D: int) -> Case:
    decay = {"log_decay": np.log(1 - 2.0 ** -np.arange(5, 5 + H)), "chunk": 64, "scale": 0.2}
    first = lambda be, q, k, v, **given: recurrence(retention)(be, q, k, v, None, None, **given)[0]
    return "retention", "retention", first, [draw(B, H, T, D, seed=s) for s in range(3)], decay, PRODUCT


def heads(tiny: bool) -> Iterator[Case]:
    """Attention and retention: widths, ragged lengths, grouped heads, a table with its gradient, windows,
    documents.
    """
    lengths = (9,) if tiny else (130, 333)
    for D in (32,) if tiny else (32, 64, 128, 40):
        for T in lengths:
            yield from attended(2, 4, 2, T, D)
    # enough queries to look where to stop, and a table that is steep enough to
    yield stopping(*((1, 520) if tiny else (8, 1500)), 32)
    yield retained(2, 4, lengths[-1], 32)


def wide_heads(tiny: bool) -> Iterator[Case]:
    """Attention at the widths that heads(True) has not: two blocks of queries, keys that take turns in one
    place, and a block that stops.
    """
    for D in (64,) if tiny else (64, 128):
        yield from attended(1, 2, 1, 9 if tiny else 200, D)
        yield stopping(1, 9 if tiny else 520, D)


def recurrences(tiny: bool, sizes: tuple[int, ...] = (2, 300, 200, 40, 3, 64)) -> Iterator[Case]:
    """What has a state over tokens, and the short convolution: documents that begin anywhere, channels and
    rows beyond one block.

    sizes: sequences, tokens, channels, numbers of a channel's state, heads and their width.
    """
    B, T, C, N, H, D = (2, 20, 20, 20, 1, 24) if tiny else sizes
    runs = (np.arange(T) // (T // 3 + 1))[None].repeat(B, 0)
    x, y, fixed = draw(B, T, C), draw(B, T, C, seed=1), -abs(draw(C))
    yield (
        "convolution",
        "short_conv",
        recurrence(short_conv),
        [x, draw(C, 4), draw(B, 3, C), runs],
        {},
        PRODUCT,
    )
    yield "wkv4", "wkv4", recurrence(wkv4), [x, y, fixed, draw(C, seed=1), None, runs], {}, PRODUCT
    r, k, v, q, w, g = (draw(B, H, T, D, seed=n) for n in range(6))
    state, log_w, kappa, a = (
        draw(B, H, D, D),
        -abs(w) / 4,
        q / np.sqrt((q * q).sum(-1, keepdims=True)),
        1 / (1 + np.exp(g)),
    )
    for kind, width in (("", D),) if tiny else (("", D), (" narrow", 20), (" wide", 128)):
        cut = lambda a, width=width: a[..., :width] if width <= D else np.concatenate([a, a], -1) * 0.7
        wide = [cut(one) for one in (r, log_w, k, kappa, a)]
        six, seven = [*wide[:3], v, cut(draw(H, D))], [*wide[:2], wide[2] * width**-0.5, v, *wide[3:]]
        handed = state if width == D else None
        yield "wkv6", f"wkv6{kind}", recurrence(wkv6), [*six, handed, runs], {"chunk": 16}, PRODUCT
        yield "wkv7", f"wkv7{kind}", recurrence(wkv7), [*seven, handed, runs], {"chunk": 16}, PRODUCT
    modes = np.concatenate([0.6 * draw(2, C, N), draw(2, C, N, seed=1)]) * N**-0.5
    fixed_modes = lambda be, u, skip, state, runs, **given: recurrence(diagonal_scan)(
        be, u, be.place(modes), skip, state, runs, **given
    )[0]
    yield (
        "diagonal",
        "diagonal_scan",
        fixed_modes,
        [x, fixed, draw(B, C, 2 * N), runs],
        {"chunk": 16},
        PRODUCT,
    )
    b, c = (draw(B, T, N, seed=n) * N**-0.5 for n in range(2))
    for rule in ("euler", "zoh"):
        given = [x, y - 1, draw(C, N), b, c, fixed, draw(B, N, C), runs]
        yield (
            "selective",
            f"selective_scan {rule}",
            recurrence(selective_scan),
            given,
            {"discretisation": rule, "chunk": 16},
            PRODUCT,
        )


def products(tiny: bool) -> Iterator[Case]:
    """Products of matrices; their gradients are products with each side transposed. A bias or a residual
    is what cuBLAS adds to.
    """
    N, C, F = (5, 40, 24) if tiny else (1000, 1536, 640)
    x, w, b, rest = draw(N, C), draw(F, C, seed=1), draw(F, seed=2), draw(N, F, seed=3)
    yield "", "linear", lambda be, x, w: be.linear(x, w, None), [x, w], {}, PRODUCT
    yield "", "linear with a bias", field("linear"), [x, w, b], {}, PRODUCT
    yield "", "matmul", field("matmul"), [x, draw(C, F)], {}, PRODUCT
    yield "", "matmul of batches", field("matmul"), [draw(2, 3, N, 64), draw(2, 3, 64, N // 3)], {}, PRODUCT
    yield (
        "",
        "matmul of batches with one",
        field("matmul"),
        [draw(2, 3, N, 64), draw(64, N // 3)],
        {},
        PRODUCT,
    )
    yield "", "gelu and linear", field("activated_linear"), [x, None, w, b, rest], {}, PRODUCT
    yield (
        "",
        "swiglu and linear",
        field("activated_linear"),
        [x, draw(N, C, seed=4), w, None, rest],
        {},
        PRODUCT,
    )


def large(tiny: bool, scan: tuple[int, ...]) -> Iterator[Case]:
    """Of each kernel file sizes that keep a device busy for longer than it takes to launch a kernel."""
    yield from rows(tiny, (16384, 1024, 32, 2048))
    some = [*attended(2, 4, 2, 9, 32)] if tiny else [*attended(1, 16, 16, 2048, 64)]
    yield from (some[0], some[-1], retained(1, 2, 9, 32) if tiny else retained(2, 16, 2048, 64))
    yield from recurrences(tiny, scan)
