"""What a backend does to the whole process is said where one asks for it, in backends.get."""

import ast
from pathlib import Path

import pytest

from peref import backends

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
