"""What is known of each CUDA kernel file: what it was compiled for here, what of it ran here on the CPU, and
what a device vouches for.

    python tests/attest.py           # CI prints this; it compiles and runs what it speaks of
    python tests/attest.py --all     # each variant compiled for every architecture, not for one in turn

A device vouches for a file where its present text was run on one: when, and how far from float64 it was.
tests/attest.json comes from `benchmarks/gpu.py` on a machine with a GPU, which writes it anew; it is never
edited by hand.
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
            said = "awaits a device: never run on one"
        elif about["sha256"] == hashlib.sha256(text.encode()).hexdigest():
            said = f"verified on device: {about['device']}, {about['date']}, error {about['error']:.1e}"
        else:
            said = f"awaits a device: changed since the last device run: {about['device']}, {about['date']}"
        lines.append(f"{file + '.cu':24}{said}")
    return lines


def kernels():
    """The text of each kernel file with what it includes."""
    from peref.backends.cuda.launch import VARIANTS, source

    return {file: source(file) for file in VARIANTS}


def compiled(file, every_sm):
    """What the compiler of this machine made of a file, in words; "" where there is none."""
    from emulated.compilers import SM, compiler, figures, report, variants

    from peref.backends.cuda.launch import source

    if not compiler():
        return ""
    found = [
        figures(report(source(file), [f"-D{k}={v}" for k, v in defines.items()], sm))
        for one, defines, sm in variants(every_sm)
        if one == file
    ]
    most, spilled = max(max(registers) for registers, *_ in found), sum(sum(spills) for _, spills, _ in found)
    return (
        f"compiled: {len(found)} variants {'each' if every_sm else 'in turn'} for "
        f"{', '.join(f'sm_{n}' for n in SM)}, at most {most} registers, {spilled} bytes spilled"
    )


def emulated():
    """{file: words} of the kernels that ran on the CPU, with their worst error against float64; of a small
    run of every op, forward and backward.
    """
    from contextlib import ExitStack
    from tempfile import TemporaryDirectory

    from on_gpu import correct, report, session

    from peref.backends.cuda.launch import declared

    found = {}
    with TemporaryDirectory() as out, ExitStack() as stack:
        s = session.opened(Path(out), True, stack)
        be = s.backend()
        every = (correct.rows, correct.heads, correct.recurrences, correct.products)
        cases = [case for some in every for case in some(True) if case[0]]
        works = [(case[0], lambda case=case: correct.checked(s, be, case, "float32", None)) for case in cases]
        for files, work in [*works, ("optimizer", lambda: correct.updating(s))]:
            row = work()
            for file in files.split():
                for way in report.ways_of(file, row):
                    ran, worst = found.get(file, (set(), 0.0))
                    found[file] = ran | set(way["kernels"]), max(worst, way["error"])
    found = {
        file: ({name for name in declared(file) if f"{file}.{name}" in ran}, error)
        for file, (ran, error) in found.items()
    }
    left = lambda file, ran: "".join(f"; NOT RUN: {name}" for name in sorted(set(declared(file)) - ran))
    return {
        file: f"run on the CPU: {', '.join(sorted(ran))}; error {error:.1e}{left(file, ran)}"
        for file, (ran, error) in found.items()
    }


def main(every_sm):
    from emulated.compilers import compiler

    made, ran, texts = compiler(), emulated() if shutil.which("g++") else {}, kernels()
    print(
        "compiler: "
        f"{' '.join(made[:2]) if made else 'neither nvcc nor NVRTC is here, nothing was compiled for a GPU'}"
    )
    for file, line in zip(
        sorted(texts), states(json.loads((HERE / "attest.json").read_text()), texts), strict=True
    ):
        print(line)
        for said in (compiled(file, every_sm), ran.get(file, "not run on the CPU: g++ is not here")):
            if said:
                print(f"{'':24}{said}")


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parent / "benchmarks")]
    main("--all" in sys.argv[1:])
