"""Laws of every encoding, whatever it claims. A checker takes a Subject and raises Differs with what broke.

Not here: laws that an encoding claims or not (claimed), the scalar loop (loops).
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from peref import encodings, hooks, model
from peref.compare import Differs, same
from peref.laws import small
from peref.laws.gradient import frozen, gradient, is_real
from peref.laws.small import EXACT, SEGMENTS, Given, Small, Subject, broken, tokens
from peref.member import encodings_of
from peref.ops.place import At
from peref.tape import Op, Tape, Var

PIECES = [(1,), (8,), (3, 4), tuple(range(1, 9))]  # where 9 tokens are cut

# ---------------------------------------------------------------- gradients


def gradients(s: Subject) -> None:
    """The gradient of every parameter agrees with central differences to 1e-7."""
    of_parameters(s, s.model(), 0)


def gradients_later(s: Subject) -> None:
    """They also agree where the first tokens are already in a cache, of what an encoding reaches."""
    of_parameters(s, s.model(), 3, reached)


def gradients_of_choices(s: Subject) -> None:
    """They also agree with every option at each value that it may have, behind a cache."""
    s.each(lambda s, given: of_parameters(s, s.model(given, layers=1), 2, reached), skip=1)


def gradients_of_claims(s: Subject) -> None:
    """They also agree in what it claims: both ways, in a window, at positions of several axes."""
    x = tokens(2, 9)
    if "window" in s.claims():
        s.model(window=3, layers=1).gradients(x)
    if s.axes > 1:
        s.model().gradients(x, positions=small.image(s.axes), seg=SEGMENTS)
    if "two_sided" in s.claims():
        s.model(causal=False).gradients(x[:, :7])

    def of_the_future(s: Subject, given: Given) -> None:
        if "two_sided" in s.claims(given) and s.encoding.hook in ("bias", "score", "attend"):
            m = s.model(given, causal=False, layers=1)
            if own := [n for n, name in enumerate(m.p) if "pe." in name]:
                m.gradients(x[:, :7], own)

    s.each(of_the_future, skip=1)


def reached(name: str) -> bool:
    """Whether the gradient of this parameter comes through an encoding's own backward."""
    return "pe." in name or name == "embed.weight" or name.split(".")[1] in ("q", "k", "v")


def of_parameters(s: Subject, m: Small, first: int, which: Callable[[str], bool] = lambda name: True) -> None:
    x, cfg = tokens(2, 7), m.cfg
    memory = m.decode(x[:, :first])[1] if first else model.cache(cfg, small.LENGTH)
    try:
        m.gradients(x[:, first:], [n for n, name in enumerate(m.p) if which(name)], memory)
    except Differs as error:
        if found := at_fault(s, cfg):
            raise broken(f"{error}; {found}") from error
        raise


def at_fault(s: Subject, cfg: Any) -> str:
    """The backwards of the encoding's own file, or of each one's in a combination, that are wrong by
    themselves, in words.

    Each of their ops is asked with what it was called with in a model.
    """
    found: dict[str, str] = {}
    for one in encodings_of(s.name):
        found |= at_fault_in(encodings.module(one), cfg)
    return "; ".join(f"{where}: {words}" for where, words in found.items())


def at_fault_in(own: ModuleType, cfg: Any) -> dict[str, str]:
    """Of one file: where -> in words."""
    calls: list[tuple[Op, Any, Any]] = []
    every = {name: op for name, op in vars(own).items() if isinstance(op, Op)}
    mine = {name: op for name, op in every.items() if op.forward.__module__ == own.__name__}

    def listening(op: Op) -> Op:
        def forward(*arrays: Any, **settings: Any) -> Any:
            calls.append((op, frozen(list(arrays)), settings))
            return op.forward(*arrays, **settings)

        return replace(op, forward=forward)

    vars(own).update({name: listening(op) for name, op in mine.items()})
    try:
        Small(cfg).logits(tokens(2, 7))
    finally:
        vars(own).update(mine)
    found: dict[str, str] = {}
    for op, arrays, settings in calls:
        try:
            check_alone(op, arrays, settings)
        except Differs as error:
            where = f"{getattr(op.backward, '__name__', 'backward')} in {Path(str(own.__file__)).name}"
            found[where] = str(error)
    return found


def check_alone(op: Op, arrays: Any, settings: Any) -> None:
    """The gradients of one call of an op, of those arrays that get any."""
    y, saved, *_ = op.forward(*arrays, **settings)
    one = np.ones_like(y)
    got = op.backward(saved, one, tuple(map(is_real, arrays))) if op.selective else op.backward(saved, one)
    names = list(inspect.signature(op.forward).parameters)
    if wrt := [k for k, g in enumerate(got) if g is not None]:
        gradient(op, arrays, settings, wrt=wrt, names=names)


def gradients_inside(s: Subject) -> None:
    """So does that of each table and each part of a score alone.

    The softmax cannot see a number added to a whole row, and hides its gradient.
    """
    cfg = s.config()
    p, pe, at = small.own_weights(cfg), cfg.encoding(0), At.of(7)
    x, q, k, _ = small.layer_input(cfg, 7)

    def parts(x: Any, q: Any, k: Any, *arrays: Any) -> Any:
        own = dict(zip(p, arrays, strict=True))
        if pe.embed:
            return (hooks.position_rows(pe, own, at.i),)
        if pe.rotate:
            return hooks.rotation(pe, own, at.i, small.LENGTH)
        if pe.bias:
            return (hooks.distance_table(model.PLAIN, pe, own, at.distances),)
        f, _ = hooks.features(model.PLAIN, pe, own, x, at)
        return hooks.score_terms(model.PLAIN, pe, own, q, k, f, at)

    arrays, tape = [x, q, k, *p.values()], Tape()
    names = [f"{name} in {s.encoding.hook}" for name in ("x", "q", "k", *p)]
    watched = lambda m: [Tape().watch(a) if m == o else a for o, a in enumerate(arrays)]
    alone = [parts(*watched(m)) for m in range(len(arrays))]
    for n, part in enumerate(parts(*map(tape.watch, arrays))):
        if isinstance(part, Var):
            wrt = [m for m, found in enumerate(alone) if isinstance(found[n], Var)]
            gradient(lambda *a, n=n: parts(*a)[n], arrays, wrt=wrt, names=names)


# ---------------------------------------------------------------- what a token sees


def causal(s: Subject) -> None:
    """Tokens from t on change no bit of the rows before t, and some of those after."""
    m, x = s.model(), tokens(2, 9)
    full = m.logits(x)
    for t in (1, 4, 8):
        other = x.copy()
        other[:, t:] = small.others(other[:, t:])
        changed = m.logits(other)
        same(changed[:, :t], full[:, :t], 0, f"logits before token {t}, where tokens from {t} on are others")
        if not abs(changed[:, t:] - full[:, t:]).max() > 0:
            raise broken(f"logits from token {t} on are the same where these tokens are others")


def decoding(s: Subject, pieces: Any = PIECES) -> None:
    """Any split of the tokens over calls gives the rows of the whole, also where rows are elsewhere."""
    m, x = s.model(), tokens(2, 9)
    places = [None, 5 + np.arange(9), small.rows_elsewhere(s)]
    for i in places:
        full = m.logits(x, positions=i)
        where = "" if i is None else f", positions {i.ravel()[0]} to {i.max()}"
        for cuts in pieces:
            same(m.chunked(x, cuts, i), full, EXACT, f"logits of 9 tokens cut at {cuts}{where}")
    later = m.decode(x[:, :4], positions=3 + np.arange(4))[1]
    want = m.logits(x, positions=3 + np.arange(9))[:, 4:]
    same(m.decode(x[:, 4:], later)[0], want, EXACT, "logits of tokens that go on from position 7")


# ---------------------------------------------------------------- padding and documents


def packing(s: Subject) -> None:
    """Left padding and packed documents equal the documents alone; what stands in padding has no say."""
    for cuts in ((), (2, 5), (6,)):
        check_packing(s, s.choices[0], cuts)
    m, x = s.model(), tokens(2, 9)
    other = x.copy()
    other[0, :3] = 0
    got, want = (m.logits(y, seg=SEGMENTS)[0, 3:] for y in (other, x))
    same(got, want, EXACT, "logits where other tokens stand in the padding")


def packing_of_choices(s: Subject) -> None:
    """So with every choice of the options, wherever rows are: what is kept of tokens ends with a document."""
    s.each(check_packing, skip=1)
    s.each(partial(check_packing, i=small.rows_elsewhere(s)), skip=1)


def check_packing(s: Subject, given: Given, cuts: tuple[int, ...] = (2, 5, 6), i: Any = None) -> None:
    m, x = s.model(given), tokens(2, 9)
    how = f", cut at {cuts}" if cuts else ""
    how += "" if i is None else f", positions {i.min()} to {i.max()}"
    small.documents_alone(m, x, m.chunked(x, cuts, i, SEGMENTS), how, i)


def padding_backward(s: Subject) -> None:
    """The gradient of a padded row is that of the tokens alone; padding alone gives zeros, never NaN."""
    m, x, targets = s.model(), tokens(2, 7), tokens(2, 7, seed=1)

    def gradients(x: Any, targets: Any, **place: Any) -> dict[str, Any]:
        tape = Tape()
        leaves = tape.watch(m.p)
        y, _ = model.loss(m.cfg, leaves, x, targets, n=small.LENGTH, **place)
        found = tape.gradients(y, np.float64(0.7))
        # beside the largest, what a softmax cannot see is rounding: a number added to a whole row
        most = max(abs(g).max() for g in found.values())
        return {n: np.where(abs(found[a]) < 1e-14 * most, 0, found[a]) for n, a in leaves.items()}

    seg = np.array([[0, 0, 3, 3, 3, 3, 3], [0] * 7])
    padded = gradients(x, np.where(seg == 0, -1, targets), seg=seg)
    same(padded, gradients(x[:1, 2:], targets[:1, 2:]), EXACT, "gradients behind 2 tokens of padding")
    nothing = gradients(x, np.full((2, 7), -1), seg=np.zeros((2, 7), int))
    same(nothing, {n: np.zeros_like(a) for n, a in m.p.items()}, 0, "gradients of padding alone")


def blind_rows(s: Subject) -> None:
    """Attention of a row that sees nothing is 0 in both passes, and the rows beside are as they are alone."""
    s.each(blind)


def blind(s: Subject, given: Given) -> None:
    cfg = s.config(given)
    p, pe, (x, q, k, v) = small.own_weights(cfg), cfg.encoding(0), small.layer_input(cfg, 7)

    def attended(at: At, x: Any, q: Any, k: Any, v: Any) -> Any:
        return hooks.attend_heads(model.PLAIN, pe, p, q, k, v, x, at, layout="half")[0]

    tape, seg = Tape(), np.array([[0, 0, 1, 1, 1, 1, 1], [0] * 7])
    leaves = [tape.watch(a) for a in (q, k, v)]
    y = attended(At.of(7, seg=seg), x, *leaves)
    alone = attended(At.of(5), x[:1, 2:], *(a[:1, :, 2:] for a in (q, k, v)))[0]
    same(y.value[0, :, 2:], alone, EXACT, "attention behind 2 tokens of padding")
    found = tape.gradients(y, np.random.default_rng(0).standard_normal(y.shape))
    gradients = {f"the gradient of {n}": found[leaf] for n, leaf in zip("qkv", leaves, strict=True)}
    for name, a in {"attention": y.value, **gradients}.items():
        padded = np.append(a[1], a[0, :, :2])
        if padded.any() or not np.isfinite(a).all():
            raise broken(f"{name} of rows of padding is {abs(padded).max():.3g}; expected 0")


# ---------------------------------------------------------------- heads, history, dtype, positions


def grouped_heads(s: Subject) -> None:
    """G heads of keys and values serve H queries as H repeated ones would."""
    H = s.config().H
    groups = next(G for G in (2, 3, 1) if H % G == 0)
    few, many = s.model(G=groups, layers=1), s.model(G=H, layers=1)
    p, x = dict(few.p), tokens(2, 7)
    for n, a in many.p.items():
        if p[n].shape != a.shape:
            heads = p[n].reshape(groups, -1, *p[n].shape[1:]) if len(p[n]) != groups else p[n][:, None]
            p[n] = np.repeat(heads, H // groups, 0).reshape(a.shape)
    got = Small(many.cfg, p).logits(x)
    same(got, few.logits(x), EXACT, f"logits of {H} key-value heads that repeat {groups}")


def history(s: Subject) -> None:
    """Another length, option or batch in between changes no bit."""
    m, x = s.model(), tokens(2, 9)
    before = m.logits(x)
    for given in s.choices:
        other = s.fitting(given, H=2, D=8, L=11)
        model.logits(other, small.weights(other, 1), tokens(3, 11))
    same(m.logits(x), before, 0, "logits, computed again after other models")


def dtype(s: Subject) -> None:
    """Float32 in, float32 out, in logits, cache and every gradient, and close to float64."""
    m, x = s.model(), tokens(2, 7)
    p = frozen(m.p, np.float32)
    y, memory = model.decode(m.cfg, p, x, model.cache(m.cfg, small.LENGTH))
    same(y, m.logits(x).astype(np.float32), 2e-5, "logits in float32")
    for n, layer in enumerate(memory.layers):
        kept = {name: kept.rows for name, kept in layer.items() if name != "state"} | layer["state"]
        for name, a in kept.items():
            if a.dtype != np.float32:
                raise broken(f"what layer {n} keeps of tokens, {name}, is {a.dtype} for weights of float32")
    tape = Tape()
    leaves = tape.watch(p)
    loss, _ = model.loss(m.cfg, leaves, x, x)
    found = tape.gradients(loss, np.float32(1))
    for name, leaf in leaves.items():
        g = found[leaf]
        if (g.dtype, g.shape) != (np.float32, leaf.shape):
            what = f"the gradient of {name} is {g.dtype}{list(g.shape)}"
            raise broken(f"{what}; expected float32{list(leaf.shape)}")


def positions(s: Subject) -> None:
    """Positions change something with some choice of the options; where the file says axes=None, nothing."""
    axes, x = s.encoding.axes, tokens(2, 9)
    if axes is None:
        m = s.model()
        for i in (small.image(3), small.image(5), np.arange(9)[::-1] / 3):
            same(m.logits(x, positions=i), m.logits(x), 0, "logits at other positions; axes is None")
    elif axes == 1:
        changes, i = [], np.array([0, 1, 3, 4, 6, 8, 9, 12, 15])
        for m in map(s.model, s.choices):
            changes.append(abs(m.logits(x, positions=i) - m.logits(x)).max())
        if not max(changes) > 1e-6:
            raise broken("positions change nothing, whatever the options; the file should say axes=None")
