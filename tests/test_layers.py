"""Who imports whom, and what nothing may use: read from the source text of the package, and seen in a
fresh process.
"""

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PEREF, TESTS = ROOT / "peref", ROOT / "tests"

# A module imports modules of earlier rows only; within one folder also each other, without a cycle. "peref"
# is peref/__init__.py.
ROWS = [
    "errors page xp",
    "compare masking modules rng schema share tape",
    "ops.*",
    "patches positions",
    "encodings.record",
    "encodings.values",
    "encodings.own_file",
    "encodings data optim store",
    "encodings.* backends records tasks",
    "runs",
    "backends.*",
    "hooks vocabulary",
    "combination",
    "member",
    "config",
    "parameter_axes parameters settings",
    "cache memory passes",
    "layers",
    "model",
    "direct encoder_decoder generate huggingface.* recipe trace",
    "evaluate",
    "huggingface",
    "porting.*",
    "porting",
    "peref",
    "environment exact_match warm_start",
    "imported train",
    "golden",
    "golden.spec golden.spec.*",
    "golden.compute golden.compute.*",
    "golden.diagnosis golden.diagnosis.*",
    "golden.judge golden.judge.*",
    "trace_diff.*",
    "trace_diff",
    "laws.*",
    "laws",
    "lab.*",
    "cli.*",
    "__main__",
]
ROOMS = ("spec", "compute", "diagnosis", "judge")  # of golden, in the order in which they import
OTHERS = {  # packages that are not the standard library -> the modules that may import them; "" is all
    "numpy": [""],
    "safetensors": ["store", "golden.spec.files", "porting.files"],
    "tokenizers": ["vocabulary"],
    "click": ["cli"],
    "tqdm": ["cli"],
    "matplotlib": ["lab.pictures"],
    "distributed": ["lab.sweep"],
    "numba": ["backends"],
    "llvmlite": ["backends"],
    "cupy": ["backends"],
    "cupyx": ["backends"],
    "ml_dtypes": ["backends"],
}
IN_TESTS = {
    "tokenizers",
    "numpy",
    "pytest",
    "peref",
    "click",
    "tqdm",
    "safetensors",
    "numba",
    "cupy",
    "ml_dtypes",
    "mpmath",
    "jsonschema",
    "distributed",
}
OF_TESTS = {"loops", "recipes", "mutants", "making"}  # what tests are made of, which the package does without
# what numba compiled, which it pickles: under a digest, and from a folder that nobody else may write
UNPICKLES = "backends.numba.kept"
DYNAMIC = (
    "encodings",
    "cli.app",
    "backends",
    "golden.judge.function",
    "golden.judge.implementation",
)  # and below: import by a computed name


def name_of(path: Path) -> str:
    """The module's name without the leading package: peref/ops/norm.py is "ops.norm", peref/__init__.py
    "peref".
    """
    parts = path.relative_to(PEREF).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "peref"


@cache
def sources() -> dict[str, str]:
    return {name_of(path): path.read_text() for path in sorted(PEREF.rglob("*.py"))}


def imported(name: str, text: str, known: set[str], package: bool) -> set[str]:
    """What a module of this text imports anywhere in it: modules of `known` by their short names, others
    by that of their top package.
    """
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["peref", *([] if name == "peref" else name.split("."))]
                up = here[: len(here) - node.level + package]
                base = ".".join([*up, *([node.module] if node.module else [])])
            whole = {f"{base}.{alias.name}" for alias in node.names}
            inside = {w for w in whole if w.removeprefix("peref.") in known}
            found |= inside | ({base} if inside != whole else set())
    return {f.removeprefix("peref.") if f.startswith("peref") else f.partition(".")[0] for f in found}


def tops(text: str) -> set[str]:
    """The top packages that a text imports."""
    nodes = list(ast.walk(ast.parse(text)))
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {
        n.partition(".")[0]
        for n in whole
        | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    }


def row_of(name: str) -> int:
    """The row a module stands in: under its own name, else under that of its folder."""
    for k, row in enumerate(ROWS):
        if name in row.split():
            return k
    for folder in (name.rpartition(".")[0], name.partition(".")[0]):
        for k, row in enumerate(ROWS):
            if f"{folder}.*" in row.split():
                return k
    raise AssertionError(f"{name} stands in no row of test_layers.ROWS; say who may import it")


def wrong_imports(texts: dict[str, str], packages: set[str]) -> list[str]:
    """Each import that goes against the rows, and each cycle."""
    graph = {
        name: imported(name, text, set(texts), name in packages) & set(texts) for name, text in texts.items()
    }
    if "backends" in graph:  # get() imports the one backend that is asked for, when it is asked for
        graph["backends"] = {other for other in graph["backends"] if not other.startswith("backends.")}
    found = []
    for name, others in graph.items():
        for other in others - {name}:
            inside = name.partition(".")[0] == other.partition(".")[0]
            family = all(row_of(x) == row_of("encodings.none") for x in (name, other))
            if family or not (row_of(other) < row_of(name) or (inside and row_of(other) <= row_of(name))):
                found.append(f"{name} imports {other}")
    try:
        TopologicalSorter({name: others - {name} for name, others in graph.items()}).prepare()
    except CycleError as error:
        found.append(f"a cycle: {' <- '.join(error.args[1])}")
    return found


def foreign(name: str, text: str, known: set[str], package: bool) -> list[str]:
    """Each package that this module may not import."""
    found = []
    for other in imported(name, text, known, package) - known - set(sys.stdlib_module_names):
        if not any(
            not where or name == where or name.startswith(where + ".") for where in OTHERS.get(other, [])
        ):
            found.append(f"{name} imports {other}")
    return found


def edits_where_python_looks(node: ast.Attribute | ast.Subscript) -> bool:
    """A method of sys.path, or something put there; to read it is no harm."""
    whole = ast.unparse(node)
    return whole.startswith("sys.path.") or (
        re.match(r"sys\.path(\[|$)", whole) is not None and not isinstance(node.ctx, ast.Load)
    )


# the package's own functions with one expression changed; nothing that comes from outside
COMPILES = "golden.diagnosis.variants", "compile"


def forbidden(name: str, text: str) -> list[str]:
    """Each use of what nothing here may use."""
    found = []
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                modules = {alias.name for alias in names} | {getattr(node, "module", None)}
                found += [
                    f"{name}: {m}"
                    for m in modules & {"pickle", "cPickle", "dill", "marshal", "shelve", "joblib"}
                    if name != UNPICKLES
                ]
                found += [f"{name}: sys.path" for _ in modules & {"path"} if "sys" in modules]
                found += [f"{name}: os.{m}" for m in modules & {"environ", "getenv"} if name != "share"]
            case ast.Attribute() | ast.Subscript() if edits_where_python_looks(node):
                found.append(f"{name}: sys.path")
            case ast.Constant(value=str(word)) if word.partition(".")[0] in OF_TESTS:
                found.append(f"{name}: {word!r}, which is of the tests")
            case ast.keyword(arg="allow_pickle"):
                found.append(f"{name}: allow_pickle")
            case ast.keyword(arg="fastmath", value=value):
                told = ast.unparse(value)
                if told not in ("False", "{'contract'}"):
                    found.append(f"{name}: fastmath={told}")
            case ast.Call(func=ast.Name(id="eval" | "exec" | "compile" | "__import__" as used)) if (
                name,
                used,
            ) != COMPILES:
                found.append(f"{name}: {used}()")
            case ast.Call(func=ast.Name(id="import_module") | ast.Attribute(attr="import_module")) if (
                not name.startswith(DYNAMIC)
            ):
                found.append(f"{name}: import_module()")
            case ast.Name(id="NotImplementedError") | ast.Attribute(attr="NotImplementedError"):
                found.append(f"{name}: NotImplementedError")
            case ast.Attribute(value=ast.Name(id="os"), attr="environ" | "getenv" | "environb" as used) if (
                name != "share"
            ):
                found.append(f"{name}: os.{used}")
            case ast.Global():
                found.append(f"{name}: global {', '.join(node.names)}")
    return found


@cache
def packages() -> set[str]:
    return {name_of(path) for path in PEREF.rglob("__init__.py")}


# ---------------------------------------------------------------- the package


def test_imports_go_one_way():
    """Every module imports earlier rows only, encodings never one another, and nothing goes in a circle."""
    assert len(sources()) > 40
    wrong = wrong_imports(sources(), packages())
    assert not wrong, report(wrong, "import only what stands in an earlier row of ROWS (this file)")


def report(wrong, remedy):
    """What to do, and each place where."""
    return "\n".join([remedy, *map(str, wrong)])


@pytest.mark.parametrize("folder", ["golden", *(f"golden.{room}" for room in ROOMS)])
def test_a_folder_lists_what_is_in_it(folder):
    """The docstring of golden names every room, and that of each room every module, a line each."""
    place = PEREF / folder.replace(".", "/")
    there = {p.stem for p in place.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file()}
    said = re.findall(r"^(\w+)  +\S", ast.get_docstring(ast.parse((place / "__init__.py").read_text())), re.M)
    assert sorted(said) == sorted(there - {"__init__"})


@cache
def graph() -> dict[str, set[str]]:
    return {
        name: imported(name, text, set(sources()), name in packages()) for name, text in sources().items()
    }


def readers(name: str) -> set[str]:
    """The modules outside `ops` that import this one of them, also by way of others in there."""
    found, todo = set(), [name]
    while todo:
        one = todo.pop()
        using = {other for other, imports in graph().items() if one in imports} - found
        found |= using
        todo += [other for other in using if other.startswith("ops.")]
    return {other for other in found if not other.startswith("ops.")}


@pytest.mark.parametrize("name", [name for name in sources() if name.startswith("ops.")])
def test_an_op_serves_more_than_one_encoding(name):
    """What one encoding alone needs is in its file, forward and backward under the formula; an op is the
    model's or a backend's, or two need it.
    """
    users = readers(name)
    assert len(users) > 1 or not all(user.startswith("encodings.") for user in users), (
        f"{name} serves {', '.join(users) or 'nothing'}; move it into that encoding's file, or take it out"
    )


def alone(texts: dict[str, str]) -> list[str]:
    """Each name of a module of ops that one encoding imports, and nobody else uses, nor its own module."""
    users: dict[str, set[str]] = {}
    for name, text in texts.items():
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.ImportFrom(module=str(of), names=names) if of.startswith("peref.ops."):
                    for one in names:
                        users.setdefault(f"{of.removeprefix('peref.')}.{one.name}", set()).add(name)
                case ast.Name(id=word, ctx=ast.Load()) if name.startswith("ops."):
                    users.setdefault(f"{name}.{word}", set()).add(name)
    only = {word: next(iter(some)) for word, some in users.items() if len(some) == 1}
    return [f"{word} serves {user}" for word, user in only.items() if user.startswith("encodings.")]


def test_a_function_of_the_ops_serves_more_than_one_encoding():
    """By name, also in a module that serves several."""
    found = alone(sources())
    assert not found, report(found, "move each into that encoding's file")
    planted = {"ops.bias": "def f(): pass\ndef g(): f()", "encodings.bias.t5": "from peref.ops.bias import g"}
    assert alone(planted) == ["ops.bias.g serves encodings.bias.t5"]


def test_only_some_packages_and_only_where_they_belong():
    """NumPy everywhere; click and tqdm in cli, safetensors in store, numba and cupy in backends; nothing
    else, so no other framework.
    """
    found = [
        line
        for name, text in sources().items()
        for line in foreign(name, text, set(sources()), name in packages())
    ]
    assert not found, report(found, "only these may import it (OTHERS in this file); do without it, or there")
    seen = {
        other
        for name, text in sources().items()
        for other in imported(name, text, set(sources()), name in packages())
    }
    assert {"numpy", "click", "tqdm", "safetensors"} <= seen


def test_tests_need_no_other_framework_either():
    """What they import is NumPy, pytest, the package's own requirements and themselves."""
    own = (
        {"benchmarks"}
        | {path.stem for path in TESTS.glob("*.py")}
        | {path.name for folder in (TESTS, ROOT / "benchmarks") for path in folder.iterdir() if path.is_dir()}
    )
    for path in TESTS.rglob("*.py"):
        assert tops(path.read_text()) <= own | IN_TESTS | set(sys.stdlib_module_names), path
    for path in (TESTS / "loops").glob("*.py"):
        assert tops(path.read_text()) <= {"math", "inspect", "importlib", "loops"}, (
            f"{path}: a witness is plain Python"
        )


def test_what_nothing_uses():
    """No pickle but numba's own, no eval, no fast mathematics, nothing that is announced and not there, no
    environment but in share, no global state, no change of where Python looks for modules, nothing of the
    tests.
    """
    found = [line for name, text in sources().items() for line in forbidden(name, text)]
    assert not found, report(found, "none of these may be used; the docstring says what else there is to do")


# ---------------------------------------------------------------- the rules themselves find what they are for


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"tape": "from peref.ops.norm import unit", "ops.norm": ""}, "tape imports ops.norm"),
        ({"tape": "def f():\n    import peref.model", "model": ""}, "tape imports model"),
        ({"tape": "from .model import init", "model": ""}, "tape imports model"),
        ({"store": "from . import data", "data": ""}, "store imports data"),
        ({"peref": "", "model": "from peref import train", "train": ""}, "model imports train"),
        ({"peref": "", "model": "from peref import __version__"}, "model imports peref"),
        (
            {"ops.norm": "from .shape import add", "ops.shape": "from peref.ops import norm"},
            "a cycle: ops.norm <- ops.shape <- ops.norm",
        ),
        (
            {
                "encodings.bias.t5": "from peref.encodings.bias.alibi import slopes",
                "encodings.bias.alibi": "",
            },
            "t5 imports encodings.bias.alibi",
        ),
        (
            {"encodings.bias.t5": "from . import alibi", "encodings.bias.alibi": ""},
            "encodings.bias.t5 imports encodings.bias.alibi",
        ),
        (
            {"golden.spec.rule": "from peref.golden.judge.report import check", "golden.judge.report": ""},
            "golden.spec.rule imports golden.judge.report",
        ),
        (
            {
                "golden.compute.model": "from peref.golden.diagnosis import pairs",
                "golden.diagnosis.pairs": "",
            },
            "golden.compute.model imports golden.diagnosis.pairs",
        ),
        (
            {"golden.diagnosis.pairs": "from peref.golden.judge import text", "golden.judge.text": ""},
            "golden.diagnosis.pairs imports golden.judge.text",
        ),
        ({"train": "from peref.cli import text", "cli": "", "cli.text": ""}, "train imports cli.text"),
    ],
)
def test_a_wrong_import_is_found(texts, words):
    """However it is written."""
    assert any(words in line for line in wrong_imports(texts, {"peref", "cli"})), wrong_imports(
        texts, {"peref", "cli"}
    )


def test_a_right_import_is_none():
    """Earlier rows, neighbours in a folder, and an encoding's own package."""
    texts = {
        "xp": "",
        "ops.shape": "",
        "ops.norm": "from peref.ops.shape import add\nfrom ..xp import namespace",
        "encodings": "import peref.xp",
    }
    texts |= {
        "encodings.bias.t5": "from peref.encodings import Encoding",
        "train": "from peref import __version__, encodings",
        "peref": "",
    }
    assert wrong_imports(texts, {"peref", "encodings"}) == []


def test_a_module_nobody_placed_is_found():
    """A new file has to be given a row."""
    with pytest.raises(AssertionError, match="extra stands in no row"):
        wrong_imports({"extra": "import peref.xp", "xp": ""}, set())


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model", "import torch"),
        ("store", "import click"),
        ("cli.text", "import numba"),
        ("xp", "import cupy.cuda"),
    ],
)
def test_a_foreign_package_is_found(name, text):
    """In the wrong place, or in any."""
    assert foreign(name, text, {"model"}, False)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "np.load(path, allow_pickle=True)",
        "@njit(fastmath=True)\ndef f(): pass",
        "eval('1')",
        "exec(text)",
        "__import__('torch')",
        "importlib.import_module('torch')",
        "raise NotImplementedError",
        "os.environ['X']",
        "from os import environ",
        "os.getenv('X')",
        "def f():\n    global state",
        "sys.path.insert(0, folder)",
        "from sys import path",
        "sys.path[:0] = [folder]",
        "sys.path += [folder]",
        "import_module('recipes.rope')",
        "of_tests('loops')",
    ],
)
def test_a_forbidden_use_is_found(text):
    """One of each."""
    assert forbidden("model", text)


# ---------------------------------------------------------------- at run time

HEAVY = {
    "numba",
    "llvmlite",
    "cupy",
    "click",
    "tqdm",
    "safetensors",
    "matplotlib",
    "dask",
    "torch",
    "jax",
    "tensorflow",
    "scipy",
    "pandas",
}


def loaded(code: str) -> set[str]:
    """The top packages that a fresh process has loaded after `code`."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}; print(' '.join({{m.partition('.')[0] for m "
        "in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_peref_loads_little():
    """NumPy, and none of the packages that take time; using an encoding loads none of them either."""
    after = loaded("import peref")
    assert "peref" in after
    used = "import peref; [peref.get(name) for name in peref.names()]; peref.bias('alibi', heads=2, tokens=3)"
    heavy = HEAVY & (after | loaded(used))
    assert not heavy, report(heavy, "import these inside the function that needs them")


def test_the_command_minds_signals_before_it_imports_anything():
    """Only two files of the package, neither of which imports another; it is what is installed."""
    show = "print(*(m for m in sys.modules if m.partition('.')[0] in ('peref', 'numpy', 'typing')))"
    command = [sys.executable, "-c", f"import sys; import peref.__main__; {show}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert set(done.stdout.split()) == {"peref", "peref.__main__"}, "import it in main(), after the signals"
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"peref": "peref.__main__:main"}


def test_this_would_be_seen():
    """The process below loads click."""
    assert "click" in HEAVY & loaded("import peref.cli.app")
