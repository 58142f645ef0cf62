"""The one place that knows how `check` is asked and what it answers."""

import contextlib
import io
import json
import struct
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "golden" / "core"
SAFETENSORS = {
    "I64": np.int64,
    "I32": np.int32,
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BOOL": bool,
}


def stored(path):
    """The tensors of a safetensors file of the golden set."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    found = {}
    for name, at in header.items():
        first, stop = (8 + size + x for x in at["data_offsets"])
        found[name] = np.frombuffer(data[first:stop], SAFETENSORS[at["dtype"]]).reshape(at["shape"])
    return found


def cases(encoding, levels):
    """Pairs of a case, what a program may know of it, and its inputs."""
    folder = CORE / encoding
    tensors = stored(folder / "inputs.safetensors")
    for case in json.loads((folder / "cases.json").read_text())["cases"]:
        if case["level"] in levels:
            known = {
                k: case[k] for k in ("id", "encoding", "level", "options", "facts", "inputs", "expected")
            }
            yield known, {k: tensors[f"{case['id']}:{k}"] for k in case["inputs"]}


def dumped(program, encoding, levels, path):
    """What a program gives for all cases, as a file of bfloat16."""
    header, data, at = {}, [], 0
    for case, inputs in cases(encoding, levels):
        for name, x in (program(case, inputs) or {}).items():
            raw = np.ascontiguousarray(x).tobytes()
            header[f"{case['id']}:{name}"] = {
                "dtype": "BF16",
                "shape": list(x.shape),
                "data_offsets": [at, at + len(raw)],
            }
            data.append(raw)
            at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def answer(name, encoding, levels, dtype):
    """What `check` says of benchmarks.bugs.entry:NAME_DTYPE, as the numbers and names that are counted."""
    from peref.cli import Signals, run

    from . import entry

    with tempfile.TemporaryDirectory() as folder:
        if dtype == "bf16":  # given as a file: a function is not asked in it
            path = Path(folder) / "out.safetensors"
            dumped(getattr(entry, f"{name}_bf16"), encoding, levels, path)
            what = [str(path)]
        else:
            what = ["--impl", f"benchmarks.bugs.entry:{name}_{dtype}", "--in-process"]
            what += ["--dtype", dtype, "--pe", encoding]
            what += ["--level", levels[0]] if len(levels) == 1 else []
        told, aside = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(aside):
            code = run(["check", "--json", *what], Signals())
    try:
        said = json.loads(told.getvalue())
    except ValueError:
        return {"error": f"exit {code}: {(told.getvalue() + aside.getvalue())[-300:]}"}
    failed = [r for r in said["results"] if not r["passed"]]
    named = [r["trap"]["flag"] for r in failed if r.get("trap")]
    probable = [p["flag"] for p in said["probable"]]
    return {
        "compared": said["compared"],
        "failed": said["failed"] + len(said["errors"]) + len(said["crashes"]),
        "probable": probable,
        "confirmed": [p["flag"] for p in said["probable"] if p["confirmed"]],
        "named": list(dict.fromkeys(named)),
        "first": (probable or named or [None])[0],
    }
