"""Near misses: what wrong implementations give for a case, at a few elements each, stored beside the case so
that any language can name a trap.

A near miss stands in cases.json as {"trap": flag, "words": what the implementation does, "tensor": name,
"probes": "12:0.71875 40:-1.5 ..."}: flat index (row-major) and value of up to PROBES elements, those in which
the mutant is farthest from the truth and from other mutants. They are made from the mutants of the tests that
are not held out.

Not here: the mutants (tests/mutants), what is made of them (peref.golden.diagnosis).
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import BROKEN
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import CLASSES, verdict_on

PROBES = 8
FEW = 1  # cases of an encoding that carry the same mutant, one with its flag first


def failing(case: Any, want: dict[str, Any], got: dict[str, Any]) -> dict[str, np.ndarray]:
    """The tensors of `got` that the rule refuses in float64, with their use of class A."""
    found = {}
    for name, g in want.items():
        if name.endswith((":a", ":b")) or name not in got or g.dtype.kind != "f":
            continue
        x = np.asarray(got[name]).view(np.ndarray).astype(np.float64)
        verdict = verdict_on(Tensor("F64", x), g, want[f"{name}:a"], want[f"{name}:b"], case.depth)
        if not verdict.worst <= CLASSES[-1][1] and verdict.used is not None and np.isfinite(x).any():
            found[name] = verdict.used
    return found


def tensor_of(case: Any, bad: dict[str, np.ndarray]) -> str:
    """The one tensor that is probed: an output before a derivative, the farthest from the truth among
    equals.
    """
    return min(bad, key=lambda name: (name.startswith("vjp."), list(bad).index(name)))


def chosen(size: Any, want: np.ndarray, wrong: np.ndarray, others: Iterable[np.ndarray]) -> list[int]:
    """Flat indices: elements far from the truth, and from the mutants before."""
    with np.errstate(all="ignore"):
        scale = np.sqrt(np.mean(want * want)) + 1e-30
        apart = [np.minimum(np.abs(wrong - x).ravel() / scale, 10) for x in (want, *others)]
        score = apart[0] + sum(apart[1:]) / max(len(apart) - 1, 1)
    score = np.where(np.isfinite(wrong.ravel()), np.nan_to_num(score), -1) * (apart[0] > 0)
    order = np.argsort(-score, kind="stable")
    far = order[: PROBES // 2]  # and as many spread over the tensor, for a trap is also where it is right
    spread = np.linspace(0, want.size - 1, PROBES).astype(int)
    return list(dict.fromkeys([*map(int, far), *map(int, spread)]))[:PROBES]


def near_misses(
    cases: list[Any], tensors: dict[str, tuple[dict[str, Any], dict[str, Any]]], mutants: list[Any]
) -> dict[str, list[dict[str, str]]]:
    """Case id -> its near misses, for the cases of one encoding; tensors[id] are its inputs, and what is
    expected with budgets.
    """
    found: dict[str, list[dict[str, str]]] = {case.id: [] for case in cases}
    wrong: dict[tuple[str, str], list[np.ndarray]] = {}
    for mutant in mutants:
        if mutant.held_out:
            continue
        ready = sorted(
            cases, key=lambda case: (mutant.flag not in case.flags, not case.id.endswith("default"))
        )
        left = FEW
        for case in ready:
            a, want = tensors[case.id]
            got = computed(mutant, case, a)
            bad = failing(case, want, got) if got else {}
            if not bad:
                continue
            name = tensor_of(case, bad)
            x = np.asarray(got[name], np.float64)
            flat, true = x.ravel(), want[name].ravel()
            places = [
                n
                for n in chosen(bad[name], want[name], x, wrong.get((case.id, name), ()))
                if np.isfinite(flat[n])
            ]
            if not (np.abs(flat[places] - true[places]) > 1e-6 * (1 + np.abs(true[places]))).any():
                continue  # wrong only where it is not finite, which needs no probe, or by less than they say
            wrong.setdefault((case.id, name), []).append(x)
            probes = " ".join(f"{n}:{flat[n]:.7g}" for n in places)
            found[case.id].append(
                {"trap": mutant.flag, "words": mutant.words, "tensor": name, "probes": probes}
            )
            left -= 1
            if not left:
                break
    return found


def computed(mutant: Any, case: Any, a: dict[str, Any]) -> dict[str, Any]:
    """What a mutant gives, {} where it cannot be."""
    if case.encoding not in mutant.of:
        return {}
    try:
        with np.errstate(all="ignore"):
            return mutant.wrong(case, a) or {}
    except BROKEN:
        return {}
