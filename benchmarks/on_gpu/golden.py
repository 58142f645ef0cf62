"""Golden files on the device: what encodings give through the backend, for the cases of the core set and
for the laws that hold without numbers.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from peref.golden.compute.operation import operate, watched
from peref.golden.compute.trace import trace_outputs
from peref.golden.judge.declared import declared_entries
from peref.golden.judge.implementation import run_function
from peref.golden.judge.judged import judged_case
from peref.golden.judge.laws import law_verdict
from peref.golden.judge.selection import Pick
from peref.golden.spec.book import Book
from peref.golden.spec.cases import rebuilt
from peref.tape import Tape, value
from peref.xp import to_host

# hooks by themselves that kernels compute
ASKED = {("bias", "table"), ("rotate", "op"), ("embed", "op"), ("mix", "op")}
REFUSED = "the kernels of cuda have no"  # in what the backend says of an option that it does not compute
ROOT = Path(__file__).resolve().parent.parent.parent


def through(be: Any) -> Callable[[dict[str, Any], dict[str, Any]], dict[str, Any] | None]:
    """The function of a case that `golden check --impl` takes, by `be`: attention, rotations, layers,
    tables of distances; None for the rest, and where the last state is asked for, of which the kernels take
    no gradient.
    """

    def answer(words: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any] | None:
        case, level = rebuilt(words, inputs), words["level"]
        if case.before is not None or (level not in ("attn", "trace") and (case.hook, level) not in ASKED):
            return None
        placed = {name: be.place(a) for name, a in inputs.items() if name in watched(inputs)}
        if level == "trace":
            return trace_outputs(case, placed, be=be)
        tape = Tape()
        leaves = {name: tape.watch(a) for name, a in placed.items()}
        found = operate(case, leaves, at=be.place(case.at), be=be)
        asked = [name for name in found if f"cotangent.{name}" in inputs and hasattr(found[name], "slot")]
        if asked:
            dy = (be.place(np.asarray(inputs[f"cotangent.{name}"], np.float32)) for name in asked)
            gradients = tape.gradients(tuple(found[name] for name in asked), tuple(dy))
            found |= {f"vjp.{name}": gradients[leaf] for name, leaf in leaves.items()}
        return {name: to_host(value(y)) for name, y in found.items()}

    return answer


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
    refused, broken = apart(errors)
    wrong = [f"{r.entry.id}:{r.name}" for r in results if not r.passed] + broken
    cases = len({r.entry.id for r in results})
    used = max((r.verdict.worst for r in results), default=0.0)
    found = {"cases": cases, "tensors": len(results), "used": used} | classes | refused
    return found | {"wrong": wrong[:3], "good": bool(results or refused) and not wrong}


def apart(errors: dict[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Of what was raised, by case: what the backend has no kernels for and says so, and the rest."""
    refused = {case: said.rpartition(": ")[2] for case, said in errors.items() if REFUSED in said}
    wrong = [f"{case}: {said}" for case, said in errors.items() if case not in refused]
    return ({"refused": len(refused), "because": sorted({*refused.values()})} if refused else {}), wrong


def lawful(be: Any, book: Book, name: str) -> dict[str, Any]:
    """The laws of an encoding, in float32; none of scores, which attention keeps to itself."""
    function = through(be)

    def whole(words: dict[str, Any], inputs: dict[str, Any]) -> dict[str, Any] | None:
        came = function(words, inputs)
        return came if came and came.keys() >= {*words["expected"]} else None

    said = {
        law.id: law_verdict(law.words, whole, np.float32)
        for law in declared_entries(book)["laws"]
        if law.words["encoding"] == name
    }
    refused, wrong = apart({law: why for law, (one, why) in said.items() if one is False})
    found = {"held": sum(one is True for one, _ in said.values())}
    found |= {"not_claimed": sum(one is None for one, _ in said.values())}
    return found | refused | {"wrong": wrong[:3], "good": not wrong}


def golden(be: Any, names: list[str]) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """(title, work) for each of these encodings."""
    # read by the first row that needs it: where it is damaged the rows say so
    book = cache(lambda: Book(ROOT / "golden"))
    for name in names:
        yield f"golden {name}", lambda name=name: compared(be, book(), name)
        yield f"laws {name}", lambda name=name: lawful(be, book(), name)
