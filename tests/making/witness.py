"""A case once more, from the loops over plain numbers in tests/loops: nothing of the array version is called.

Documents of a packed sequence are computed alone, one after another, each from position 0 unless positions
are given.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import loops
import numpy as np
from loops import attention as loops_attention
from loops.cross import across
from loops.turn import turned as turned_pair

from peref.combination import inside
from peref.encodings import get, options
from peref.golden.compute.operation import named_in
from peref.golden.spec.cases import Case
from peref.member import Layer, encodings_of

Rows = list[Any]


def documents(case: Case) -> Iterator[tuple[int, slice, Rows]]:
    """Sequence, slots and positions of each document; of several axes, as many lists of positions."""
    for b in range(case.B):
        i = case.at.i
        given = i[:, b] if i.ndim == 3 else i[b] if i.ndim == 2 else i
        if case.seg is None:
            yield b, slice(0, case.T), given.tolist()
            continue
        row = list(case.seg[b])
        for number in sorted(set(row) - {0}):
            first, count = row.index(number), row.count(number)
            cut = slice(first, first + count)
            yield b, cut, [*range(count)] if case.positions is None else given[..., cut].tolist()


def loop_of(case: Case, **more: Any) -> Any:
    """The witness of its encoding; of a cycle nothing, each of its encodings has one."""
    cfg = case.config
    facts = {letter: getattr(cfg, letter) for letter in ("H", "G", "D", "R", "C", "L", "causal")}
    facts |= {"pairs": case.layer.layout, "window": case.window} | ({} if case.cycle else dict(cfg.pe[0][1]))
    return loops.witness(case.encoding, case.hook or "bias", **facts, **more)


def encodings_in(case: Case) -> list[Case]:
    """The case of each encoding of its layer, alone; of one encoding itself."""
    if not case.cycle:
        return [case]
    (name, given), *_ = case.cycle
    each = encodings_of(name)
    own = lambda one: inside(one, given) if len(each) > 1 else options_of(one, given)
    turning = {"R": given["rotary_dim"]} if "rotary_dim" in given else {}
    turning |= {"layout": given.get("layout", case.layout)}
    return [replace(case, encoding=one, options=own(one), cycle=(), **turning) for one in each]


def options_of(name: str, given: Any) -> dict[str, Any]:
    """Those of the encoding, without the settings of its layer."""
    return {key: x for key, x in given.items() if key in options(get(name))}


def seeing(layer: Layer) -> dict[str, int | None]:
    """What decides which keys a query sees."""
    return {name: getattr(layer, name) for name in ("window", "chunk", "global_tokens")}


def witnessed(case: Case, a: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The outputs of a case, those that the loops reach."""
    if case.level == "cross":
        return crossed(case, a)
    loop = loop_of(case)
    p = {name.removeprefix("param."): x.tolist() for name, x in a.items() if name.startswith("param.")}
    if case.level == "table":
        return table(case, loop, p, a)
    shapes = {
        "y": (case.B, case.T, case.C),
        "q_rotated": (case.B, case.H, case.T, case.D),
        "k_rotated": (case.B, case.G, case.T, case.D),
    }
    cells = (case.B, case.H, case.T, case.T)
    shapes |= {
        "term": cells,
        "bias": cells,
        "scores": cells,
        "probabilities": cells,
        "out": shapes["q_rotated"],
    }
    found: dict[str, np.ndarray] = {}
    for b, cut, i in documents(case):
        part = {
            name: (a[name][b][cut] if name == "x" else a[name][b][:, cut]).tolist()
            for name in "xqkv"
            if name in a
        }
        part["state"] = {name: x[b].tolist() for name, x in named_in(a, "state.").items()}
        for name, rows in one(case, loop, p, part, i).items():
            if name.startswith("last."):
                found.setdefault(name, np.zeros((case.B, *np.shape(rows))))[b] = np.array(rows)
                continue
            whole = found.setdefault(name, np.zeros(shapes[name]))
            square = name in ("term", "bias", "scores", "probabilities")
            where = (
                (b, slice(None), cut, cut) if square else (b, cut) if name == "y" else (b, slice(None), cut)
            )
            whole[where] = np.array(rows, np.float64)
    if "bias" in found:
        found["bias"] = found["bias"][0]
    return found


def crossed(case: Case, a: Any) -> dict[str, np.ndarray]:
    """Attention to the keys of another sequence."""
    rows = zip(*(a[name].tolist() for name in ("q", "k", "v", "seg", "seg_keys")), strict=True)
    found = zip(*(across(q, k, v, case.D**-0.5, *seg) for q, k, v, *seg in rows), strict=True)
    return {name: np.array(x) for name, x in zip(("scores", "probabilities", "out"), found, strict=True)}


def table(case: Case, loop: Callable, p: Any, a: Any) -> dict[str, np.ndarray]:
    """What the place alone decides."""
    if case.hook == "bias":
        return {"bias": np.array(loop(p, a["distances"].tolist()), np.float64)}
    i = case.at.i
    # positions of each sequence that has its own
    each = [i] if i.ndim == 1 else [i[..., b, :] for b in range(i.shape[-2])]
    whole = lambda rows: np.array(rows if i.ndim > 1 else rows[0], np.float64)
    if case.hook == "embed":
        return {"rows": whole([loop(p, one.tolist()) for one in each])}
    angle, gain_q, gain_k = zip(*[loop(p, one.tolist(), case.at.n) for one in each], strict=True)
    found = {"angle": whole(angle)}
    found |= {name: whole(each_number(f, angle)) for name, f in (("cos", math.cos), ("sin", math.sin))}
    return found | {
        name: whole(gain) for name, gain in (("gain_q", gain_q), ("gain_k", gain_k)) if gain[0] is not None
    }


def each_number(f: Callable, rows: Any) -> Any:
    """f of each number of nested lists."""
    return [each_number(f, x) for x in rows] if isinstance(rows, list | tuple) else f(rows)


def one(case: Case, loop: Callable, p: Any, part: Any, i: Rows) -> dict[str, Any]:
    """One document."""
    if case.hook == "mix":
        if case.before is None:
            return {"y": loop(p, part["x"], i)}
        y, last = loop_of(case, state=part["state"])(p, part["x"], i)
        return {"y": y} | {f"last.{name}": rows for name, rows in last.items()}
    if case.hook == "embed":
        rows = loop(p, i)
        return {
            "y": [
                [x + y for x, y in zip(token, row, strict=True)]
                for token, row in zip(part["x"], rows, strict=True)
            ]
        }
    if case.hook == "attend":
        return {"out": loop(p, part["q"], part["k"], part["v"], part.get("x"), i)}
    tokens, layer = len(i[0]) if isinstance(i[0], list) else len(i), case.layer
    sees = lambda t, s: loops_attention.sees(t, s, case.causal, seg=None, **seeing(layer))
    look = [[sees(t, s) for s in range(tokens)] for t in range(tokens)]
    extra, added = [[[0.0] * tokens for _ in range(tokens)] for _ in range(case.H)], False
    only = lambda found: [
        [[found(h, t, s) if look[t][s] else 0.0 for s in range(tokens)] for t in range(tokens)]
        for h in range(case.H)
    ]
    if layer.cosine:
        q, k = loops_attention.cosines(part["q"], part["k"], p["cosine"])
        part = part | {"q": q, "k": k}
    for one_of in encodings_in(case):
        mine = inside(one_of.encoding, p) if "+" in case.members[0][0] else p
        loop = loop_of(one_of, **({"beside": extra} if added else {})) if case.cycle else loop
        if one_of.hook == "rotate":
            q, k = turned(one_of, loop, mine, part, i)
            if case.level == "op":
                return {"q_rotated": q, "k_rotated": k}
            part = part | {"q": q, "k": k}
        elif one_of.hook == "bias":
            rows = [
                loop(mine, [i[t] - i[s] if look[t][s] else 0 for s in range(tokens)]) for t in range(tokens)
            ]
            extra, added = only(lambda h, t, s, rows=rows, old=extra: old[h][t][s] + rows[t][h][s]), True
        elif one_of.hook == "score":
            term = loop(mine, part["q"], part["k"], part.get("x"), i)
            extra = only(lambda h, t, s, term=term, old=extra: old[h][t][s] + term[h][t][s])
    if case.level == "op":
        return {"bias" if case.hook == "bias" else "term": extra}
    return attention(case, p, part, extra, i)


def turned(case: Case, loop: Callable, p: Any, part: Any, i: Rows) -> tuple[Rows, Rows]:
    """q and k after the rotation, gains on the channels that turn. Angles of heads are each for as many in a
    row.
    """
    angle, gain_q, gain_k = loop(p, i, case.at.n)
    apart = isinstance(angle[0][0], list)

    def rows(head: Rows, angle: Rows, gain: Any) -> Rows:
        found = []
        for t, token in enumerate(head):
            y = turned_pair(token, angle[t], case.layout)
            for n, g in enumerate(gain[t] if gain is not None else []):
                for c in {"half": (n, n + len(angle[t])), "interleaved": (2 * n, 2 * n + 1)}[case.layout]:
                    y[c] *= g
            found.append(y)
        return found

    of = lambda h, heads: angle[h * len(angle) // heads] if apart else angle
    q, k = (
        [rows(head, of(h, len(part[name])), gain) for h, head in enumerate(part[name])]
        for name, gain in (("q", gain_q), ("k", gain_k))
    )
    return q, k


def attention(case: Case, p: Any, part: Any, extra: Any, i: Rows) -> dict[str, Any]:
    """Scores as a sum of products, probabilities as the attention over values that are a unit matrix, and
    the output.
    """
    q, k, v, layer = part["q"], part["k"], part["v"], case.layer
    scale, tokens, group = layer.pe.scale(case.D), range(len(q[0])), case.H // case.G
    line = i[0] if isinstance(i[0], list) else i  # where there are several axes there is no temperature
    told = (layer.temperature, line, layer.temperature_length, layer.temperature_slope)
    hot = loops_attention.factors(*told, p.get("temperature", [1.0] * case.H))
    sees = {"causal": case.causal, "seg": None} | seeing(layer)
    rows = [
        [
            [
                loops_attention.logit(q[h][t], k[h // group][s], scale, hot[h][t], layer.softcap)
                + extra[h][t][s]
                if loops_attention.sees(t, s, **sees)
                else 0.0
                for s in tokens
            ]
            for t in tokens
        ]
        for h in range(case.H)
    ]
    unit = [[[float(s == t) for s in tokens] for t in tokens] for _ in range(case.G)]
    settings = sees | {"bias": extra, "hot": hot, "cap": layer.softcap, "sinks": p.get("sinks")}
    return {
        "scores": rows,
        "probabilities": loops_attention.attend(q, k, unit, scale, **settings),
        "out": loops_attention.attend(q, k, v, scale, **settings),
    }
