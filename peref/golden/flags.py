"""What each flag means: the trap, its effect, the remedy, and where it was seen. The golden files of each
encoding say it.
"""

from typing import Any

from peref import share
from peref.golden.files import strict_json
from peref.golden.sums import CORE
from peref.store import read_bytes


def known() -> dict[str, dict[str, Any]]:
    """Flag -> its words, of all encodings that come with peref."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted((share.folder("golden") / CORE).glob("*/cases.json")):
        found |= strict_json(read_bytes(path), str(path))["flags"]
    return dict(sorted(found.items()))
