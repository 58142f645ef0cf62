"""What a device vouches for: of each CUDA kernel file whether its present text was run on one, when, and how far from float64 it was.

    python tests/attest.py        # one line for each, and what compiles and runs them here instead; CI prints that

tests/attest.json comes from `benchmarks/gpu.py` on a machine with a GPU, which writes it anew; it is never edited by hand.
"""

import hashlib
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def states(kept, texts):
    """One line for each kernel file: texts {file: source}, kept {file: sha256, device, date, error}."""
    lines = []
    for file, text in sorted(texts.items()):
        about = kept.get(file, {})
        if not about.get("device"):
            said = "never run on a device"
        elif about["sha256"] == hashlib.sha256(text.encode()).hexdigest():
            said = f"verified on device: {about['device']}, {about['date']}, error {about['error']:.1e}"
        else:
            said = f"changed since the last device run: {about['device']}, {about['date']}"
        lines.append(f"{file + '.cu':24}{said}")
    return lines


def kernels():
    """The text of each kernel file with what it includes."""
    from peref.backends.cuda.launch import VARIANTS, source

    return {file: source(file) for file in VARIANTS}


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    from emulated.compilers import SM, compiler

    found, gcc = compiler(), shutil.which("g++")
    print(f"compiled for {' and '.join(f'sm_{n}' for n in SM)} by  {' '.join(found[:2]) if found else 'nothing here'}")
    print(f"run on the CPU by             {gcc or 'nothing here'}")
    print(*states(json.loads((HERE / "attest.json").read_text()), kernels()), sep="\n")
