"""Golden files on the device: what encodings give through the backend, for the cases of the core set and
for the laws that hold without numbers.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from peref import hooks
from peref.golden.judge.declared import declared_entries
from peref.golden.judge.implementation import run_function
from peref.golden.judge.judged import judged_case
from peref.golden.judge.laws import law_verdict
from peref.golden.judge.selection import Pick
from peref.golden.spec.book import Book
from peref.golden.spec.models import rebuilt
from peref.tape import Tape
from peref.xp import to_host

ROOT = Path(__file__).resolve().parent.parent.parent


def through(be: Any) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]:
    """The function of a case that `golden check --impl` takes, by `be`: attention, rotations, layers,
    tables of distances; None for the rest.
    """

    def answer(words: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any] | None:
        case, level = rebuilt(words, inputs), words["level"]
        tape, pe = Tape(), case.config.encoding(0)
        placed = {
            name: be.place(a)
            for name, a in inputs.items()
            if name in ("x", "q", "k", "v") or name.startswith("param.")
        }
        leaves = {name: tape.watch(a) for name, a in placed.items()} if level != "trace" else placed
        found = outputs(be, case, level, pe, leaves)
        if found is None:
            return None
        # what a layer says of padding means nothing
        seg = None if case.seg is None or pe.mix is None else np.asarray(case.seg)[..., None] != 0
        asked = [name for name in found if f"cotangent.{name}" in inputs and hasattr(found[name], "slot")]
        if asked:
            dy = [np.asarray(inputs[f"cotangent.{name}"], np.float32) for name in asked]
            dy = [be.place(one if seg is None else np.where(seg, one, 0).astype(one.dtype)) for one in dy]
            gradients = tape.gradients(tuple(found[name] for name in asked), tuple(dy))
            found |= {f"vjp.{name}": gradients[leaf] for name, leaf in leaves.items()}
        host = {name: to_host(getattr(y, "value", y)) for name, y in found.items()}
        return (
            host
            if seg is None
            else {name: y if name.startswith("vjp.") else np.where(seg, y, 0) for name, y in host.items()}
        )

    return answer


def outputs(be: Any, case: Any, level: str, pe: Any, a: dict[str, Any]) -> dict[str, Any] | None:
    """What the backend computes of a case, on a tape where `a` is; None also where the last state is asked
    for, of which the kernels take no gradient.
    """
    if case.before is not None:
        return None
    p, there = (
        {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")},
        be.place(case.at),
    )
    if level == "table" and pe.bias:
        return {"bias": hooks.distance_table(be, pe, p, there.distances)}
    if level == "op" and pe.rotate:
        rotation = hooks.rotation(pe, p, there.i, there.n)
        turned = hooks.turn_heads(be, a["q"], a["k"], rotation, layout=case.layout)
        return dict(zip(("q_rotated", "k_rotated"), turned, strict=True))
    if level == "op" and pe.embed:
        return {"y": hooks.with_position(pe, p, a["x"], there.i)}
    if level == "op" and pe.mix:
        return {"y": hooks.mixed(be, pe, p, a["x"], there)[0]}
    if level == "trace":
        return traced(be, case, pe, p, a)
    if level == "attn":
        q, k, v, x = (a.get(name) for name in "qkvx")
        return {"out": hooks.attend_heads(be, pe, p, q, k, v, x, there, layout=case.layout)[0]}
    return None


def traced(be: Any, case: Any, pe: Any, p: dict[str, Any], a: dict[str, Any]) -> dict[str, Any]:
    """The rows of all calls of a trace, through the cache."""
    rows, old, begin = [], {}, 0  # type: list[Any], Any, int
    for first, stop, fresh, n in case.calls:
        old, begin = ({}, first) if fresh else (old, begin)
        there = be.place(replace(case.at, i=case.at.i[..., first:stop], j=case.at.j[..., begin:stop], n=n))
        q, k, v = (a[name][:, :, first:stop] if name in a else None for name in "qkv")
        x = a["x"][:, first:stop] if "x" in a else None
        if pe.embed:
            y = hooks.with_position(pe, p, x, there.i)
        elif pe.mix:
            y, old = hooks.mixed(be, pe, p, x, there, old)
        else:
            y, old = hooks.attend_heads(be, pe, p, q, k, v, x, there, old, layout=case.layout)
        rows.append(to_host(y))
    return {"y" if pe.embed or pe.mix else "out": np.concatenate(rows, 1 if pe.embed or pe.mix else 2)}


def compared(be: Any, book: Book, name: str) -> dict[str, Any]:
    """The cases of an encoding in the core set, in float32, by the rule that everybody is judged by."""
    pick = Pick(encodings=(name,))
    found, errors = run_function(through(be), book, pick, "f32")
    results = []
    for entry in filter(pick, book.entries.values()):
        some = {
            tensor: found[f"{entry.id}:{tensor}"]
            for tensor in entry.outputs
            if f"{entry.id}:{tensor}" in found
        }
        results += judged_case(entry, some, "C")
    classes = {grade: sum(r.verdict.grade == grade for r in results) for grade in ("A", "B", "C", "FAIL")}
    wrong = [f"{r.entry.id}:{r.name}" for r in results if not r.passed] + [
        f"{case}: {said}" for case, said in errors.items()
    ]
    cases = len({r.entry.id for r in results})
    used = max((r.verdict.worst for r in results), default=0.0)
    found = {"cases": cases, "tensors": len(results), "used": used} | classes
    return found | {"wrong": wrong[:3], "good": bool(results) and not wrong}


def lawful(be: Any, book: Book, name: str) -> dict[str, Any]:
    """The laws of an encoding, in float32."""
    said = {
        law.id: law_verdict(law.words, through(be), np.float32)
        for law in declared_entries(book)["laws"]
        if law.words["encoding"] == name
    }
    held, wrong = (
        sum(one is True for one, _ in said.values()),
        [f"{law}: {why}" for law, (one, why) in said.items() if one is False],
    )
    return {
        "held": held,
        "not_claimed": sum(one is None for one, _ in said.values()),
        "wrong": wrong[:3],
        "good": not wrong,
    }


def golden(be: Any, names: list[str]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """(title, work) for each of these encodings."""
    # read by the first row that needs it: where it is damaged the rows say so
    book = cache(lambda: Book(ROOT / "golden"))
    for name in names:
        yield f"golden {name}", lambda name=name: compared(be, book(), name)
        yield f"laws {name}", lambda name=name: lawful(be, book(), name)
