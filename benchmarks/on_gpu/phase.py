"""One phase of benchmarks/gpu.py, which starts this: python benchmarks/on_gpu/phase.py NUMBER OUT SECONDS
[--emulated]
"""

import sys
from contextlib import ExitStack
from pathlib import Path

sys.path[:0] = [
    str(Path(__file__).resolve().parent.parent),
    str(Path(__file__).resolve().parent.parent.parent),
]

TITLES = ("0 environment", "1 compiling", "2 ceilings", "3 go or no-go", "4 correctness", "5 our times")


def main(number: int, out: Path, seconds: float, emulated: bool) -> None:
    from on_gpu import session
    from peref.errors import Misuse

    with ExitStack() as stack:
        try:
            s = session.opened(out, emulated, stack, TITLES[number], seconds)
        except Misuse as error:
            raise SystemExit(f"benchmarks/gpu.py: {error}") from error
        from on_gpu import ceilings, compiling, correct, gonogo, timings

        works = (
            ceilings.environment,
            compiling.compiling,
            ceilings.ceilings,
            gonogo.decide,
            correct.correctness,
            timings.timings,
        )
        works[number](s)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), "--emulated" in sys.argv)
