"""The tolerance rule: budgets follow from float64 alone, honest implementations of every kind are far
within class A.
"""

from pathlib import Path

import numpy as np
import pytest
from check import same
from honest import after, arithmetic, forms, sixteen
from making.catalogue import operations
from mutants import table

from peref.encodings import get, names
from peref.golden.compute import budgets
from peref.golden.compute.noise import Noisy, bare, rounding, wrapped
from peref.golden.compute.reference import expected, inputs
from peref.golden.judge.implementation import check_function, inputs_in
from peref.golden.judge.selection import Pick
from peref.golden.spec.cases import rebuilt, sized
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import between, limits, verdict_on
from peref.tape import Tape

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
MOST = 0.6  # of class A that honest code may use up; what is measured is in docs/tolerance.md
DTYPES = {"F64": np.float64, "F32": np.float32}


CASES = [
    case
    for case in operations()
    if case.id.endswith(("/default", "/long", "/far", "/packed", "/real", "/wide"))
]


def uses(entry, case, got, dtype):
    """The largest use of class A among the tensors that came."""
    found = {}
    for name, x in got.items():
        x, want = np.asarray(x).view(np.ndarray), entry.want(name)
        if want.dtype.kind == "f":
            x = x.astype(DTYPES[dtype])
            found[name] = verdict_on(Tensor(dtype, x), want, *entry.budget(name), case.depth).worst
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", arithmetic.ARITHMETICS)
def test_another_arithmetic_is_no_error(book, name, dtype):
    """Outputs and gradients of every encoding, in float32, with sums in another order, with other
    elementary functions.
    """
    count = 0
    for case in CASES:
        entry = book.entries[case.id]
        with np.errstate(all="ignore"):
            got = arithmetic.computed(case, entry.inputs(), name, DTYPES[dtype])
        for tensor, used in uses(entry, case, got, dtype).items():
            assert used <= MOST, (case.id, tensor, used)
            count += 1
    assert count > 700


@pytest.mark.parametrize("form", forms.FORMS, ids=lambda form: form.__name__)
def test_another_form_is_no_error(book, form):
    """Complex numbers, matrices, online softmax, one-hot products, loops over plain numbers."""
    count = 0
    for case in operations():
        entry = book.entries[case.id]
        for dtype in DTYPES:
            got = form(case, inputs(case), DTYPES[dtype])
            for tensor, used in uses(entry, case, got or {}, dtype).items():
                assert used <= 1, (case.id, tensor, used)
                count += 1
    assert count >= 2


PROGRAMS = sixteen.VARIANTS | after.VARIANTS


@pytest.mark.parametrize("dtype", ["BF16", "F16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_sixteen_bits_on_the_way_are_class_b(book, name, dtype):
    """What is kept in 16 bits between operations, within them, in attention, in sums."""
    count = 0
    for case in CASES[::2]:
        entry = book.entries[case.id]
        for tensor, x in sixteen.computed(case, entry.inputs(), name, dtype, PROGRAMS).items():
            if entry.want(tensor).dtype.kind == "f":
                got = verdict_on(
                    table.in_dtype(x, dtype), entry.want(tensor), *entry.budget(tensor), case.depth
                )
                assert got.grade in "AB", (case.id, tensor, got.worst)
                count += 1
    assert count > 20


@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("name", [name for name in names() if get(name).hook == "mix"])
def test_a_program_in_16_bits_is_right_in_every_trace_that_is_asked(book, name, dtype):
    """Its states too are in that dtype, with its range. In float16 it fails `kept-state`, which is not
    asked.
    """
    function = lambda words, a: {"y": sixteen.trace(rebuilt(words, a), a, a["x"].dtype)}
    report = check_function(function, book, Pick(encodings=(name,), levels=("trace",)), dtype)
    traces = {case: e for case, e in book.entries.items() if case.startswith(f"{name}.trace/")}
    kept = {case for case in traces if case.endswith("/kept-state") and dtype == "f16"}
    assert (report.exit_code, report.not_run, set(report.not_asked)) == (0, (), kept)
    assert {r.entry.id for r in report.results} == traces.keys() - kept > set()
    for entry in map(traces.get, kept):
        y = Tensor("F16", function(entry.words, inputs_in(entry, dtype))["y"])
        assert not verdict_on(y, entry.want("y"), *entry.budget("y"), entry.words["depth"]).passes


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_angles_in_16_bits_are_no_class(book, dtype):
    """They are wrong far out in every dtype, also in one that cannot hold them better."""
    entry = book.entries["rope.op/long"]
    case = next(c for c in CASES if c.id == entry.id)
    phi = table.bfloat16(case.at.i[:, None] * 10000.0 ** (-np.arange(0, 8, 2) / 8))
    a, b = np.split(entry.inputs()["q"], 2, -1)
    y = np.concatenate([a * np.cos(phi) - b * np.sin(phi), a * np.sin(phi) + b * np.cos(phi)], -1)
    assert (
        verdict_on(table.in_dtype(y, dtype), entry.want("q_rotated"), *entry.budget("q_rotated"), 0).grade
        == "FAIL"
    )


def test_the_limits_in_numbers():
    """The second term grows from class to class and not the first; `used` is straight between the limits."""
    u, low = 2.0**-8, 2.0**-24
    most = limits("BF16", np.array([1.0]), np.array([3.0]), np.array([5.0]), 4.0)
    tiny = 2.0**-133
    wanted = [2 * u + 48 * low + tiny, 6 * u + 16 * 48 * low + tiny, 12 * u + 64 * 48 * low + tiny]
    same(np.ravel(most), np.array(wanted), 1e-15)
    used = between(np.array([0.5, 1, 1.5, 2, 3, 4, 8]), [np.array([1.0]), np.array([2.0]), np.array([4.0])])
    same(used, np.array([0.5, 1, 8.5, 16, 40, 64, 128]), 1e-15)


def test_beyond_the_largest_is_an_infinity():
    """70000 is one in float16, of its own sign, and 60000 is none."""
    size = np.array([70000.0])
    for c, g, grade in (
        (np.inf, 70000.0, "A"),
        (-np.inf, -70000.0, "A"),
        (-np.inf, 70000.0, "FAIL"),
        (np.inf, 60000.0, "FAIL"),
    ):
        assert (
            verdict_on(Tensor("F16", np.array([c], np.float16)), np.array([g]), size, size, 0).grade == grade
        )
    assert (
        verdict_on(Tensor("F32", np.array([np.inf], np.float32)), np.array([70000.0]), size, size, 0).grade
        == "FAIL"
    )


def test_a_number_that_cancels_has_room_for_what_is_kept():
    """A channel of q that is 0 turns, and its derivative is turned back: with the turned one in bfloat16
    not quite to 0, which is no error.
    """
    case = next(c for c in operations() if c.id == "mrope.attn/heads-alone")
    a = inputs(case)
    want = expected(case, a)
    zero = np.argwhere((a["q"] == 0) & (np.abs(want["vjp.k"]) < 1e-15))
    assert len(zero) > 0
    size, rest = budgets.budgets(case, a, want)["vjp.k"]
    assert all(size[tuple(n)] > 1e-3 for n in zero)
    got = sixteen.computed(case, a, "between", "BF16")["vjp.k"]
    assert any(got[tuple(n)] != 0 for n in zero)
    assert verdict_on(table.in_dtype(got, "BF16"), want["vjp.k"], size, rest, case.depth).grade in "AB"


def test_budgets_are_made_in_float64(monkeypatch):
    """Nothing in them is computed in the precision that they judge."""
    seen = set()

    def watching(case, a, *more):
        seen.update(x.dtype for x in a.values() if x.dtype.kind == "f")
        return expected(case, a, *more)

    monkeypatch.setattr(budgets, "expected", watching)
    case = sized("forgetting", "attn", "default", "x", T=3)
    a = inputs(case)
    got = budgets.budgets(case, a, expected(case, a))
    assert seen == {np.dtype(np.float64)}
    assert all((size >= np.float32(np.abs(expected(case, a)[name]))).all() for name, (size, _) in got.items())


def test_budgets_grow_with_what_cancels():
    """A derivative that is nothing but rounding, for softmax knows no constant, has a b; a structural zero
    has none and must be 0.
    """
    case = sized("t5", "attn", "default", "x", T=5)
    a = inputs(case)
    want = expected(case, a)
    size, rest = budgets.budgets(case, a, want)["vjp.param.table"]
    assert (rest[:5] > 0).all()
    assert not size[5:].any()
    assert not rest[5:].any()


def test_noise():
    """What is computed is moved by as much as was said; what is exact is not."""
    step = 2.0**-20
    moved = rounding(np.random.default_rng(0).standard_normal, step)
    x = np.linspace(0.5, 1.5, 100_000)
    y = wrapped(x, moved)
    for off, exact in (
        (np.exp(y), np.exp(x)),
        (y * y, x * x),
        (y / 3, x / 3),
        (y.cumsum() / np.arange(1, 100_001), x.cumsum() / np.arange(1, 100_001)),
    ):
        assert isinstance(off, Noisy)
        assert 0.9 < np.std(bare(off) / exact - 1) / step < 2
    for exact in (
        abs(y),
        -y,
        np.floor(y),
        np.maximum(y, 1),
        np.where(y > 1, y, 0),
        np.concatenate([y, y]),
        y.clip(0, 1),
        y[::2],
        y > 1,
    ):
        same(bare(np.where(exact == 0, 0, exact)), np.asarray(np.where(exact == 0, 0, exact)), 0)
    same(bare(np.floor(y)), np.floor(x), 0)
    same(bare(abs(y)), x, 0)
    assert (y.astype(int) + 1).dtype.kind == "i"
    total = [float(bare(wrapped(np.array([1e8, 1.0, -1e8]), moved).sum())) for _ in range(2)]
    assert abs(total[0] - 1) > 1
    assert total[0] != total[1]


def test_noise_reaches_the_gradients():
    """Of a whole layer every tensor has a b."""
    case = sized("mamba", "op", "default", "x", T=3)
    a = inputs(case)
    plain = expected(case, a, tape=Tape())
    got = budgets.budgets(case, a, plain)
    assert {name for name, (_, rest) in got.items() if (rest > 0).any()} == set(plain)
    assert (got["vjp.x"][1] > 0).all()
