"""Where the package is and what it was started with: its files, in a checkout and in an installed wheel,
and the user's settings around it.
"""

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from peref.errors import PerefError

if os.name == "posix":
    import resource  # at once: within a limit it may find no room later

PACKAGE = Path(__file__).resolve().parent
CARRIED = "_share"  # in a wheel: peref/_share/data, peref/_share/golden (see force-include in pyproject.toml)
COMPLETE = "_PEREF_COMPLETE"  # the variable by which a shell asks for completions, in click's way


def is_checkout(package: Path = PACKAGE) -> bool:
    """True where the package stands in a checkout (or an editable install of one), False in an installed
    wheel.
    """
    return not (package / CARRIED).is_dir() and (package.parent / "pyproject.toml").is_file()


def program(package: Path = PACKAGE, argv: Sequence[str] | None = None) -> str:
    """What the commands in messages begin with: what was called, cli.py or `-m peref`, else `python
    cli.py` in a checkout and `peref` elsewhere.
    """
    called = Path(*(sys.argv if argv is None else argv)[:1])
    if called.name == "cli.py":
        return f"python {shlex.quote(str(called))}"
    if called.parts[-2:] == ("peref", "__main__.py"):
        return "python -m peref"
    return "python cli.py" if is_checkout(package) and called.name != "peref" else "peref"


def install(what: str, package: Path = PACKAGE) -> str:
    """The command that installs `what`, quoted for every shell: a requirement, or "" for peref and [NAME] for
    an extra of it, in a checkout from there.
    """
    if what and not what.startswith("["):
        return f"pip install {shlex.quote(what)}"
    if not is_checkout(package):
        return f"pip install {shlex.quote(f'peref{what}')}"
    top = "." if package.parent.samefile(".") else package.parent
    return f"pip install -e {shlex.quote(f'{top}{what}')}"


def from_environment(name: str, environ: Mapping[str, str] = os.environ) -> str:
    """What the environment says under a name, "" for nothing."""
    return environ.get(name, "").strip()


@cache
def code(package: Path = PACKAGE) -> str:
    """16 hex digits of the SHA-256 of the package's sources, which change with any of them. Looked at once: a
    process goes on with the code that it began with.
    """
    found = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        body = path.read_bytes()
        found.update(f"{path.relative_to(package).as_posix()}\0{len(body)}\0".encode() + body)
    return found.hexdigest()[:16]


def blas_threads(environ: Mapping[str, str] = os.environ) -> int | str:
    """How many threads NumPy's BLAS was told to use, in the words of the environment where they are no
    number; else the cores it may use.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        if said := from_environment(name, environ):
            return int(said) if said.isdecimal() else said
    return allowed_cores()


def allowed_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def address_space() -> int | None:
    """Bytes that this process may have, where it was given a limit (ulimit -v)."""
    if os.name != "posix":
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def within_limit() -> str:
    """What follows words about something that found no room, where a limit may be why."""
    limit = address_space()
    return f": this process may have {limit / 1e6:,.0f} MB; raise that (ulimit -v)" if limit else ""


def folder(name: str, package: Path = PACKAGE) -> Path:
    """The folder `name` ("data" or "golden"): at the top of a checkout, or inside an installed package.

    Raises PerefError where there is none.
    """
    place = (package.parent if is_checkout(package) else package / CARRIED) / name
    if not place.is_dir():
        what = f"the folder {name!r} that comes with peref is missing: expected {place}"
        raise PerefError(f"{what}; reinstall peref or restore the checkout")
    return place


def cache_folder(platform: str = sys.platform, environ: Mapping[str, str] = os.environ) -> Path:
    """The user's cache folder for peref, by the custom of the platform. It need not exist yet. Raises
    RuntimeError where there is no home folder; an empty HOME would mean the root of all.
    """
    asked = Path(environ.get("XDG_CACHE_HOME", ""))
    if platform != "darwin" and asked.is_absolute():
        return asked / "peref"
    if environ.get("HOME") == "":
        raise RuntimeError("HOME is empty")
    return Path.home() / ("Library/Caches" if platform == "darwin" else ".cache") / "peref"
