"""An encoding against its scalar loop: the same a second time, over plain numbers, written from the paper.

What the loop of each hook takes and gives stands in docs/your-own.md.

Not here: gradients, which the loop has none of (everywhere).
"""

import inspect
import re
from collections.abc import Callable
from functools import partial
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np

from peref import hooks, model
from peref.compare import same
from peref.encodings import Encoding
from peref.errors import Misuse
from peref.laws import small
from peref.laws.small import Given, Subject, broken, lists, own_weights
from peref.ops.place import At

FAR = np.array([131071, 1048575])
WIDTHS = (2, 4, 6, 8)  # rotary, of heads of 8


def filled(module: ModuleType, hook: str, **known: Any) -> Callable | None:
    """The function of that name, None where there is none, with the `known` facts and options that it asks
    for.
    """
    function = getattr(module, hook, None)
    if function is None:
        return None
    wanted = {name: known[name] for name in inspect.signature(function).parameters if name in known}
    return partial(function, **wanted)


def needed(s: Subject, cfg: Any, hook: str) -> Callable:
    """The loop of a hook. Raises Differs where there is none."""
    if found := s.of_loop(cfg, hook):
        return found
    raise broken(f"the loop has no function {hook}")


def loop(s: Subject) -> None:
    """With every choice of the options, at any positions, the encoding gives what its scalar loop gives."""
    against = {"embed": check_embed, "rotate": check_rotate, "bias": check_bias}
    against |= {"score": check_score, "attend": check_attend, "mix": check_mix}
    s.each(against[s.encoding.hook])


def check_embed(s: Subject, given: Given) -> None:
    """Odd and even widths, positions in any order."""
    for C in (1, 2, 7, 8):
        cfg = s.fitting(given, C=C, D=4)
        p, here = own_weights(cfg), needed(s, cfg, "embed")
        made = partial(hooks.position_rows, cfg.encoding(0), p)
        # a frequency's last digit, a million times
        far = [(FAR, 1e-9)] if "any_length" in s.claims() else []
        for i, tolerance in [*((i, 1e-13) for i in s.real(*small.POSITIONS)), *far]:
            want, what = np.array(here(lists(p), lists(i))), f"rows at positions {lists(i)}, width {C}"
            same(made(i), want, tolerance, what)
            same(made(np.stack([i, i[::-1]]))[1], want[::-1], tolerance, f"{what}, of a second sequence")


def widths(s: Subject, given: Given) -> list[int]:
    """The rotary widths up to 8 that it takes; any other it refuses in words that name the width."""
    found = []
    for R in WIDTHS:
        try:
            cfg = s.fitting(given, D=8, R=R)
            hooks.rotation(cfg.encoding(0), own_weights(cfg), np.arange(3), small.LENGTH)
            found.append(R)
        except Misuse as refusal:
            if not re.match(rf"{s.name}: (the )?rotary width is {R}; expected", str(refusal)):
                raise
    if not found:
        raise broken(f"no rotary width of {', '.join(map(str, WIDTHS))} is taken")
    return found


def check_rotate(s: Subject, given: Given) -> None:
    """Angles and gains in float64, for any positions, made for any length, widths below the head's too."""
    far = [FAR] if "any_length" in s.claims() else []
    taken = widths(s, given)
    for R, n in [*((R, 50) for R in taken), (taken[-1], small.LENGTH), (taken[-1], 17)]:
        cfg = s.fitting(given, D=8, R=R)
        p, pe = own_weights(cfg), cfg.encoding(0)
        for i in s.real(*small.POSITIONS, *far):
            want = needed(s, cfg, "rotate")(lists(p), lists(i), n)
            got = dict(zip(("angle", "gain_q", "gain_k"), hooks.rotation(pe, p, i, n), strict=True))
            if got["angle"].ndim == 4:  # of heads, [1,heads,T,R/2]
                got["angle"] = got["angle"][0]
            wanted = dict(zip(got, (None if a is None else np.array(a) for a in want), strict=True))
            same(got, wanted, 1e-14, f"rotary width {R}, made for {n}, positions {lists(i)}")


def check_bias(s: Subject, given: Given) -> None:
    """Past and, where it is two-sided, future; heads that are no power of two."""
    for causal, H in product(s.ways(given), (1, 6, 7)):
        cfg = s.fitting(given, H=H, causal=causal, L=300)
        p, here = own_weights(cfg), needed(s, cfg, "bias")
        table = partial(hooks.distance_table, model.PLAIN, cfg.encoding(0), p)
        near = np.arange(0 if causal else -299, 300)[:: 1 if H == 6 else 7]
        for d in [near, *([abs(small.REAL)] if "real_positions" in s.claims() else [])]:
            what = f"[head, distance from {d[0]} on] of {H} heads, causal={causal}"
            same(table(d), np.array(here(lists(p), lists(d))), 1e-13, what)
        if "any_length" in s.claims():
            far = np.array(here(lists(p), lists(FAR)))
            scale = np.where(np.isfinite(far), 1 + abs(far), 1)  # of a power they may be of 1e11
            what = f"[head, distance] of distances {lists(FAR)}, each by its size"
            same(table(FAR) / scale, far / scale, 1e-9, what)


def check_score(s: Subject, given: Given) -> None:
    """Term, row and column add up to what the loop has wherever a query looks."""

    def terms(pe: Encoding, p: Any, at: At, x: Any, q: Any, k: Any, v: Any) -> Any:
        f, _ = hooks.features(model.PLAIN, pe, p, x, at)
        found = sum(a for a in hooks.score_terms(model.PLAIN, pe, p, q, k, f, at) if a is not None)
        return np.broadcast_to(found, (*q.shape[:3], k.shape[2]))[..., at.see]

    check_layer(s, given, "qkx", terms, 1e-13, "[head, cell that is seen]")


def check_attend(s: Subject, given: Given) -> None:
    """Features and attention together, from the layer's input on."""

    def attended(pe: Encoding, p: Any, at: At, x: Any, q: Any, k: Any, v: Any) -> Any:
        return hooks.attend_heads(model.PLAIN, pe, p, q, k, v, x, at, layout="half")[0]

    check_layer(s, given, "qkvx", attended, 1e-12, "[head, token, channel]")


def check_mix(s: Subject, given: Given) -> None:
    """The whole layer."""
    mixed = lambda pe, p, at, x, *heads: hooks.mixed(model.PLAIN, pe, p, x, at)[0]
    check_layer(s, given, "x", mixed, 1e-12, "[token, channel]")


def check_layer(s: Subject, given: Given, takes: str, made: Callable, tolerance: float, what: str) -> None:
    """made(encoding, parameters, place, x, q, k, v) against the loop, which takes some of x, q, k, v: at
    tokens in order and out of order with the first choice of the options, with the others out of order.
    """
    hook = s.encoding.hook
    for causal in s.ways(given):
        cfg = s.fitting(given, causal=causal, L=64)
        p, given_to, here = own_weights(cfg), small.layer_input(cfg, small.LONG), needed(s, cfg, hook)
        second = {name: lists(a[1]) for name, a in zip("xqkv", given_to, strict=True)}
        for i in s.far(small.LONG)[0 if given == s.choices[0] else -1 :]:
            at = small.place_of(cfg, i)
            got = made(cfg.encoding(0), p, at, *given_to)[1]
            want = np.array(here(lists(p), *(second[name] for name in takes), lists(i)), dtype=float)
            want = want[:, at.see] if hook == "score" else want
            same(got, want, tolerance, f"{what}, causal={causal}")


def scale(s: Subject) -> None:
    """The softmax scale is the loop's, and 1 / sqrt(D) where the loop says nothing of it."""
    s.each(check_scale)


def check_scale(s: Subject, given: Given) -> None:
    cfg = s.config(given)
    says = s.of_loop(cfg, "scale", D=8)
    want = says() if says else 8**-0.5
    got = hooks.softmax_scale(cfg.encoding(0), 8)
    same(np.float64(got), np.float64(want), 1e-15, "the softmax scale for heads of 8")
