"""Where the files that come with the package are, and where those that it fetches go: in a checkout and in an installed wheel."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from peref.errors import PerefError

PACKAGE = Path(__file__).resolve().parent
CARRIED = "_share"  # in a wheel: peref/_share/data, peref/_share/golden (see force-include in pyproject.toml)


def is_checkout(package: Path = PACKAGE) -> bool:
    """True where the package stands in a checkout (or an editable install of one), False in an installed wheel."""
    return not (package / CARRIED).is_dir() and (package.parent / "pyproject.toml").is_file()


def folder(name: str, package: Path = PACKAGE) -> Path:
    """The folder `name` ("data" or "golden"): at the top of a checkout, or inside an installed package.

    Raises PerefError where there is none.
    """
    place = (package.parent if is_checkout(package) else package / CARRIED) / name
    if not place.is_dir():
        raise PerefError(f"the folder {name!r} that comes with peref is missing: expected {place}; reinstall peref or restore the checkout")
    return place


def cache(platform: str = sys.platform, environ: Mapping[str, str] = os.environ) -> Path:
    """The user's cache folder for peref, by the custom of the platform. It need not exist yet."""
    if platform == "darwin":
        return Path.home() / "Library" / "Caches" / "peref"
    variable, custom = ("LOCALAPPDATA", "AppData/Local") if platform == "win32" else ("XDG_CACHE_HOME", ".cache")
    asked = Path(environ.get(variable, ""))
    return (asked if asked.is_absolute() else Path.home() / custom) / "peref"


def downloads() -> Path:
    """Where fetched corpora are kept: `data/` in a checkout, else the cache folder. It need not exist yet."""
    return folder("data") if is_checkout() else cache()
