"""Commands that need no kernel: each runs for real in a process of its own, imports no numba and compiles
nothing.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from peref.cli.app import COMMANDS
from peref.golden.spec.book import Book

ROOT = Path(__file__).resolve().parent.parent
COMPILERS = {"numba", "llvmlite", "cupy", "distributed"}  # and what a cluster alone needs
LINES = {
    "nothing": [],
    "version": ["--version"],
    "help of train": ["train", "--help"],
    "list": ["list"],
    "runs": ["runs"],
    "list as JSON": ["list", "--json"],
    "show a picture": ["show", "alibi", "-o", "alibi.svg"],
    "show a config": ["show", "--config", "config.json"],
    "check": ["check", "mine.safetensors", "--golden", "made", "--report", "json:again.json"],
    "diff": ["diff", "made", "made"],
    "matrix": ["matrix", "report.json"],
    "explain": ["explain"],
    "golden show": ["golden", "show", "--golden", "made"],
    "golden verify": ["golden", "verify", "made"],
    "golden vectors": ["golden", "vectors", "--pe", "rope", "--shape", "1,2,1,3,4", "-o", "other"],
    "data": ["data"],
    "laws": ["laws", "none"],
    "tasks of a sweep": ["sweep", "grid.toml", "--dry-run"],
}
WATCHED = """
import json, sys
from peref.cli import run
from peref.cli.signals import Signals
code = run(sys.argv[1:], Signals())
print(json.dumps([code, sorted({name.partition(".")[0] for name in sys.modules})]), file=sys.stderr)
"""


def test_installed_packages_are_looked_up_where_a_name_needs_it():
    """Not for each command: that takes as long as all of click."""
    code = "import sys, peref.cli.check; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def done(folder, *args, first=""):
    """A command line that succeeds, in a process of its own: the top packages that this has loaded."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    process = subprocess.run(
        [sys.executable, "-c", first + WATCHED, *args], cwd=folder, env=env, capture_output=True, text=True
    )
    code, loaded = json.loads(process.stderr.splitlines()[-1])
    assert code == 0, process.stdout + process.stderr
    return set(loaded)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What the lines above read: golden files, tensors that agree with them, a report of that, a public
    config.
    """
    here = tmp_path_factory.mktemp("lazy")
    done(here, "golden", "vectors", "--pe", "alibi", "--shape", "1,2,1,3,4", "-o", "made")
    tensors = {
        f"{entry.id}:{name}": entry.want(name)
        for entry in Book(here / "made").entries.values()
        for name in entry.outputs
    }
    save_file(tensors, here / "mine.safetensors")
    done(here, "check", "mine.safetensors", "--golden", "made", "--report", "json:report.json")
    shutil.copy(ROOT / "tests" / "configs" / "llama-3.1-8b.json", here / "config.json")
    (here / "grid.toml").write_text('pe = ["rope", "alibi"]\n')
    return here


@pytest.mark.parametrize("args", LINES.values(), ids=LINES.keys())
def test_it_imports_no_compiler_and_compiles_nothing(folder, args):
    """Compiled kernels would be in the cache folder, which is empty at the start."""
    loaded = COMPILERS & done(folder, *args)
    assert not loaded, f"{args} imports {loaded}; import it in the function that computes with it"
    assert not (folder / "cache" / "peref").exists()


RUNNING = {"eval", "compare", "search", "report", "generate", "warmup", "import", "export", "trace"}


def test_every_command_is_among_them():
    """But for those that run a model, or read its weights."""
    assert {args[0] for args in LINES.values() if args} >= COMMANDS.keys() - RUNNING


def test_numba_would_be_seen(folder):
    """A command that imported it, and the folder that it keeps kernels in."""
    used = (
        "import numpy\n"
        "from peref.backends.numba.ops.ends import take\n"
        "take.forward(numpy.eye(2, dtype='f'), numpy.arange(2))\n"
    )
    assert COMPILERS & done(folder / "made", "--version", first=used)
    assert (folder / "made" / "cache" / "peref").exists()
