"""What a backend does to the whole process is said where one asks for it, in backends.get."""

import ast
import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from peref import backends
from peref.backends import blas

SAID = {  # the call or the assignment -> the words for it
    "mallopt": "malloc keeps",
    "numba.set_num_threads": "numba's number of threads",
    "config.OPT": "optimisation level",
    "gc.disable": "garbage collector",
    "gc.set_threshold": "garbage is rarely collected",
    "xp.asarray": "cupy.asarray",
    "xp.array": "cupy.array",
    "xp.cuda.set_pinned_memory_allocator": "allocator of pinned memory",
    "gc.enable": "put back",
}
MORE = {"sys.setrecursionlimit", "warnings.simplefilter", "warnings.filterwarnings", "np.seterr"}


def effects(text):
    """Calls that change a setting of the process, and names of other modules that are given another value."""
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {"xp"} | {alias.asname or alias.name for node in imports for alias in node.names}
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            found |= {ast.unparse(node.func).removeprefix("self.")} & {*SAID, *MORE}
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= {ast.unparse(node)} if ast.unparse(node.value) in modules else set()
    return found


def test_what_a_backend_does_to_the_process_is_said():
    """Each effect that the sources have, and no other."""
    sources = Path(backends.__file__).parent.rglob("*.py")
    found = set().union(*(effects(path.read_text()) for path in sources))
    assert found == set(SAID), f"{found ^ set(SAID)}: leave it, or say it in backends.get and in SAID"
    said = " ".join(backends.get.__doc__.split())
    unsaid = [words for words in SAID.values() if words not in said]
    assert not unsaid, f"the docstring of backends.get does not say {unsaid}; write it there"


@pytest.mark.parametrize(
    "text",
    [
        "import gc\ngc.disable()",
        "self.xp.cuda.set_pinned_memory_allocator(f)",
        "xp.array = f",
        "import numpy as np\nnp.array, b = f, g",
    ],
)
def test_an_effect_is_found(text):
    """A call, or another value for a name."""
    assert len(effects(text)) == 1


WATCHED = '''
import ctypes, gc, json, locale, os, random, signal, sys, threading, warnings
import numba
import numpy as np

class Info(ctypes.Structure):  # mallinfo2 of glibc
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks hblks a b c d e f".split()]

def mapped():
    """Whether malloc asks the system for a large array apart, None where it does not say."""
    if not (ask := getattr(ctypes.CDLL(None), "mallinfo2", None)):
        return None
    ask.restype = Info
    before, array = ask().hblks, np.empty(100_000_000, np.uint8)
    return ask().hblks > before

def mask():
    before = os.umask(0)
    os.umask(before)
    return before

def blas():
    from peref.backends import blas
    return blas.threads()

WATCHED = {
    "gc": lambda: (gc.isenabled(), gc.get_threshold(), gc.callbacks),
    "numba's threads": numba.get_num_threads,
    "numba": lambda: (numba.core.config.OPT, numba.core.codegen.JITCPUCodegen._library_class),
    "malloc": mapped,
    "signals": lambda: [signal.getsignal(n) for n in sorted(signal.valid_signals())],
    "environment": lambda: dict(os.environ),
    "imports": lambda: (sys.path, sys.meta_path, sys.path_hooks),
    "warnings": lambda: (warnings.filters, warnings.showwarning),
    "NumPy": lambda: (np.geterr(), np.geterrcall(), np.get_printoptions(), np.array, np.asarray),
    "random numbers": lambda: (random.getstate(), np.random.get_state()),
    "locale": lambda: locale.setlocale(locale.LC_ALL),
    "interpreter": lambda: (sys.getrecursionlimit(), sys.getswitchinterval(), sys.excepthook),
    "streams": lambda: (sys.stdin, sys.stdout, sys.stderr),
    "folder": lambda: (os.getcwd(), mask()),
    "threads": threading.active_count,
    "BLAS's threads": blas,  # the last: this imports of peref
}
before = {name: repr(look()) for name, look in WATCHED.items()}

from peref import attention, backends, bias, get
from peref.config import Config
from peref.model import init
from peref.recipe import Recipe
from peref.train import stepped, with_moments

be = backends.get(NAME, ASKED)
cfg = Config(pe=(("alibi", {}),), L=8, C=16, layers=1, H=2)
state, tokens = with_moments(init(cfg)), np.arange(18).reshape(2, 9)
rule = Recipe(steps=7)
for step in (1, 2):
    given = [(tokens[:, :-1], tokens[:, 1:])], rule.numbers(step)
    status = stepped(be, cfg, rule.rule, *state.values(), *given)
assert np.isfinite(status).all()
get("alibi"), bias("alibi", heads=2, tokens=4), attention("rope", *np.ones((3, 1, 2, 4, 8), np.float32))
PLANTED
print(json.dumps([name for name, look in WATCHED.items() if repr(look()) != before[name]]))
'''


def changed(name="numpy", asked="", planted="", **variables):
    """What a process that uses the library, with these variables, has otherwise than before."""
    text = WATCHED.replace("NAME", repr(name)).replace("ASKED", asked).replace("PLANTED", planted)
    env = os.environ | variables
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, env=env)
    assert not done.returncode, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("name", "asked", "said"),
    [
        ("numpy", "", {}),
        ("numpy", "threads=1", {"BLAS's threads": "its BLAS keeps the threads that were asked for"}),
        (
            "numba",
            "threads=1",
            {
                "malloc": "malloc keeps what is freed",
                "numba's threads": "numba's number of threads is set for the calling thread",
            },
        ),
    ],
)
def test_a_process_is_after_a_call_as_it_was_before(name, asked, said):
    """But for what the docstring of backends.get says: two training steps and direct calls."""
    assert changed(name, asked) <= said.keys()
    words = " ".join(backends.get.__doc__.split())
    assert all(each in words for each in said.values())


def test_a_change_of_the_process_is_seen():
    """Of every kind that is watched, and nothing else."""
    planted = {
        "gc": "gc.set_threshold(600)",
        "numba's threads": "numba.set_num_threads(1)",
        "numba": "numba.core.config.OPT = 1",
        "malloc": "ctypes.CDLL(None).mallopt(-4, 0)",  # M_MMAP_MAX: the system is asked for none apart
        "warnings": "warnings.simplefilter('ignore')",
        "signals": "signal.signal(signal.SIGTERM, signal.SIG_IGN)",
        "environment": "os.environ['A'] = 'b'",
        "imports": "sys.path.append('a')",
        "NumPy": "np.seterr(all='raise')",
        "locale": "locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
        "interpreter": "sys.setrecursionlimit(2000)",
        "random numbers": "np.random.seed(1)",
        "streams": "sys.stdin = open(os.devnull)",
        "folder": "os.umask(0o7)",
        "threads": "threading.Thread(target=threading.Event().wait, daemon=True).start()",
        "BLAS's threads": "ask, use = peref.backends.blas.calls(); use(3 - ask())",  # 1 or 2
    }
    assert set(re.findall(r'^    "(.+?)": ', WATCHED, re.M)) == planted.keys()
    if not hasattr(ctypes.CDLL(None), "mallinfo2"):
        del planted["malloc"]  # not glibc
    if blas.calls() is None:
        del planted["BLAS's threads"]  # Accelerate
    two = {"OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2", "NUMBA_NUM_THREADS": "2"}
    assert changed(planted="import peref; " + "; ".join(planted.values()), **two) == planted.keys()
