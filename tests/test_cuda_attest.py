"""The attestation says no more than a device said; what CI prints says what was compiled and run on the
CPU instead.
"""

import hashlib
import json
from pathlib import Path

import attest

from peref import backends
from peref.cli import evaluate, generate, text, train

ROOT = Path(__file__).resolve().parent.parent
KEPT = json.loads((ROOT / "tests" / "attest.json").read_text())


def test_every_kernel_has_its_line():
    """One for each file, none for a file that is gone; a claim has a device, a date and an error."""
    texts = attest.kernels()
    assert set(KEPT) == set(texts)
    for about in KEPT.values():
        assert {"sha256", "device", "date", "error"} <= set(about)
        assert (
            len(
                {
                    value is None
                    for key, value in about.items()
                    if key in ("sha256", "device", "date", "error")
                }
            )
            == 1
        )
    lines = attest.states(KEPT, texts)
    assert len(lines) == len(texts)
    print("\n".join(lines))


def test_cuda_is_called_experimental_until_a_device_has_attested_it():
    """By the help of every command that computes, and behind its name; no longer when all are verified."""
    awaited = [line for line in attest.states(KEPT, attest.kernels()) if "awaits a device" in line]
    assert awaited, (
        "all kernels are verified on a GPU: take EXPERIMENTAL away, and docs/cuda.md's word for it"
    )
    assert backends.EXPERIMENTAL.startswith("experimental: not all of its kernels are verified")
    for command in (train, evaluate, generate):
        (option,) = (one for one in command.command.params if one.name == "backend")
        assert f"cuda has kernels of its own ({backends.EXPERIMENTAL})" in option.help
    for name in backends.KNOWN:
        more = f" ({backends.EXPERIMENTAL})" if name.startswith("cuda") else ""
        assert text.chosen(name, name) == name + more
    page = " ".join((ROOT / "docs" / "cuda.md").read_text().split())
    assert "`--backend cuda`, which is **experimental**" in page


def test_what_a_line_says():
    """A text that changed by one letter is no longer verified."""
    ran = {
        "sha256": hashlib.sha256(b"text").hexdigest(),
        "device": "a GPU",
        "date": "2026-11-21",
        "error": 1e-6,
    }
    assert attest.states({"a": ran}, {"a": "text", "b": "text"}) == [
        "a.cu                    verified on device: a GPU, 2026-11-21, error 1.0e-06",
        "b.cu                    awaits a device: never run on one",
    ]
    assert attest.states({"a": ran}, {"a": "texT"}) == [
        "a.cu                    awaits a device: changed since the last device run: a GPU, 2026-11-21"
    ]


def test_every_kernel_runs_on_the_cpu(monkeypatch):
    """What CI prints names each of them, with an error; none is left out."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    ran = attest.emulated()
    assert set(ran) == set(KEPT)
    for file, said in ran.items():
        assert "NOT RUN" not in said, file
        assert float(said.rpartition(" ")[2]) < 1e-5
