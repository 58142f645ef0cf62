"""The formulas of golden/SPEC.md, section 4, against the files: the program of each encoding, written from
that page alone (page.py), gives every golden case of levels table, op and attn in class A, every option among
them, packed documents, windows, padding and grouped heads too.
"""

import numpy as np
import pytest
from recipes import said

from peref.encodings import get, names
from peref.golden.compute.operation import named_in
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on

LEVEL = {"embed": "table", "rotate": "table", "bias": "table", "score": "op", "attend": "attn", "mix": "op"}


def computed(words, a):
    """Name of the output -> array."""
    name, o, f = words["encoding"], words["options"], words["facts"]
    hook, program = get(name).hook, said(name, "program")
    p = {key.removeprefix("param."): x for key, x in a.items() if key.startswith("param.")}
    if hook == "embed":
        return {"rows": program(p, a["positions"], o, f)}
    if hook == "bias":
        return {"bias": program(p, a["distances"], o, f)}
    if hook == "rotate":
        angle, gain_q, gain_k = program(p, a["positions"], o, f)
        return {
            "angle": angle,
            "cos": np.cos(angle),
            "sin": np.sin(angle),
            "gain_q": gain_q,
            "gain_k": gain_k,
        }
    found = {}
    name = {"score": "term", "attend": "out", "mix": "y"}[hook]
    return {name: of_documents(hook, program, p, a, o, f, found)} | found


def of_documents(hook, program, p, a, o, f, last):
    """Each document alone: the term [B,H,T,T], 0 where a query does not see; the output [B,H,T,D] or y
    [B,T,C], 0 at padding. In `last` comes the last state of each sequence.
    """
    B, T = a["x" if hook == "mix" else "q"].shape[0], f["T"]
    i = np.broadcast_to(a["positions"], (B, T)) if "positions" in a else np.zeros((B, T))
    found = np.zeros((B, f["H"], T, T) if hook == "score" else a["x" if hook == "mix" else "q"].shape)
    for b in range(B):
        seg = a["seg"][b] if "seg" in a else np.ones(T)
        for number in sorted(set(seg) - {0}):
            rows = np.flatnonzero(seg == number)
            x = a["x"][b, rows] if "x" in a else None
            if hook == "mix":
                state = {n: y[b] for n, y in named_in(a, "state.").items()}
                found[b, rows], after = program(p, x, i[b, rows], o, f, state)
                for key, y in after.items():
                    last.setdefault(f"last.{key}", np.zeros((B, *y.shape)))[b] = y
                continue
            t, s = np.ix_(rows, rows)
            see = ((s <= t) | (not f["causal"])) & (abs(t - s) < (f["window"] or T))
            q, k, v = (a[key][b][:, rows] if key in a else None for key in "qkv")
            k, v = (y if y is None else np.repeat(y, f["H"] // f["G"], 0) for y in (k, v))
            given = (p, q, k, x, i[b, rows], see, o, f)
            if hook == "score":
                found[b][np.ix_(range(f["H"]), rows, rows)] = np.where(see, program(*given), 0)
            else:
                found[b][:, rows] = program(*given, v)
    return found


@pytest.mark.parametrize("name", [name for name in names() if get(name).hook])
def test_a_program_written_from_the_page_agrees(book, name):
    entries = [
        e
        for e in book.entries.values()
        if e.words["encoding"] == name and e.words["level"] == LEVEL[get(name).hook]
    ]
    assert entries, (
        f"no case of {name} has level {LEVEL[get(name).hook]}; write one in tests/recipes/{name}.py"
    )
    for entry in entries:
        got = computed(entry.words, entry.inputs())
        for output in (n for n in entry.outputs if not n.startswith("vjp.")):
            verdict = verdict_on(
                *(Tensor("F64", np.asarray(got[output], float)), entry.want(output), *entry.budget(output)),
                entry.words["depth"],
            )
            assert verdict.grade == "A", (entry.id, output, verdict.worst)
