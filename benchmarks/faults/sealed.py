"""run.json, metrics.jsonl and checkpoints with a right seal and strange contents: values of another kind,
other names, shapes and dtypes. Every command either works or says in words what is wrong, and never that
peref has a bug.
"""

import contextlib
import copy
import random
import signal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.faults import SOUND, Mutant, copied, said, without
from peref import records, runs, store
from peref.errors import PerefError

PATIENCE = 20  # seconds
STRANGE = [None, True, False, -1, 0, 1.5, 10**6, 10**30, 1e308, "", "x", "\0", "\ud800", "../../x", "é" * 300]
STRANGE += [[], [1], [None], ["alibi"], [["alibi"]], [[{}, "alibi"]], {}, {"a": 1}, {"alibi": {}}, [[]] * 3]
COUNT = 800
MUTANTS: dict[str, Mutant] = {
    "no kinds are checked": ("peref.records.misfit", "lambda x, schema: ''"),
    "no shapes are checked": ("peref.evaluate.check", "lambda cfg, params: None"),
}


class Case(NamedTuple):
    """Whose run it is, one of MODELS; what is strange: the record, a line or a checkpoint; which command
    meets it; what it is drawn from.
    """

    run: str
    what: str
    command: str
    seed: int


def cases(draw: random.Random, count: int) -> list[Case]:
    """Records twice as often as checkpoints."""
    kinds = ["record", "record", "lines", "arrays", "meta"]
    commands = ["train", "eval", "generate", "show", "runs", "report", "trace"]
    lists = ["text", "masked", "task"], kinds, commands
    return [Case(*map(draw.choice, lists), draw.randrange(10**9)) for _ in range(count)]


def fault(case: Case, folder: Path, mutant: Mutant = SOUND) -> str:
    """What a command answers that is no answer."""
    run, draw = copied(5, folder, case.run), random.Random(case.seed)
    count = ["--samples", 5] if case.run == "task" else ["--bytes", 50]
    tokens = [] if case.run == "task" else ["--tokens", 2]
    args = {
        "train": ["train", "--resume", run.folder, "--backend", "numpy"],
        "eval": ["eval", run.folder, "--len", 8, *count, "--backend", "numpy"],
        "generate": ["generate", run.folder, *tokens, "--backend", "numpy"],
        "show": ["show", "--run", run.folder, "-o", folder / "alibi.svg"],
        "runs": ["runs", run.folder],
        "report": ["report", run.folder, "--bytes", 50, "-o", folder / "x.html", "--backend", "numpy"],
        "trace": ["trace", run.folder, "--prompt", "the cat", "-o", folder / "x.safetensors"],
    }[case.command]
    change = spoil(run, case.what, draw)
    signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        with without(mutant):
            code, err = said(*args)
    finally:
        signal.alarm(0)
    if "internal error" in err or "Traceback" in err or "TimeoutError" in err:
        return f"{change}: {err[-300:]}"
    return "" if code in (0, 1, 2) else f"{change}: exit code {code}"


def late(number: int, frame: Any) -> None:
    raise TimeoutError(f"no answer in {PATIENCE} s")


def spoil(run: runs.Run, what: str, draw: random.Random) -> str:
    """Change what is in a run, with a right seal; says what was changed."""
    checkpoints = {step: run.checkpoint(step) for step in run.checkpoints}
    record, words = run.record, ""
    if what == "record":
        words = changed(record, draw)
        (run.folder / "run.json").write_text(records.sealed(record))
    if what == "lines":
        lines = dict(enumerate(run.metrics.read()))
        words = changed(lines, draw)
        run.metrics.path.write_text("".join(f"{store.canonical(line)}\n" for line in lines.values()))
    for step, (arrays, meta) in checkpoints.items():
        with contextlib.suppress(PerefError):  # of a strange record there may be none
            meta["run"] = run.identity
        if what == "meta":
            words = changed(meta, random.Random(step))
        if what == "arrays":
            words = reshaped(arrays, draw)
        store.save(run.folder / "ckpt" / f"{step:08d}.safetensors", arrays, meta)
    return words


def changed(tree: Any, draw: random.Random) -> str:
    """Put something strange at a random place of a JSON value, or leave a key out."""
    top = draw.choice(list(tree))
    path = draw.choice([(top, *place) for place in walk(tree[top])[: draw.choice([1, None])]])
    *above, last = path
    for key in above:
        tree = tree[key]
    if isinstance(tree, dict) and draw.random() < 0.1:
        del tree[last]
        return f"without {path}"
    tree[last] = copy.deepcopy(draw.choice(STRANGE))
    return f"{path} = {tree[last]!r}"[:200]


def walk(tree: Any, path: tuple = ()) -> list[tuple]:
    """The places of all values in it."""
    inside = enumerate(tree) if isinstance(tree, list) else tree.items() if isinstance(tree, dict) else ()
    return [path, *(one for key, value in inside for one in walk(value, (*path, key)))]


def reshaped(arrays: dict[str, np.ndarray], draw: random.Random) -> str:
    """Another shape, dtype or name for one of the arrays, or one more or less."""
    name = draw.choice(list(arrays))
    a = arrays.pop(name)
    kinds = ["f8", "f2", "i4", "u1", "?"]
    how = draw.choice(["dtype", "shape", "name", "less", "more", "transposed", "empty", "flat", "huge"])
    if how == "dtype":
        arrays[name] = a.astype(draw.choice(kinds))
    elif how == "name":
        arrays[draw.choice(["x", "p/", "/", "p/x", "m/..", "q/" + name[2:], "p/" + name])] = a
    elif how == "more":
        arrays |= {name: a, draw.choice(["x", "p/x", "v/1", "p/99.q.weight"]): a}
    elif how == "huge":
        arrays[name] = (a * np.float32(1e38)).astype(a.dtype)
    elif how != "less":
        shapes = {"shape": a[..., :1], "transposed": a.T[None], "empty": a[:0], "flat": a.reshape(-1)}
        arrays[name] = shapes[how]
    return f"{name}: {how}"
