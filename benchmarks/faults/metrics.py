"""metrics.jsonl damaged while nobody trains: does resuming notice it, end with the checkpoint of an
undisturbed run, mend what an older checkpoint vouches for, and keep what it found where it cannot?
"""

import json
import random
from pathlib import Path
from typing import NamedTuple

from benchmarks.faults import SMALL, SOUND, Mutant, bits, copied, stepped_to, without

STEP, OLDER = 8, 6  # the checkpoints that are there
COUNT = 78
MUTANTS: dict[str, Mutant] = {
    "no digest is compared": ("peref.records.digest_of", "lambda fd, length: ''"),
}


class Case(NamedTuple):
    """How the bytes are changed, and where: a line, and a part of it."""

    change: str
    line: int
    place: float


CHANGES = {
    "a bit": lambda lines, n, at: flipped(lines, n, at),
    "a digit": lambda lines, n, at: edited(lines, n, lambda r: {**r, "loss": r["loss"] + 1e-3}),
    "another step": lambda lines, n, at: edited(lines, n, lambda r: {**r, "step": r["step"] + 1}),
    "a key less": lambda lines, n, at: edited(lines, n, lambda r: {"step": r["step"]}),
    "a list": lambda lines, n, at: [*lines[:n], b"[1]\n", *lines[n + 1 :]],
    "NaN": lambda lines, n, at: [*lines[:n], b'{"loss":NaN,"step":%d}\n' % (n + 1), *lines[n + 1 :]],
    "a line less": lambda lines, n, at: [*lines[:n], *lines[n + 1 :]],
    "a line twice": lambda lines, n, at: [*lines[: n + 1], *lines[n:]],
    "exchanged lines": lambda lines, n, at: [*lines[:n], *reversed(lines[n : n + 2]), *lines[n + 2 :]],
    "no end of line": lambda lines, n, at: [*lines[:n], lines[n][:-1] + b" ", *lines[n + 1 :]],
    "zeros": lambda lines, n, at: [*lines[:n], b"\0" * len(lines[n]), *lines[n + 1 :]],
    "cut off": lambda lines, n, at: [*lines[:n], lines[n][: int(at * len(lines[n]))]],
    "emptied": lambda lines, n, at: [],
}


def flipped(lines: list[bytes], n: int, at: float) -> list[bytes]:
    line = bytearray(lines[n])
    line[int(at * len(line))] ^= 1 << int(at * 1000) % 8
    return [*lines[:n], bytes(line), *lines[n + 1 :]]


def edited(lines, n, change):
    line = json.dumps(change(json.loads(lines[n])), sort_keys=True, separators=(",", ":")).encode() + b"\n"
    return [*lines[:n], line, *lines[n + 1 :]]


def cases(draw: random.Random, count: int) -> list[Case]:
    """Each kind of change as often, in random lines."""
    kinds = list(CHANGES)
    return [Case(kinds[n % len(kinds)], draw.randrange(STEP - 1), draw.random()) for n in range(count)]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What is wrong in the run that goes on."""
    run, whole = copied(STEP, folder / "run"), copied(SMALL.steps, folder / "whole")
    path = run.folder / "metrics.jsonl"
    before = path.read_bytes()
    path.write_bytes(b"".join(CHANGES[case.change](before.splitlines(keepends=True), case.line, case.place)))
    damaged, notes = path.read_bytes(), []
    assert damaged != before
    with without(mutant):
        stepped_to(run, SMALL.steps, say=notes.append)
    wanted, got = (one.checkpoint(SMALL.steps)[0] for one in (whole, run))
    if any(a.tobytes() != got[name].tobytes() for name, a in wanted.items()):
        return "the last weights and moments have other bits"
    if not any("metrics.jsonl" in note for note in notes):
        return "nothing was said"
    if bits(run) == bits(whole):
        return ""
    vouched = sum(map(len, before.splitlines(keepends=True)[:OLDER]))
    if damaged[:vouched] == before[:vouched]:
        return "it could have been mended"
    copy = run.folder / "bad" / "metrics.jsonl"
    if not copy.exists() or copy.read_bytes() != damaged:
        return "what was found is not kept"
    records, after = run.metrics.read(), path.read_bytes().splitlines()[STEP - SMALL.steps :]
    if after != (whole.folder / "metrics.jsonl").read_bytes().splitlines()[STEP:]:
        return "the lines after it are others"
    steps = [record["step"] for record in records]
    return "" if steps == sorted(set(steps)) else f"steps {steps} remain"
