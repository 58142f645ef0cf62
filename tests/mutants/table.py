"""The mutation table: which mutants are noticed in which dtype, whether the right trap is named, and what honest code uses of the rule.

python tests/mutants/table.py          measures, and writes docs/tolerance.md and the table in README.md
"""

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from honest import arithmetic  # noqa: E402

from mutants import mutants, named  # noqa: E402
from mutants.ways import bfloat16  # noqa: E402
from peref.golden.book import Book  # noqa: E402
from peref.golden.cases import catalogue  # noqa: E402
from peref.golden.files import Tensor  # noqa: E402
from peref.golden.near import computed  # noqa: E402
from peref.golden.rule import CLASSES, judged  # noqa: E402

DTYPES = ("F64", "F32", "BF16", "F16")
START, STOP = "<!-- mutants: python tests/mutants/table.py -->", "<!-- /mutants -->"
LIMIT = CLASSES[-1][1]


def in_dtype(x, dtype):
    """Numbers rounded to a dtype, as a tensor of it."""
    x = np.asarray(x).view(np.ndarray)
    with np.errstate(all="ignore"):
        if dtype == "BF16":
            return Tensor(dtype, (bfloat16(x).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
        return Tensor(dtype, x.astype({"F64": np.float64, "F32": np.float32, "F16": np.float16}[dtype]))


def cases_of(mutant, cases):
    """The cases on which a mutant is run: those that carry its flag, and each level's default."""
    mine = [c for c in cases if c.encoding in mutant.of and c.level in ("table", "op", "attn")]
    flagged = [c for c in mine if mutant.flag in c.flags or c.id.endswith("/default")]
    return flagged, [c for c in mine if c not in flagged]


def runs(mutant, cases, book):
    """Encoding -> [(entry, case, name, wrong tensor)] for what differs from the truth; more cases only where those with the flag show nothing."""
    found = defaultdict(list)
    first, rest = cases_of(mutant, cases)
    for case in [*first, *rest]:
        if case in rest and found[case.encoding]:
            continue
        entry = book.entries[case.id]
        for name, x in computed(mutant, case, entry.inputs()).items():
            if name in entry.outputs and entry.want(name).dtype.kind == "f":
                found[case.encoding].append((entry, case, name, np.asarray(x).view(np.ndarray).astype(float)))
    return found


def worst(entry, case, name, got):
    """The largest use of class A."""
    return judged(got, entry.want(name), *entry.budget(name), case.depth).worst


def measured(book, dtypes=DTYPES, only=lambda m: True, name=True):
    """(mutant, encoding) -> dtype -> its largest use, and the traps that are named for it in float32 (`name` False: none)."""
    cases, every, found = catalogue(), named.by_encoding(), {}
    for mutant in filter(only, mutants()):
        for encoding, tensors in runs(mutant, cases, book).items():
            if not any(x.shape != e.want(n).shape or not np.array_equal(x, e.want(n)) for e, _, n, x in tensors):
                continue  # it cannot show in this encoding
            most = {d: max(worst(e, c, n, in_dtype(x, d)) for e, c, n, x in tensors) for d in dtypes}
            found[mutant, encoding] = most, named.flags_of(mutant, encoding, every, book) if name else []
    return found


def rates(found):
    """What the table says: killed per dtype, right diagnosis seen and held out, in implementations (a mutant in an encoding)."""
    share = {d: (sum(not most[d] <= LIMIT for most, _ in found.values()), len(found)) for d in DTYPES}
    for kind, held in (("seen", False), ("held out", True)):
        mine = [(m, flags) for (m, _), (_, flags) in found.items() if m.held_out is held]
        share[kind] = (sum(flags[:1] == [m.flag] for m, flags in mine), len(mine))
    return share


def honest(book):
    """(arithmetic, dtype) -> hook -> the largest use of class A, over every case and tensor."""
    found = defaultdict(lambda: defaultdict(float))
    alarms = 0
    for case in catalogue():
        if case.level not in ("table", "op", "attn"):
            continue
        entry = book.entries[case.id]
        for name in arithmetic.ARITHMETICS:
            for dtype in ("F64", "F32"):
                with np.errstate(all="ignore"):
                    got = arithmetic.computed(case, entry.inputs(), name, {"F64": np.float64, "F32": np.float32}[dtype])
                for tensor in entry.outputs:
                    if entry.want(tensor).dtype.kind == "f":
                        used = worst(entry, case, tensor, in_dtype(got[tensor], dtype))
                        alarms += not used <= 1
                        found[name, dtype][case.hook or "none"] = max(found[name, dtype][case.hook or "none"], used)
                        if dtype == "F32":
                            for low in ("BF16", "F16"):
                                used = worst(entry, case, tensor, in_dtype(got[tensor], low))
                                if np.abs(entry.want(tensor)).max(initial=0) < 60000:
                                    alarms += not used <= 1
                                    found[name, low][case.hook or "none"] = max(found[name, low][case.hook or "none"], used)
    return found, alarms


def confused(found):
    """What docs/diagnosis.md says of the wrong names: which flag was meant, which was named, of how many implementations."""
    count = defaultdict(list)
    for (m, e), (_, flags) in found.items():
        if flags[:1] != [m.flag]:
            count[m.flag, flags[0] if flags else "nothing"].append(f"{m.name} in {e}{', held out' if m.held_out else ''}")
    lines = ["| meant | named | implementations |", "|---|---|---|"]
    for (meant, said), which in sorted(count.items(), key=lambda one: (-len(one[1]), one[0])):
        lines.append(f"| {meant} | {said} | {'; '.join(which[:4])}{f' and {len(which) - 4} more' if len(which) > 4 else ''} |")
    return "\n".join(lines)


def summary(found, alarms, table, after, unasked):
    """The table of the README."""
    share = rates(found)
    lines = ["| | |", "|---|---|", f"| wrong implementations | {len({m for m, _ in found})} bugs, {len(found)} with the encodings that have them |"]
    for d in DTYPES:
        lines.append(f"| noticed in {d.lower()} | {share[d][0]} of {share[d][1]} ({100 * share[d][0] / share[d][1]:.1f} %) |")
    for kind in ("seen", "held out"):
        lines.append(f"| right trap named first, {kind} | {share[kind][0]} of {share[kind][1]} ({100 * share[kind][0] / share[kind][1]:.1f} %) |")
    most = max(used for hooks in table.values() for used in hooks.values())
    lines.append(f"| right trap named first, written afterwards | {after[0]} of {after[1]} ({100 * after[0] / after[1]:.1f} %) |")
    wrongly, count, failing = unasked
    words = f"{len(wrongly)} of {failing} failing tensors and {count} implementations"
    lines.append(f"| a trap named where digits alone are missing (bfloat16 and float16 arithmetic) | {words} |")
    lines.append(f"| false alarms on honest arithmetic | {alarms}; largest use {most:.2f} of class A |")
    return "\n".join(lines)


def page(found, table):
    """docs/tolerance.md."""
    hooks = sorted({hook for hooks in table.values() for hook in hooks})
    lines = ["# What honest code uses of the tolerance rule, and what wrong code", "", "Written by `python tests/mutants/table.py`.", ""]
    lines += [
        "The largest use of class A (1 is its limit) over every case, output and derivative. `reference` and `float32 throughout` were at hand when"
    ]
    lines += ["the constants were chosen. The others were written afterwards, but looked at while the budgets were: no clean test of them.", ""]
    lines += ["| arithmetic | dtype | " + " | ".join(hooks) + " |", "|---" * (len(hooks) + 2) + "|"]
    for (name, dtype), used in table.items():
        lines.append(f"| {name} | {dtype.lower()} | " + " | ".join(f"{used[h]:.2f}" for h in hooks) + " |")
    lines += ["", "The smallest use by a wrong implementation, taking for each the tensor in which it shows most. Above 64 it fails.", ""]
    lines += ["| hook | " + " | ".join(d.lower() for d in DTYPES) + " | survivors |", "|---" * (len(DTYPES) + 2) + "|"]
    from peref.encodings import get

    for hook in hooks:
        mine = {key: most for key, (most, _) in found.items() if (get(key[1]).hook or "none") == hook}
        if mine:
            least = [f"{min(most[d] for most in mine.values()):.3g}" for d in DTYPES]
            alive = [
                f"{m.name} in {e} ({', '.join(d.lower() for d in DTYPES if most[d] <= LIMIT)})"
                for (m, e), most in mine.items()
                if min(most.values()) <= LIMIT
            ]
            lines.append(f"| {hook} | " + " | ".join(least) + f" | {'; '.join(alive) or 'none'} |")
    return "\n".join(lines) + "\n"


def written(path, text):
    """The part of a page between the two marks."""
    before, rest = path.read_text().split(START)
    path.write_text(before + START + "\n" + text + "\n" + STOP + rest.split(STOP)[1])


def main():
    book = Book(ROOT / "golden")
    found, (table, alarms) = measured(book), honest(book)
    after = named.of_later(book, lambda *words: print(*words, file=sys.stderr))
    unasked = named.of_honest(book)
    text = summary(found, alarms, table, after, unasked)
    print(text)
    written(ROOT / "docs" / "diagnosis.md", confused(found))
    (ROOT / "docs" / "tolerance.md").write_text(page(found, table))
    written(ROOT / "README.md", text)
    for where, name, flag in unasked[0]:
        print("named on honest code", where, name, flag, file=sys.stderr)
    for (m, e), (_, flags) in found.items():
        if flags[:1] != [m.flag]:
            print("misnamed", m.held_out, m.name, e, m.flag, flags[:3], file=sys.stderr)


if __name__ == "__main__":
    main()
