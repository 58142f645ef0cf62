"""The attestation says no more than a device said; what CI prints says what was compiled and run on the
CPU instead.
"""

import hashlib
import json
from pathlib import Path

import attest

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


def test_the_page_names_what_no_device_has_run_as_it_is():
    """docs/cuda.md: the kernel files that have changed since a device ran them, or that none."""
    awaited = [line.split()[0] for line in attest.states(KEPT, attest.kernels()) if "awaits a device" in line]
    page = " ".join((ROOT / "docs" / "cuda.md").read_text().split())
    assert f"Kernel files that no device has run as they are: {', '.join(awaited) or 'none'}." in page


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
