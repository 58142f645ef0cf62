"""One call each: rotate, bias, attention, vjp give what the loops give, with right gradients, and refuse
in words what cannot be.
"""

import re
from dataclasses import replace
from inspect import signature

import numpy as np
import pytest
from check import frozen, gradient, same
from generated import config, subject
from loops import attention as attention_loop
from loops import rope as rope_loop
from loops import turn as turn_loop
from loops import witness

import peref
from peref import direct, hooks, member, model
from peref.config import Config
from peref.encodings import SHOWN, bind, claims_of, get, names, options
from peref.errors import Misuse
from peref.laws.loops import widths
from peref.ops.place import At

B, H, G, T, D, C = 2, 6, 2, 7, 4, 5
OUT_OF_ORDER = np.array([5, 0, 3, 3, 11, 2, 15])
ATTEND = ("", "rotate", "bias", "score", "attend")
ONE_LAYER = SHOWN | {"layer": 0, "layers": 1, "earlier": 0}


def filling(*hooks):
    return [name for name in names() if get(name).hook in hooks]


def qkvx(dtype=np.float64):
    """q, k, v and x, read-only."""
    rng = np.random.default_rng(0)
    shapes = (B, H, T, D), (B, G, T, D), (B, G, T, D), (B, T, C)
    return frozen([rng.standard_normal(shape) for shape in shapes], dtype)


def drawn(name, **facts):
    """Parameters of an encoding, away from where they start."""
    known = ONE_LAYER | {"H": H, "G": G, "D": D, "R": D, "C": C, "L": T} | facts
    rng = np.random.default_rng(1)
    p = direct.parameters(name, bind(get(name), known, {}), None, 0, np.dtype(np.float64))
    return frozen({n: a + 0.3 * rng.standard_normal(a.shape) for n, a in p.items()})


def lists(x):
    return {n: a.tolist() for n, a in x.items()} if isinstance(x, dict) else x.tolist()


def turned(x, angle, layout, gain=None):
    """The loop's rotation of x [B,H,T,D] by angle [T][R/2], or [heads][T][R/2] for as many in a row; the
    turned channels times gain, [T][R/2] or None.
    """
    each = angle if isinstance(angle[0][0], list) else [angle]
    y = np.array(
        [
            [
                [
                    turn_loop.turned(row, phi, layout)
                    for row, phi in zip(head, each[h * len(each) // len(heads)], strict=True)
                ]
                for h, head in enumerate(heads)
            ]
            for heads in x.tolist()
        ]
    )
    if gain is not None:
        y[..., : 2 * len(angle[0])] *= np.tile(gain, 2) if layout == "half" else np.repeat(gain, 2, -1)
    return y


def defined(name, R):
    """Whether the formula does not divide by zero at this width; test_encodings sees that it is refused
    where it does.
    """
    try:
        witness(name, "rotate", R=R, D=D, L=T)({}, [0], T)
    except ZeroDivisionError:
        return False
    return True


def turns(name):
    """Rotary widths of a head of D channels that the encoding takes, None for all."""
    return [None, 2] if 2 in widths(subject(name), {}) and defined(name, 2) else [None]


def each_row(name):
    """Positions [B,T], in the form that is none of B axes."""
    rows = np.stack([np.arange(T), OUT_OF_ORDER])
    return rows[None] if get(name).axes == B else rows


ROTATED = [(name, R) for name in filling("rotate") for R in turns(name)]


# ---------------------------------------------------------------- values


@pytest.mark.parametrize("layout", ["half", "interleaved"])
@pytest.mark.parametrize(("name", "R"), ROTATED)
def test_rotate_is_the_loop(name, R, layout):
    """Both layouts, all channels and some, from 0, at an offset, anywhere, each row somewhere else."""
    q, k, _, _ = qkvx()
    p = drawn(name, R=R or D)
    loop = lambda i: witness(name, "rotate", R=R or D, D=D, L=T)(lists(p), list(i), T)
    for positions in (None, range(5, 5 + T), OUT_OF_ORDER, OUT_OF_ORDER / 4):
        angle, gain_q, gain_k = loop(range(T) if positions is None else [float(i) for i in positions])
        got = peref.rotate(name, q, k, positions=positions, layout=layout, rotary_dim=R, params=p)
        same(got, (turned(q, angle, layout, gain_q), turned(k, angle, layout, gain_k)), 1e-14)
    rows = each_row(name)
    got_q, got_k = peref.rotate(name, q, k, positions=rows, layout=layout, rotary_dim=R, params=p)
    for b in range(B):
        angle, gain_q, gain_k = loop(rows.reshape(B, T)[b].tolist())
        want = [turned(q[b : b + 1], angle, layout, gain_q), turned(k[b : b + 1], angle, layout, gain_k)]
        same([got_q[b : b + 1], got_k[b : b + 1]], want, 1e-14)


@pytest.mark.parametrize("name", [n for n in filling("rotate") if get(n).axes not in (None, 1)])
def test_several_axes(name):
    """[A,B,T], and [A,1,T] for all sequences alike: q and k turn as in the loop, in attention too; the
    gradient is right.
    """
    q, k, v, _ = qkvx()
    A, rng, p = get(name).axes, np.random.default_rng(4), drawn(name)
    for i in (rng.integers(0, 30, (A, B, T)), rng.uniform(-3, 9, (A, 1, T))):
        full = np.broadcast_to(i, (A, B, T))
        got = peref.rotate(name, q, k, positions=i, params=p)
        o = peref.attention(name, q, k, v, positions=i, params=p)
        for b in range(B):
            angle, *_ = witness(name, "rotate", R=D, D=D, L=T)(lists(p), full[:, b].tolist(), T)
            want = [turned(a[b : b + 1], angle, "half") for a in (q, k)]
            same([a[b : b + 1] for a in got], want, 1e-14)
            same(
                o[b],
                np.array(attention_loop.attend(*(a[0].tolist() for a in want), v[b].tolist(), D**-0.5)),
                1e-13,
            )
        gradient(lambda q, k, v, i=i: peref.attention(name, q, k, v, positions=i, params=p), [q, k, v])


def test_options_go_by_name():
    """Another base is another rotation, the loop's of that base."""
    q, k, _, _ = qkvx()
    angle, _, _ = rope_loop.rotate({}, list(range(T)), T, D, 500.0)
    same(peref.rotate("rope", q, k, base=500)[0], turned(q, angle, "half"), 1e-14)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", filling("bias"))
def test_bias_is_the_loop(name, causal):
    """Every cell that is looked at has the bias of its distance, every other 0; from 0, at an offset,
    anywhere.
    """
    L = 20
    p = drawn(name, causal=causal, L=L) or None
    for positions in (None, np.arange(3, 3 + T), OUT_OF_ORDER):
        i = np.arange(T) if positions is None else positions
        where = {"tokens": T} if positions is None else {"positions": positions.tolist()}
        if causal and positions is OUT_OF_ORDER and "any_length" not in claims_of(get(name)):
            continue  # keys in the past that are at later positions have no entry in the table
        got = peref.bias(name, heads=H, causal=causal, L=L, params=p, **where)
        d, see = i[:, None] - i, np.tril(np.ones((T, T), bool)) | (not causal)
        of = witness(name, "bias", H=H, causal=causal, L=L)
        want = np.array(
            [
                of(lists(p or {}), [x])[h][0] if s else 0.0
                for h in range(H)
                for x, s in zip(d.flat, see.flat, strict=True)
            ]
        )
        same(got, want.reshape(H, T, T), 1e-14)


@pytest.mark.parametrize(("causal", "window"), [(True, None), (True, 3), (False, None), (False, 2)])
@pytest.mark.parametrize("name", filling("", "bias"))
def test_attention_with_a_bias_is_the_loop(name, causal, window):
    """None and functions of distance: the loop's bias in the loop's attention, with the encoding's own
    scale.
    """
    q, k, v, _ = qkvx()
    p = drawn(name, causal=causal)
    of = witness(name, "bias", H=H, causal=causal, L=T)
    first = 0 if causal else 1 - T
    table = of(lists(p), list(range(first, T)))
    bias = [[[table[h][max(t - s, first) - first] for s in range(T)] for t in range(T)] for h in range(H)]
    seg = np.array([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 2, 2, 2, 2]])
    for docs in (None, seg):
        got = peref.attention(name, q, k, v, causal=causal, window=window, seg=docs, params=p or None)
        want = [
            attention_loop.attend(
                *(a[b].tolist() for a in (q, k, v)),
                get(name).scale(D),
                bias,
                None,
                causal,
                window,
                None if docs is None else docs[b].tolist(),
            )
            for b in range(B)
        ]
        same(got, np.array(want), 1e-13)


@pytest.mark.parametrize("where", ["in order", "out of order", "each row elsewhere"])
@pytest.mark.parametrize("name", filling("rotate"))
def test_attention_with_a_rotation_is_the_loop(name, where):
    """q and k turned by the loop, then the loop's attention; some channels, either layout, to both sides
    too.
    """
    q, k, v, _ = qkvx()
    positions = {"in order": None, "out of order": OUT_OF_ORDER, "each row elsewhere": each_row(name)}[where]
    for layout, R in (("half", turns(name)[-1] or 4), ("half", 4), ("interleaved", 4)):
        ways = (True, False) if "two_sided" in claims_of(get(name)) else (True,)
        p = drawn(name, R=R)
        got = [
            peref.attention(
                name, q, k, v, positions=positions, layout=layout, rotary_dim=R, causal=causal, params=p
            )
            for causal in ways
        ]
        i = np.broadcast_to(np.arange(T) if positions is None else positions.reshape(-1, T), (B, T)).tolist()
        for b in range(B):
            angle, *gains = witness(name, "rotate", R=R, D=D, L=T)(lists(p), i[b], T)
            q_b, k_b = (
                turned(a[b : b + 1], angle, layout, gain)[0].tolist()
                for a, gain in zip((q, k), gains, strict=True)
            )
            for o, causal in zip(got, ways, strict=True):
                same(
                    o[b],
                    np.array(attention_loop.attend(q_b, k_b, v[b].tolist(), D**-0.5, causal=causal)),
                    1e-13,
                )


@pytest.mark.parametrize("name", filling("score"))
def test_attention_with_scores_is_the_loop(name):
    """What the loop adds to the logits, in the loop's attention; computed of x."""
    q, k, v, x = qkvx()
    p = drawn(name)
    got = peref.attention(name, q, k, v, x=x, params=p or None)
    of = witness(name, "score", H=H, G=G, D=D, C=C, L=T, causal=True)
    for b in range(B):
        parts = [a[b].tolist() for a in (q, k, v, x)]
        term = of(lists(p), parts[0], parts[1], parts[3], list(range(T)))
        same(got[b], np.array(attention_loop.attend(*parts[:3], get(name).scale(D), term)), 1e-13)


@pytest.mark.parametrize("name", filling("attend"))
def test_attention_that_is_no_sum_is_the_loop(name):
    """The whole of it from q, k, v and, where the encoding wants it, x."""
    q, k, v, x = qkvx()
    p = drawn(name)
    got = peref.attention(name, q, k, v, x=x, params=p or None)
    of = witness(name, "attend", H=H, G=G, D=D, R=D, C=C, L=T, causal=True)
    want = [of(lists(p), *(a[b].tolist() for a in (q, k, v, x)), list(range(T))) for b in range(B)]
    same(got, np.array(want), 1e-12)


@pytest.mark.parametrize("name", filling(*ATTEND))
def test_grouped_heads_are_repeated_heads(name):
    """Two key-value heads under six queries are six repeated ones, where no parameter belongs to a
    key-value head.
    """
    q, k, v, x = qkvx()
    many = drawn(name, G=H)
    if {n: a.shape for n, a in many.items()} == {n: a.shape for n, a in drawn(name).items()}:
        full = peref.attention(name, q, *(np.repeat(a, H // G, 1) for a in (k, v)), x=x, params=many or None)
        same(peref.attention(name, q, k, v, x=x, params=many or None), full, 1e-13)
    else:  # each head's rows must be repeated too
        few = drawn(name)
        spread = {}
        for n, a in few.items():
            rows = a.reshape(G, -1, *a.shape[1:]) if a.shape[0] != many[n].shape[0] else None
            spread[n] = a if rows is None else np.repeat(rows, H // G, 0).reshape(many[n].shape)
        full = peref.attention(name, q, *(np.repeat(a, H // G, 1) for a in (k, v)), x=x, params=spread)
        same(peref.attention(name, q, k, v, x=x, params=few), full, 1e-13)


def test_parameters_are_drawn_from_the_seed_unless_given():
    """The same seed draws the same, those of a model's first layer; another seed others; given ones count."""
    drawn_twice = [peref.bias("t5", heads=H, tokens=T, seed=3) for _ in range(2)]
    same(drawn_twice[0], drawn_twice[1], 0)
    assert abs(peref.bias("t5", heads=H, tokens=T, seed=4) - drawn_twice[0]).max() > 0
    cfg = peref.model.Config(pe=(("t5", {}),), H=H, C=H)
    table = peref.model.init(cfg, 3, np.float64)["pe.0.table"]
    same(peref.bias("t5", heads=H, tokens=T, params={"table": table}), drawn_twice[0], 0)


# ---------------------------------------------------------------- gradients


def pulled(function, *arguments, results=1, **settings):
    """The gradients of vjp for random cotangents, and those cotangents."""
    y, pull = peref.vjp(function, *arguments, **settings)
    rng = np.random.default_rng(2)
    dy = [frozen(rng.standard_normal(a.shape)) for a in (y if results > 1 else (y,))]
    return y, dy, pull(*dy), pull


@pytest.mark.parametrize("name", filling(*ATTEND))
def test_gradient_of_attention(name):
    """Of q, k, v, x and every parameter, against central differences with a random cotangent; the value is
    that of the plain call.
    """
    q, k, v, x = qkvx()
    p = drawn(name)
    order = list(p)

    def function(q, k, v, x, *params):
        return peref.attention(
            name,
            q,
            k,
            v,
            x=x,
            params=dict(zip(order, params, strict=True)) or None,
            positions=OUT_OF_ORDER % T,
        )

    features, at = bool(config(name).encoding(0).features), {"positions": OUT_OF_ORDER % T}
    if name in filling("bias") and "any_length" not in claims_of(get(name)):
        at = {}
        function = lambda q, k, v, x, *params: peref.attention(
            name, q, k, v, x=x, params=dict(zip(order, params, strict=True))
        )
    arrays = [q, k, v, x, *p.values()]
    gradient(function, arrays, wrt=[n for n in range(len(arrays)) if features or n != 3])
    y, (do,), (dq, dk, dv, dx, dp), _ = pulled(peref.attention, name, q, k, v, x=x, params=p, **at)
    same(y, function(*arrays), 0)
    assert abs(dx).max() > 0 or not features
    slopes = (
        {"q": (q, dq), "k": (k, dk), "v": (v, dv)}
        | ({"x": (x, dx)} if features else {})
        | {n: (p[n], dp[n]) for n in p}
    )
    rng = np.random.default_rng(3)
    for n, (a, da) in slopes.items():
        t, h = rng.standard_normal(a.shape), 1e-5
        sides = []
        for step in (h, -h):
            moved = {"q": q, "k": k, "v": v, "x": x, **p} | {n: a + step * t}
            params = {m: moved[m] for m in p}
            sides.append(
                peref.attention(name, moved["q"], moved["k"], moved["v"], x=moved["x"], params=params, **at)
            )
        numeric = float(np.vdot(do, sides[0] - sides[1])) / (2 * h)
        assert abs(float(np.vdot(da, t)) - numeric) <= 1e-7 * np.linalg.norm(da), n


@pytest.mark.parametrize("where", ["in order", "out of order", "each row elsewhere"])
@pytest.mark.parametrize("name", filling("rotate"))
def test_gradient_of_rotate(name, where):
    """q and k turn apart: each takes its own cotangent, and both may be pulled at once. Turning is linear, so
    what each number gives by itself is the derivative.
    """
    q, k, _, _ = qkvx()
    positions, R = (
        {"in order": None, "out of order": OUT_OF_ORDER, "each row elsewhere": each_row(name)}[where],
        turns(name)[-1],
    )
    for one in (0, 1):
        gradient(
            lambda q, k, one=one: peref.rotate(
                name, q, k, positions=positions, layout="interleaved", rotary_dim=R
            )[one],
            [q, k],
            wrt=[one],
        )
    _, (dq, dk), got, _ = pulled(peref.rotate, name, q, k, positions=positions, results=2)
    turned = lambda x, n: peref.rotate(name, *((q, x) if n else (x, k)), positions=positions)[n]
    units = lambda a: np.eye(a.size).reshape(-1, *a.shape)
    back = lambda da, n: np.reshape([np.vdot(da, turned(x, n)) for x in units(da)], da.shape)
    same(got, (back(dq, 0), back(dk, 1)), 1e-12)


def gradient_of(function, a, dy, h=1e-5):
    """Central differences, element by element; exact but for rounding where the function is linear."""
    g = np.zeros(a.shape)
    for n in range(a.size):
        t = np.zeros(a.shape)
        t.flat[n] = h
        g.flat[n] = np.vdot(dy, function(a + t) - function(a - t)) / (2 * h)
    return g


@pytest.mark.parametrize("name", [n for n in filling("bias") if drawn(n)])
def test_gradient_of_bias(name):
    """Of every parameter; a cell that is not looked at gives none."""
    p = drawn(name)
    gradient(
        lambda *a: peref.bias(name, heads=H, tokens=T, params=dict(zip(p, a, strict=True))), list(p.values())
    )
    _, (db,), (dp,), pull = pulled(peref.bias, name, heads=H, tokens=T, params=p)
    for n, a in p.items():
        same(
            dp[n],
            gradient_of(lambda a, n=n: peref.bias(name, heads=H, tokens=T, params=p | {n: a}), a, db),
            1e-7,
        )
    above = np.triu(np.ones((T, T)), 1)[None]
    same(pull(db * (1 + above))[0], dp, 0)


def test_pull_can_be_called_again():
    """The same cotangent gives the same bits, twice of it twice the gradient."""
    q, k, v, _ = qkvx()
    _, (do,), first, pull = pulled(peref.attention, "rope", q, k, v)
    same(pull(do), first, 0)
    same(pull(2 * do), tuple(2 * g for g in first), 1e-15)


def test_pull_always_gives_a_tuple():
    """One gradient for each real array in order, then x, then params; whole numbers and names have none."""
    q, k, v, x = qkvx()
    table = drawn("t5")["table"]
    assert [type(g) for g in peref.vjp(peref.attention, "path", q, k, v, x=x)[1](q)] == [np.ndarray] * 4
    assert [type(g) for g in peref.vjp(peref.attention, "t5", q, k, v, params={"table": table})[1](q)] == [
        np.ndarray
    ] * 3 + [dict]
    (dp,) = peref.vjp(peref.bias, "t5", heads=H, tokens=T, params={"table": table})[1](np.ones((H, T, T)))
    assert dp["table"].shape == table.shape


# ---------------------------------------------------------------- dtype


@pytest.mark.parametrize("name", filling(*ATTEND))
def test_float32_stays_float32(name):
    """In values and gradients, with parameters drawn and given, and close to float64."""
    wide, narrow = qkvx(), qkvx(np.float32)
    p = drawn(name)
    for params in (None, frozen(p, np.float32)):
        q, k, v, x = narrow
        o, pull = peref.vjp(peref.attention, name, q, k, v, x=x, params=params)
        flat = [g for part in pull(o) for g in (part.values() if isinstance(part, dict) else [part])]
        assert {a.dtype for a in (o, *flat)} == {np.dtype(np.float32)}
        if params is not None:
            q, k, v, x = wide
            same(o, peref.attention(name, q, k, v, x=x, params=p).astype(np.float32), 1e-5)


def test_float32_in_rotate_and_bias():
    """What goes in decides; a bias without parameters is float64."""
    q, k, _, _ = qkvx(np.float32)
    assert {a.dtype for a in peref.rotate("rope", q, k)} == {np.dtype(np.float32)}
    assert peref.bias("alibi", heads=H, tokens=T).dtype == np.float64
    assert peref.bias("t5", heads=H, tokens=T, params=frozen(drawn("t5"), np.float32)).dtype == np.float32


# ---------------------------------------------------------------- refusals

q, k, v, x = qkvx()
narrow = q.astype(np.float32)
table = np.zeros((32, H))
pull = peref.vjp(peref.rotate, "rope", q, k)[1]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: peref.rotate("rop", q, k), "unknown encoding 'rop'; did you mean 'rope'?"),
        (lambda: peref.rotate("alibi", q, k), "alibi fills bias and cannot do this; those that can: "),
        (
            lambda: peref.attention("sinusoidal", q, k, v),
            "sinusoidal fills embed and cannot do this; those that can: none, ",
        ),
        (lambda: peref.attention("retnet", q, k, v), "retnet fills mix and cannot do this"),
        (
            lambda: peref.bias("none", heads=H, tokens=T),
            "none fills no hook and cannot do this; those that can: alibi, ",
        ),
        (
            lambda: peref.rotate("rope", q, k, bass=2.0),
            "encoding 'rope' has no option 'bass'; did you mean 'base'?",
        ),
        (lambda: peref.rotate("rope", q, k, base="ten"), "option base is 'ten'; expected float"),
        (
            lambda: peref.rotate("rope", q.tolist(), k),
            "q is a builtins.list; expected a NumPy array, float32 or float64",
        ),
        (
            lambda: peref.rotate("rope", q, k.astype(np.float16)),
            "k is float16; expected a NumPy array, float32 or float64",
        ),
        (
            lambda: peref.rotate("rope", narrow, k),
            "k is float64 beside others of float32; give all of them one dtype",
        ),
        (
            lambda: peref.attention("path", q, k, v, x=x.astype(np.float32)),
            "x is float32 beside others of float64",
        ),
        (
            lambda: peref.attention("t5", q, k, v, params={"table": table.astype("f")}),
            "params['table'] is float32 beside others of float64",
        ),
        (
            lambda: peref.rotate("rope", q, k[:, :, 1:]),
            "q [2, 6, 7, 4], k [2, 2, 6, 4] do not fit; expected q [B,H,T,D] and k [B,G,S,D], H a mul",
        ),
        (lambda: peref.rotate("rope", q[0], k[0]), "q [6, 7, 4], k [2, 7, 4] do not fit"),
        (
            lambda: peref.attention("none", q[:, :5], k, v),
            "q [2, 5, 7, 4], k [2, 2, 7, 4], v [2, 2, 7, 4] do not fit",
        ),
        (
            lambda: peref.attention("none", q, k, v[:, :1]),
            "v [2, 1, 7, 4] do not fit; expected q [B,H,T,D] and k, v [B,G,S,D]",
        ),
        (lambda: peref.rotate("rope", q[:, :0], k), "q [2, 0, 7, 4], k [2, 2, 7, 4] do not fit"),
        (
            lambda: peref.rotate("rope", q, k, layout="neox"),
            "layout is 'neox'; expected one of: half, interleaved",
        ),
        (
            lambda: peref.rotate("rope", q, k, rotary_dim=3),
            "rotary width is 3; expected an even number from 2 to the head width 4",
        ),
        (
            lambda: peref.attention("alibi", q, k, v, layout="pairs"),
            "layout is 'pairs'; expected one of: half, interleaved",
        ),
        (
            lambda: peref.attention("alibi", q, k, v, rotary_dim=64),
            "rotary width is 64, but alibi turns nothing; leave it unset",
        ),
        (
            lambda: peref.attention("alibi", q, k, v, rotary_dim=2),
            "rotary width is 2, but alibi turns nothing; leave it unset",
        ),
        (
            lambda: peref.rotate("rope", q, k, positions=range(5)),
            "positions are int64[5]; expected numbers [7] or [2, 7], one for each token",
        ),
        (
            lambda: peref.rotate("rope", q, k, positions=np.zeros((3, T))),
            "positions are float64[3, 7]; expected numbers [7] or [2, 7]",
        ),
        (lambda: peref.rotate("rope", q, k, positions=[True] * T), "positions are bool[7]; expected numbers"),
        (
            lambda: peref.rotate("rope", q, k, positions=np.zeros((3, 2, T))),
            "one for each token; rope cannot tell 3 axes apart",
        ),
        (
            lambda: peref.attention("alibi", q, k, v, positions=np.zeros((3, 2, T))),
            "one for each token; alibi cannot tell 3 axes apart",
        ),
        (
            lambda: peref.rotate("mrope", q, k, positions=np.zeros((2, 1, T))),
            "or [3, 2, 7], one for each token; mrope cannot tell 2 axes apart",
        ),
        (
            lambda: peref.rotate("mrope", q, k, positions=np.zeros((3, 2, T - 1))),
            "float64[3, 2, 6]; expected numbers [7] or [2, 7] or [3, 2, 7]",
        ),
        (
            lambda: peref.rotate("axial", q, k, positions=np.zeros((2, T))),
            "[2, 7], of 2 sequences or of 2 axes; give [1, 2, 7] or [2, 1, 7]",
        ),
        (
            lambda: peref.rotate("axial", q, k, rotary_dim=2),
            "axial: rotary width is 2; expected a multiple of 4",
        ),
        (
            lambda: peref.rotate("mrope", q, k, sections=(1, 2, 3)),
            "mrope: sections are 1,2,3; expected three numbers",
        ),
        (
            lambda: peref.rotate("xpos", q, k, positions=[0, 300000, 0, 0, 0, 0, 0]),
            "xpos: positions 0 to 300000 were asked for; in float64",
        ),
        (
            lambda: peref.attention("xpos", narrow, narrow, narrow, positions=range(30000, 30007)),
            "xpos: positions 30000 to 30006 were asked for; in float32",
        ),
        (
            lambda: peref.attention("xpos", q, k, v, causal=False),
            "xpos reads only the past; causal=False is not for it",
        ),
        (lambda: peref.rotate("rope", q, k, positions=[np.nan] * T), "positions must be finite numbers"),
        (lambda: peref.rotate("rope", q, k, L=0), "L is 0; expected a whole number, at least 1"),
        (
            lambda: peref.attention("none", q, k, v, seg=np.ones((1, T), int)),
            "seg is [1, 7]; expected [2, 7], one number for each token",
        ),
        (lambda: peref.attention("none", q, k, v, window=0), "window is 0; expected at least 1"),
        (
            lambda: peref.attention("path", q, k, v, x=x, causal=False),
            "path reads only the past; causal=False is not for it",
        ),
        (
            lambda: peref.attention("path", q, k, v),
            "path computes something of the layer's input; give x [B,S,C]",
        ),
        (
            lambda: peref.attention("path", q, k, v, x=x[:1]),
            "x is [1, 7, 5]; expected [2, 7, C], the layer's input",
        ),
        (lambda: peref.bias("alibi", heads=H), "give either tokens or positions"),
        (
            lambda: peref.bias("alibi", heads=H, tokens=T, positions=range(T)),
            "give either tokens or positions",
        ),
        (
            lambda: peref.bias("alibi", heads=H, positions=[]),
            "the number of tokens is 0; expected a whole number, at least 1",
        ),
        (lambda: peref.bias("alibi", heads=0, tokens=T), "heads is 0; expected a whole number, at least 1"),
        (
            lambda: peref.bias("alibi", heads=H, positions=np.zeros((2, 3))),
            "positions are [2, 3]; expected [T], one number for each token of one sequence, such as",
        ),
        (lambda: peref.bias("t5", heads=H, positions=[0.0, 0.5]), "t5: positions must be whole numbers"),
        (lambda: peref.bias("learned_bias", heads=H, tokens=T, L=5), "the table has 0 to 4 and ends there"),
        (
            lambda: peref.bias("t5", heads=H, tokens=T, params={"tabel": table}),
            (
                "parameters given to t5: tabel [32, 6]; expected: table [32, 6]; options and L decide their "
                "shapes"
            ),
        ),
        (
            lambda: peref.rotate("rope", q, k, params={"w": q}),
            "parameters given to rope: w [2, 6, 7, 4]; expected: none",
        ),
        (lambda: peref.vjp(peref.bias, "alibi", heads=H, tokens=T), "nothing to differentiate"),
        (
            lambda: pull(q),
            (
                "pull was given float64[2, 6, 7, 4]; expected float64[2, 6, 7, 4], float64[2, 2, 7, 4], "
                "like the result"
            ),
        ),
        (lambda: pull(), "pull was given nothing; expected"),
        (
            lambda: pull(q.tolist(), k),
            "pull was given list[2, 6, 7, 4], float64[2, 2, 7, 4]; expected float64[2, 6, 7, 4]",
        ),
    ],
)
def test_refused_in_words(call, words):
    """What was given, what was expected, what to do."""
    with pytest.raises(Misuse, match=re.escape(words)):
        call()


def test_a_window_that_is_not_claimed_is_refused(monkeypatch):
    """Every encoding that attends claims it today; one that does not is not asked."""
    monkeypatch.setattr(member, "get", lambda name: replace(get(name), claims=frozenset()))
    with pytest.raises(Misuse, match="alibi has no attention that a window could limit"):
        peref.attention("alibi", q, k, v, window=3)


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint32, np.int32, np.uint64, np.float16, np.float32])
def test_positions_of_any_kind_of_number(dtype):
    """Distances are those of the numbers: they neither wrap round nor round."""
    i = np.array([120, 0, 97, 3], dtype) if dtype != np.int8 else np.array([120, -100, 97, 3], dtype)
    wide = i.astype(float) if i.dtype.kind == "f" else i.astype(int)
    for causal in (True, False):
        same(
            peref.bias("alibi", heads=2, positions=i, causal=causal),
            peref.bias("alibi", heads=2, positions=wide, causal=causal),
            0,
        )
    q, k, v, _ = qkvx()
    i, wide = np.resize(i, T), np.resize(wide, T)
    for name in ("rope", "alibi", "axial"):
        same(
            peref.attention(name, q, k, v, positions=i, causal=False),
            peref.attention(name, q, k, v, positions=wide, causal=False),
            0,
        )


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("function", [peref.rotate, peref.bias, peref.attention])
def test_no_option_has_the_name_of_an_argument(function):
    """Else it could not be given: peref.bias(name, heads=12, ...) has its own heads."""
    hooks = {
        "rotate": ("rotate",),
        "bias": ("bias",),
        "attention": ("", "rotate", "bias", "score", "attend"),
    }[function.__name__]
    for name in names():
        if get(name).hook in hooks:
            assert not set(signature(function).parameters) & set(options(get(name))), name


def test_every_option_of_alibi_by_name():
    """Half of the heads sees the past, the rest the future."""
    got = peref.bias("alibi", heads=4, tokens=3, causal=False, directions="halves")
    future = np.triu(np.ones((3, 3), bool), 1)
    same(np.isneginf(got), np.stack([future, future, future.T, future.T]), 0)


# ---------------------------------------------------------------- settings of a layer, and fewer queries


HEATED = {"temperature": "ssmax", "cosine": True, "softcap": 1.5, "sinks": True, "chunk": 4, "scale": 0.75}


def test_settings_of_a_layer_are_those_of_a_model():
    """All at once, two encodings in one layer, learned numbers among the parameters: the heads of a model's
    layer, and their gradients.
    """
    q, k, v, _ = qkvx()
    learned = {"sinks": (-1, 1), "temperature": (0.5, 1), "cosine": (-2, 1)}
    p = frozen({n: np.linspace(*ends, H) for n, ends in learned.items()})
    given = HEATED | {"rope.base": 100.0}
    cycle = (("rope+alibi", given),)
    cfg = Config(pe=cycle, H=H, G=G, D=D, C=C, L=T, layers=1, window=3)
    layer, at = cfg.layer(0), At.of(T, window=3)
    want = hooks.attend_heads(
        model.PLAIN, layer.pe, p, q, k, v, None, layer.place(at), **layer.of_heads(p, layer.factor(at.i))
    )[0]
    same(peref.attention("alibi+rope", q, k, v, window=3, L=T, params=p, **given), want, 0)
    gradient(
        lambda q, k, v, *own: peref.attention(
            "rope+alibi", q, k, v, window=3, L=T, params=dict(zip(p, own, strict=True)), **given
        ),
        [q, k, v, *p.values()],
    )


@pytest.mark.parametrize(
    "name", ["none", "rope", "xpos", "dynamic_ntk", "alibi", "t5", "fire", "rope+t5", "shaw"]
)
@pytest.mark.parametrize("given", [{}, {"window": 3}, {"chunk": 4}, {"window": 2, "global_tokens": 1}])
def test_fewer_queries_than_keys_are_the_last(name, given):
    """Their rows of the whole, at any positions; the gradient reaches every key."""
    q, k, v, _ = qkvx()
    gains = [{"cosine": True}] if name == "xpos" else []  # behind which a vector has another length
    for more in ({}, {"positions": np.array([0, 2, 3, 5, 6, 9, 11])}, *gains):
        whole = peref.attention(name, q, k, v, n=T, **given, **more)
        for few in (1, 3):
            last = q[:, :, T - few :]
            same(peref.attention(name, last, k, v, n=T, **given, **more), whole[:, :, T - few :], 1e-13)
    if name == "rope+t5":
        last = q[:, :, -1:]
        gradient(lambda q, k, v: peref.attention(name, q, k, v, **given), [last, k, v])


@pytest.mark.parametrize("name", ["rope", "xpos"])
def test_keys_turn_where_they_are_also_by_tables_that_were_made(name):
    """Those of the place of fewer queries, which say nothing of keys that stand before them."""
    q, k, v, _ = qkvx()
    pe, at = Config(pe=((name, {}),), H=H, G=G, D=D, C=C, L=T, layers=1).layer(0).pe, At.of(T)
    at = direct.of_last(at, 3)
    made = (*hooks.place_tables(model.PLAIN, pe, {}, at), None)
    for given in (made, None):
        o, _ = hooks.attend_heads(
            model.PLAIN, pe, {}, q[:, :, -3:], k, v, None, at, layout="half", made=given
        )
        same(o, peref.attention(name, q, k, v, L=T)[:, :, -3:], 1e-13)


@pytest.mark.parametrize("name", [name for name in names() if get(name).features])
def test_one_query_of_what_reads_every_token(name):
    """Gates and maps are of all keys, so x is too; the gradient goes to it by way of them."""
    q, k, v, x = qkvx()
    whole, last = peref.attention(name, q, k, v, x=x), q[:, :, -2:]
    same(peref.attention(name, last, k, v, x=x), whole[:, :, -2:], 1e-13)
    read = bool(np.ptp(peref.attention(name, last, k, v, x=-x) - whole[:, :, -2:]))  # with these options
    gradient(
        lambda q, k, v, x: peref.attention(name, q, k, v, x=x), [last, k, v, x], wrt=[0, 1, 2, 3][: 3 + read]
    )
    with pytest.raises(Misuse, match=r"x is \[\d, 2, \d+\]; expected \[\d, 7, C\], the layer's input"):
        peref.attention(name, last, k, v, x=x[:, -2:])


def test_one_query_is_turned_at_the_last_place():
    q, k, _, _ = qkvx()
    for name in ("rope", "xpos", "yarn"):
        whole = peref.rotate(name, q, k)
        one = peref.rotate(name, q[:, :, -1:], k)
        same(one, (whole[0][:, :, -1:], whole[1]), 0)


def test_probabilities_are_the_weights_of_attention():
    """With a sink a row adds up to less than 1."""
    q, k, v, x = qkvx()
    for name, given in (
        ("rope+alibi", {"softcap": 2.0}),
        ("forgetting", {"x": x}),
        ("t5", {"causal": False}),
    ):
        p = peref.probabilities(name, q, k, **given)
        same(p.sum(-1), np.ones(p.shape[:3]), 1e-12)
        same(p @ np.repeat(v, H // G, 1), peref.attention(name, q, k, v, **given), 1e-12)
    rows = peref.probabilities("none", q, k, sinks=True).sum(-1)
    assert rows.max() < 1
    with pytest.raises(Misuse, match="shaw fills attend and cannot do this"):
        peref.probabilities("shaw", q, k)


def test_the_other_hooks_are_those_of_a_model():
    """embed, score and mix, against the functions that a model calls; derivatives by vjp."""
    q, k, _, x = qkvx()
    rows = peref.embed("sinusoidal", width=C, positions=[2, 1, 4])
    same(rows, hooks.position_rows(bound_alone("sinusoidal"), {}, np.array([2, 1, 4])), 0)
    assert peref.embed("learned", width=6, tokens=3).shape == (3, 6)
    see = np.tri(T, dtype=bool)
    term = peref.score("cope", q, k)
    assert term.shape == (B, H, T, T)
    assert not term[:, :, ~see].any()
    gates = peref.score("forgetting", q, k, x=x)
    assert (gates[:, :, see] <= 0).all()
    y = peref.mix("retnet", x, heads=2, head_width=D)
    cfg = Config(pe=(("retnet", {}),), H=2, D=D, C=C, L=T, layers=1)
    p = model.of_encoding(cfg, model.init(cfg, 0, np.float64), 0)
    same(
        peref.mix("retnet", x, heads=2, head_width=D, params=p),
        hooks.mixed(model.PLAIN, cfg.encoding(0), p, x, At.of(T))[0],
        0,
    )
    assert y.shape == x.shape
    gradient(lambda x: peref.mix("retnet", x, heads=2, head_width=D, params=p), [x])
    gradient(lambda q, k: peref.score("cope", q, k), [q, k])


def bound_alone(name):
    return bind(get(name), ONE_LAYER | {"H": 1, "C": C, "L": 3}, {})


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda q, k, v: peref.attention("forgetting", q[:, :, 1:], k, v), "give x"),
        (lambda q, k, v: peref.attention("rope+pi", q, k, v), "rope and pi both fill rotate"),
        (lambda q, k, v: peref.attention("rope+mamba", q, k, v), "stands in place of attention"),
        (lambda q, k, v: peref.attention("none", q, k, v, softcap=0), "softcap is 0"),
        (lambda q, k, v: peref.attention("none", q, k, v, global_tokens=1), "neither a window nor a chunk"),
        (lambda q, k, v: peref.attention("none", q, k, v, sinks=True, params={}), "expected: sinks [6]"),
        (lambda q, k, v: peref.attention("none", q, k, v, experts=4), "experts is 4, but this is attention"),
        (
            lambda q, k, v: peref.attention("rope", q, k, v, temperature="logn", positions=range(-1, T - 1)),
            "positions begin at -1; a temperature wants them to be at least 0",
        ),
        (lambda q, k, v: peref.score("rope", q, k), "rope fills rotate and cannot do this"),
        (lambda q, k, v: peref.embed("rope", width=4, tokens=3), "rope fills rotate and cannot do this"),
        (lambda q, k, v: peref.embed("sinusoidal", width=6, tokens=2.5), "the number of tokens is 2.5"),
        (lambda q, k, v: peref.embed("sinusoidal", width=0, tokens=2), "width is 0; expected a whole number"),
        (lambda q, k, v: peref.bias("alibi", heads=2.5, tokens=2), "heads is 2.5; expected a whole number"),
        (lambda q, k, v: peref.bias("alibi", heads=2, positions=3), "positions are []; expected [T]"),
        (lambda q, k, v: peref.mix("mamba", v[:, 0], heads=2.0), "heads is 2.0; expected a whole number"),
        (lambda q, k, v: peref.mix("mamba", v[:, 0], heads=1, head_width=0), "head_width is 0; expected a"),
        (lambda q, k, v: peref.mix("alibi", v[:, 0], heads=1), "alibi fills bias and cannot do this"),
        (lambda q, k, v: peref.mix("retnet", v[:, 0], heads=3), "width 4 does not divide by 3 heads"),
        (lambda q, k, v: peref.mix("retnet", v, heads=1), "x is [2, 2, 7, 4]; expected [B, T, C]"),
        (lambda q, k, v: peref.bias("alibi", heads=2, positions=[[2, 1, 4]]), "such as positions=[2, 1, 4]"),
        (lambda q, k, v: peref.bias("t5", heads=2, tokens=3, params=3), "params is 3; expected a dict"),
        (lambda q, k, v: peref.rotate("rope", q, k, params="x"), "params is 'x'; expected a dict"),
        (lambda q, k, v: peref.mix("retnet", v[:, 0], heads=1, state=3), "state is 3; expected a dict"),
        (lambda q, k, v: peref.bias("t5", heads=2, tokens=3, seed=None), "seed None is out of range"),
        (lambda q, k, v: peref.bias("t5", heads=2, tokens=3, seed=1.5), "seed 1.5 is out of range"),
        (lambda q, k, v: peref.bias("t5", heads=True, tokens=3), "heads is True; expected a whole number"),
        (lambda q, k, v: peref.rotate("rope", q, k, rotary_dim="4"), "rotary width is '4'; expected an even"),
        (lambda q, k, v: peref.attention("none", q, k, v, window="3"), "window is '3'; expected int or none"),
        (
            lambda q, k, v: peref.attention("none", q, k, v, seg=np.full((2, T), "a")),
            "seg is of <U1; expected whole numbers",
        ),
        (lambda q, k, v: peref.attention(None, q, k, v), "the name of an encoding is None"),
        (lambda q, k, v: peref.bias(3, heads=2, tokens=3), "the name of an encoding is 3"),
    ],
)
def test_what_these_calls_refuse(call, words):
    with pytest.raises(Misuse, match=re.escape(words)):
        call(*qkvx()[:3])


def test_sizes_may_be_numpys_and_larger_than_the_text():
    """A whole number of NumPy's is one; a window or a chunk of more tokens than there are hides nothing."""
    q, k, v, _ = qkvx()
    same(
        peref.bias("alibi", heads=np.int64(4), tokens=np.int64(3)), peref.bias("alibi", heads=4, tokens=3), 0
    )
    whole = peref.attention("rope", q, k, v)
    seg = np.ones((len(q), T), int)
    same(peref.attention("rope", q, k, v, window=2**53, causal=np.True_, seg=seg), whole, 0)
    same(peref.attention("rope", q, k, v, chunk=2**70), whole, 0)


@pytest.mark.parametrize("name", [name for name in names() if get(name).score])
def test_score_of_the_last_queries(name):
    """Fewer queries than keys are the last tokens; more have nothing that they could be."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 4, 5, 6)), rng.standard_normal((2, 2, 5, 6))
    x = rng.standard_normal((2, 5, 24))
    whole = peref.score(name, q, k, x=x)
    assert whole.shape == (2, 4, 5, 5)
    same(peref.score(name, q[:, :, 3:], k, x=x), whole[:, :, 3:], 1e-12)
    with pytest.raises(Misuse, match="the queries are the last tokens"):
        peref.score(name, q, k[:, :, 1:], x=x)
