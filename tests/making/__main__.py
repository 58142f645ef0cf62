"""python -m tests.making [--only NAME ...] [-o FOLDER]: the golden files, made from the recipes; in a
checkout, from its top.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from making.make import make  # noqa: E402

from peref.errors import PerefError  # noqa: E402

parser = argparse.ArgumentParser(
    prog="python -m tests.making",
    description="Make golden files from the recipes: what is new or differs is written.",
)
parser.add_argument(
    "--only",
    action="append",
    default=[],
    metavar="NAME",
    help="this encoding alone; may be given more than once",
)
parser.add_argument(
    "-o",
    "--output",
    type=Path,
    default=ROOT / "golden",
    metavar="FOLDER",
    help="where to  [default: golden/ of the checkout]",
)
given = parser.parse_args()
try:
    written = make(given.output, given.only, print)
except PerefError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)
for place in written:
    print(f"written: {place}")
if not written:
    print("everything agrees with what is written; no case was changed")
