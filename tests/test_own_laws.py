"""`laws`: an encoding of one's own is held against what built-in ones are, and what breaks is told in
words; each law finds a planted bug.
"""

import json

import pytest
from test_own import MINE, ROOT, cli, forgotten  # noqa: F401

from peref.cli import laws
from peref.laws.small import Subject
from peref.laws.verdicts import CLAIMED, EVERYWHERE, Verdict, about

LOOP = 'import math\n\n\ndef bias(p, d):\n    return [[-r * math.sqrt(abs(x)) for x in d] for r in p["r"]]\n'
HEAD = "import numpy as np\nfrom peref.encodings import Encoding\nfrom peref.tape import Op\n"


def mixing(body, claims="'any_length', 'shift'"):
    """A layer in place of attention: `forward` and `backward` of the lines of `body`."""
    return f"""{HEAD}
{body}
both = Op(forward, backward)
def mix(be, p, x, at, state, across):
    return both(x), {{}}
ENCODING = Encoding("no paper", "y", mix=mix, axes=None, claims=frozenset({{{claims}}}))
"""


FUTURE = (
    "def forward(x):\n"
    "    return x + x.mean(1, keepdims=True), None\n"
    "\n"
    "def backward(saved, dy):\n"
    "    return (dy + dy.mean(1, keepdims=True),)\n"
)
PAST = """def forward(x):
    return x.cumsum(1), None

def backward(saved, dy):
    return (dy[:, ::-1].cumsum(1)[:, ::-1],)
"""
SAME = "def forward(x):\n    return 2 * x, None\n\ndef backward(saved, dy):\n    return (2 * dy,)\n"
ROWS = f"""{HEAD}
def embed(p, i, *, C):
    return np.cos(i[..., None] * 2.0 ** -np.arange(C))
CLAIMS = frozenset({{'shift', 'any_length', 'real_positions', 'two_sided', 'window'}})
ENCODING = Encoding("no paper", "cos", embed=embed, claims=CLAIMS)
"""
TABLE = f"""{HEAD}
def init(rng, *, H, L):
    return {{"table": rng.standard_normal((H, L))}}
def forward(table, d):
    return table[:, abs(d)], (table.shape, abs(d))
def backward(saved, dy):
    g = np.zeros(saved[0])
    np.add.at(g, (slice(None), saved[1]), dy)
    return g, None
rows = Op(forward, backward)
def bias(be, p, d):
    return rows(p["table"], d)
ENCODING = Encoding("no paper", "table", init=init, bias=bias, claims=frozenset(CLAIMS))
"""
BLIND = f"""{HEAD}
def forward(v, *, heads):
    return np.repeat(v, heads // v.shape[1], 1), v.shape
def backward(saved, dy):
    return (dy.reshape(*saved[:2], -1, *saved[2:]).sum(2),)
each = Op(forward, backward)
def attend(be, p, q, k, v, f, at):
    return each(v, heads=q.shape[1])
ENCODING = Encoding("no paper", "v", attend=attend, axes=None, claims=frozenset({{'shift', 'any_length'}}))
"""
PLANE = f"""{HEAD}
def rotate(p, i, n, *, R):
    i = i if i.ndim < 3 else i[0] * 0 + np.arange(i.shape[-1])
    return i[..., None] * 0.5 ** np.arange(R // 2), None, None
LAWS = frozenset({{'shift', 'any_length', 'two_sided', 'window', 'real_positions'}})
ENCODING = Encoding("no paper", "i", rotate=rotate, axes=2, claims=LAWS)
"""
TILED = f"""{HEAD}
def forward(q, k):
    k = k[:, np.arange(q.shape[1]) % k.shape[1]]
    return q @ k.swapaxes(-1, -2), None
def backward(saved, dy):
    return dy, None
dots = Op(forward, backward)
def score(be, p, q, k, f, at):
    return dots(q, k), None, None
ENCODING = Encoding("no paper", "q k", score=score, axes=None, claims=frozenset({{'shift', 'any_length'}}))
"""
SHAW = (ROOT / "peref/encodings/attend/shaw.py").read_text()
SEEN = "return -(dy * root).sum(1), None"
PLANTED = {  # what -> text of planted.py, laws that must be wrong, words that are said
    "a gradient wrong by a thousandth": (
        MINE.replace(SEEN, SEEN.replace("-(", "-1.001 * (")),
        {
            "gradients": "gradient of 0.pe.r: analytic",
            "gradients later": "table_backward in planted.py: gradient of r: analytic",
            "gradients, claims": "gradient of 0.pe.r: analytic",
        },
    ),
    "a gradient that the softmax hides": (
        MINE.replace(SEEN, "return -(dy * root).sum(1) + dy.sum(1), None"),
        {"gradients inside": "gradient of r in bias: analytic"},
    ),
    "one gradient too many": (
        MINE.replace(SEEN, SEEN + ", None"),
        {"gradients": "backward of table_forward returned 3 gradients for 2 arrays"},
    ),
    "what a later token says": (
        mixing(FUTURE),
        {"causality": "logits before token 1, where tokens from 1 on are others: worst at ["},
    ),
    "no state": (
        mixing(PAST),
        {
            "decoding in pieces": "logits of 9 tokens cut at (1,): worst at [",
            "padding, documents": "behind 3 tokens of padding",
        },
    ),
    "a state that is handed on to the next document": (
        mixing(PAST),
        {"padding, gradients": "gradients behind 2 tokens of padding"},
    ),
    "heads in another order": (
        TILED,
        {"grouped heads": "logits of 6 key-value heads that repeat 2: worst at ["},
    ),
    "a memory": (
        MINE.replace("    root = ", "    calls.append(1)\n    root = ").replace(
            "return -r[:, None] * root", "return -r[:, None] * root * len(calls)"
        )
        + "\ncalls = []\n",
        {"history": "computed again after other models"},
    ),
    "float64 for float32": (MINE.replace(".astype(r.dtype)", ""), {"dtype": "gradient 0 is float64"}),
    "a write": (
        MINE.replace("    root = ", "    r *= 1\n    root = "),
        {"a model": "writes into an array that is not its own"},
    ),
    "a number that is none": (MINE.replace("(abs(d))", "(-abs(d))"), {"a model": "logits are not finite"}),
    "a place that counts": (ROWS, {"shift": "logits at positions 1000 to 1006, against 0 to 6: worst at ["}),
    "the past alone": (
        mixing(SAME, "'any_length', 'shift', 'two_sided'"),
        {"two_sided": "the last token does not reach the first row where causal is False"},
    ),
    "a window that nobody looks through": (
        mixing(SAME, "'any_length', 'shift', 'window'"),
        {"window": "token 0 does not reach rows 0 to 2 with window 3"},
    ),
    "positions that nobody looks at": (
        mixing(SAME).replace("axes=None", "axes=1"),
        {"positions": "the file should say axes=None"},
    ),
    "positions that somebody looks at": (
        ROWS.replace("claims", "axes=None, claims").replace(
            "    return", "    i = i if i.ndim < 3 else i[0]\n    return"
        ),
        {"positions": "logits at other positions; axes is None: worst"},
    ),
    "half steps in a table": (
        TABLE.replace("CLAIMS", "{'shift', 'real_positions'}"),
        {"real_positions": "planted.py, line 8, in forward: IndexError"},
    ),
    "the end of a table": (
        TABLE.replace("CLAIMS", "{'shift', 'any_length'}"),
        {"any_length": "planted.py, line 8, in forward: IndexError"},
    ),
    "the end of a table, in no words": (
        TABLE.replace("CLAIMS", "{'shift'}"),
        {"any_length": "raise IndexError", "real_positions": "expected Misuse"},
    ),
    "a law that nobody claims": (
        MINE.replace("claims=EVERY_LAW_OF_DISTANCE", "claims=EVERY_LAW_OF_DISTANCE - {'shift'}"),
        {"shift": "logits at other positions are the same: not claimed, but holds: claim it"},
    ),
    "one axis called several": (
        MINE.replace("claims=EVERY_LAW_OF_DISTANCE", "claims=EVERY_LAW_OF_DISTANCE | {'text'}"),
        {"text": "a position is one number"},
    ),
    "tokens that see nothing": (
        BLIND,
        {
            "rows of padding": "attention of rows of padding is",
            "products": "q and k that are turned alike give the same: not claimed, but holds",
        },
    ),
    "axes that nobody looks at": (
        PLANE,
        {"axes": "positions of 2 axes change nothing", "text": "one number is that number on every axis"},
    ),
    "documents that go on": (
        mixing(PAST + "keep = Op(lambda x: (2 * x, None), lambda saved, dy: (2 * dy,))\n")
        .replace("across):", "across, *, sum: bool = False):")
        .replace("both(x)", "(both if sum else keep)(x)"),
        {"documents, options": "with sum=True: logits behind 3 tokens of padding, cut at (2, 5, 6): worst"},
    ),
    "an option that takes rows to be in one place": (
        SHAW.replace("r.swapaxes(-2, -1)", "r.swapaxes(-2, 1)"),
        {"documents, options": ", in attend: ValueError"},
    ),
    "what a backward forgets between two chunks": (
        (ROOT / "peref/encodings/mix/retnet.py").read_text().replace("ds = ds * over +", "ds = ds +"),
        {"gradients, options": "with chunk=2: gradient of "},
    ),
    "a gradient of an option": (
        MINE.replace("bias(be, p, d):", "bias(be, p, d, *, far: bool = False):")
        .replace('"], d)', '"], 9 * d if far else d)')
        .replace(SEEN, "return -(dy * root).sum(1) * (1 if root[-1] < 4 else 1.001), None"),
        {"gradients, options": "with far=True: gradient of 0.pe.r: analytic"},
    ),
    "an end that is told wrongly": (
        TABLE.replace(
            "def bias",
            "from peref.errors import Misuse\n"
            "def check(at, dtype):\n"
            "    if at.j.max() > 15:\n"
            "        raise Misuse('too far')\n"
            "def bias",
        )
        .replace("bias=bias", "bias=bias, check=check")
        .replace("CLAIMS", "{'shift'}"),
        {"any_length": "position 16 is refused, but not told that 15 is the last: too far"},
    ),
}


def asked(cli, tmp_path, text, *args):  # noqa: F811
    """What `laws --json` says of a file of this text: the exit code and the verdicts by law."""
    (tmp_path / "planted.py").write_text(text)
    code, out, err = cli("laws", "./planted.py", "--json", *args)
    assert out, err
    found = json.loads(out)
    assert found["right"] == all(v["right"] for v in found["laws"]) == (code == 0)
    return code, {v["law"]: v for v in found["laws"]}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_bug_is_found_and_told(cli, tmp_path, what):  # noqa: F811
    """By the law that it breaks, with the numbers."""
    text, wrong = PLANTED[what]
    code, found = asked(cli, tmp_path, text)
    assert code == 1
    for law, words in wrong.items():
        assert not found[law]["right"], law
        assert words in found[law]["words"], found[law]["words"]


def test_a_wrong_gradient_breaks_no_claim(cli, tmp_path):  # noqa: F811
    """What is claimed is of the values."""
    _, found = asked(cli, tmp_path, PLANTED["a gradient wrong by a thousandth"][0])
    assert all(found[law]["right"] for law in CLAIMED if law in found)


def test_laws_with_a_comma_in_their_name_are_told_apart(cli, monkeypatch):  # noqa: F811
    broken = [Verdict(law, None, False, "so") for law in ("gradients", "gradients, claims")]
    monkeypatch.setattr(laws, "verdicts", lambda s: broken)
    code, out, _ = cli("laws", "none")
    assert (code, out.splitlines()[-1]) == (1, "0 of 2 as they must be; wrong: gradients; gradients, claims")


def test_every_law_finds_some_bug():
    """None of those that an encoding is asked is without a planted bug."""
    assert {law for _, wrong in PLANTED.values() for law in wrong} == set(EVERYWHERE) | set(CLAIMED) | {
        "a model"
    }
    assert all(about(law) for law in [*EVERYWHERE, *CLAIMED])


def test_what_is_right_is_found_right(cli, tmp_path):  # noqa: F811
    """The example of CONTRIBUTING.md keeps every law and agrees with its loop; one line for each, exit 0."""
    (tmp_path / "loop.py").write_text(LOOP)
    (tmp_path / "mine.py").write_text(MINE)
    code, out, err = cli("laws", "./mine.py", "--loop", "loop.py")
    assert (code, err) == (0, "")
    assert "20 of 20 as they must be" in out
    for line in (
        "gradients           holds",
        "loop                holds",
        "shift               claimed, holds",
    ):
        assert line in out
    code, found = asked(cli, tmp_path, MINE)
    assert code == 0
    assert "loop" not in found
    assert "gradients, options" not in found, "it has no options"


def test_a_loop_that_says_something_else(cli, tmp_path):  # noqa: F811
    """The worst place is told; so are a loop without the hook's function, one that fails and one that
    cannot be imported.
    """
    for text, words in (
        (
            LOOP.replace("abs(x))", "abs(x) + 1e-6)"),
            "[head, distance from 0 on] of 1 heads, causal=True: worst at [0, 0]",
        ),
        ("x = 1\n", "the loop has no function bias"),
        ("def bias(p, d):\n    return p['s']\n", "loop.py, line 2, in bias: KeyError"),
        ("def scale(D):\n    return 1\ndef bias(p, d):\n    return [[0] * len(d)]\n", "of 1 heads"),
    ):
        (tmp_path / "loop.py").write_text(text)
        code, found = asked(cli, tmp_path, MINE, "--loop", "loop.py")
        assert code == 1
        assert words in found["loop"]["words"]
    assert "the softmax scale for heads of 8" in found["scale of the loop"]["words"]
    (tmp_path / "loop.py").write_text("x = (\n")
    assert "loop.py, line 1: SyntaxError" in cli("laws", "./planted.py", "--loop", "loop.py")[2]
    assert "gone.py: no such file" in cli("laws", "./planted.py", "--loop", "gone.py")[2]


def test_options_are_tried_and_set(cli, tmp_path):  # noqa: F811
    """Each at another value; what it refuses is said; --set fixes one, and what breaks says with which
    options.
    """
    text = MINE.replace(
        "def bias(be, p, d):",
        "def bias(be, p, d, *, times: float = 1.0, flat: bool = False):\n"
        "    positive('planted', times=3 - times)",
    )
    text = text.replace('table(p["r"], d)', 'table(p["r"], d * times + (0 if not flat else d * 0))')
    text = text.replace("import EVERY", "import positive, EVERY")
    code, found = asked(cli, tmp_path, text)
    assert code == 0
    assert found["gradients, options"]["right"]
    code, found = asked(
        cli,
        tmp_path,
        text.replace("root).sum(1), None", "root).sum(1) * (1 if root[1] < 1.2 else 1.001), None"),
    )
    assert found["gradients"]["right"]
    assert found["gradients, options"]["words"].startswith("with times=2.0: gradient of 0.pe.r: analytic")
    out = cli("laws", "./planted.py", "--set", "times=2.5", "--json")[1]
    assert json.loads(out)["options"] == {"times": 2.5, "flat": False}
    assert json.loads(out)["not_tried"] == {}
    (tmp_path / "planted.py").write_text(text.replace("= 1.0", "= 2.0"))
    assert (
        "not tried: times=4.0: planted: times is -1.0; expected a number above 0"
        in cli("laws", "./planted.py")[1]
    )


@pytest.mark.parametrize(
    "name", ["none", "alibi", "learned", "p_rope", "axial", "forgetting", "shaw", "rwkv4"]
)
def test_built_in_encodings_keep_the_laws(cli, name):  # noqa: F811
    """One of each hook, with its loop, as the command asks them."""
    code, out, err = cli("laws", name, "--loop", ROOT / "tests" / "loops" / f"{name}.py")
    assert code == 0, out + err


def test_sizes_of_the_small_models(cli, tmp_path):  # noqa: F811
    """A width that the encoding does not take is refused by it; another can be said."""
    picky = MINE.replace(
        "def init(rng, *, H):",
        "def init(rng, *, H, D):\n    if D % 8:\n        raise ValueError(f'heads of {D}')",
    )
    _, found = asked(cli, tmp_path, picky)
    line = next(n for n, words in enumerate(picky.splitlines(), 1) if "raise ValueError" in words)
    assert f"planted.py, line {line}, in init: ValueError: heads of 4" in found["a model"]["words"]
    assert asked(cli, tmp_path, picky, "--head-width", 8)[0] == 0
    assert "laws are asked of one encoding" in cli("laws", "rope,alibi")[2]
    assert "unknown encoding 'roep'" in cli("laws", "roep")[2]


def test_a_subject_has_the_sizes_that_are_said():
    assert Subject("alibi", sizes={"D": 8, "C": 20}).config().D == 8
