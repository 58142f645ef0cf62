"""Implementations that are wrong on purpose are noticed. Here a part of them, for all take minutes: python
tests/mutants/table.py.
"""

from dataclasses import replace

import numpy as np
import pytest
from check import apart
from honest import coarse
from making.catalogue import operations
from making.near import computed, failing
from mutants import Mutant, mutants, named, some_of, table

from peref.encodings import names
from peref.errors import Misuse
from peref.golden.compute.reference import expected, inputs
from peref.golden.diagnosis.answer import Answer
from peref.golden.diagnosis.near_misses import parsed_probes
from peref.golden.diagnosis.ranking import diagnosed, weighed
from peref.golden.spec.book import known_flags
from peref.golden.spec.cases import rebuilt
from peref.golden.spec.files import Tensor

EVERY, NAMED = 12, 9  # one mutant in so many is run, and named
LEAST = {"F64": 1.0, "F32": 1.0, "BF16": 0.97, "F16": 0.97}  # the share that must be noticed


def test_there_are_enough_of_them():
    """At least 150, of every encoding, a third held out, each with a flag that is explained and words to
    its author.
    """
    every = mutants()
    assert len(every) >= 150
    assert {name for m in every for name in m.of} == set(names())
    assert 0.3 < sum(m.held_out for m in every) / len(every) < 0.4
    assert {m.flag for m in every} <= set(known_flags())
    assert all(m.words and m.of for m in every)


def test_each_of_them_shows():
    """In a case of its flag or another, and it does not break: an operation whose arguments change would
    end its mutants unseen.
    """
    cases, silent = operations(), []
    for m in mutants():
        for case in sorted((c for c in cases if c.encoding in m.of), key=lambda c: m.flag not in c.flags):
            a = inputs(case)
            got, want = computed(m, case, a), expected(case, a)
            if any(apart(got[n], want[n]) for n in got if n in want):
                break
        else:
            silent.append(m.name)
    assert silent == [], (
        f"these mutants change nothing in any case: {silent}; mend them, or add the case that shows them"
    )


@pytest.mark.parametrize("error", [TypeError, KeyError, AttributeError])
def test_a_slip_in_a_mutant_is_raised(book, error):
    """It would end the mutant unseen; what a case cannot be is left out."""

    def slip(kind):
        def run(case, a):
            raise kind("a slip of the pen")

        return Mutant("slip", "basic", "a slip", ("rope",), run)

    entry = book.entries["rope.op/default"]
    case = rebuilt(entry.words, entry.inputs())
    assert computed(slip(Misuse), case, {}) == {}
    assert named.came_of(slip(Misuse), [case], book) == []
    with pytest.raises(error, match="slip"):
        computed(slip(error), case, {})
    with pytest.raises(error, match="slip"):
        named.came_of(slip(error), [case], book)


def test_they_are_noticed(book):
    """All in float64 and float32, 97 of 100 in bfloat16 and float16."""
    some = {m.name for m, _ in some_of(EVERY)}
    share = table.rates(table.measured(book, only=lambda m: m.name in some, name=False))
    for dtype, least in LEAST.items():
        killed, total = share[dtype]
        assert killed >= least * total > 80, dtype


def test_a_flag_stands_where_its_mutant_fails(book):
    """A flag says what a case catches, so something must be caught; of several readings each must fail the
    others' numbers.
    """
    every, wrong = mutants(), []
    for case in operations():
        entry, a = book.entries[case.id], inputs(case)
        want = {name: entry.want(name) for name in entry.outputs}
        for name in entry.outputs:
            want |= {f"{name}:{letter}": x for letter, x in zip("ab", entry.budget(name), strict=True)}
        for flag in case.flags:
            theirs = ({name: entry.want(name, v.name) for name in entry.outputs} for v in case.variants[1:])
            mine = (computed(m, case, a) for m in every if m.flag == flag and case.encoding in m.of)
            if not any(failing(case, want, got) for got in (theirs if flag == "ambiguous" else mine)):
                wrong.append((case.id, flag))
    assert wrong == [], (
        f"no mutant of the flag fails in these (case, flag): {wrong}; take the flag off the case, or write "
        "the mutant"
    )


def test_near_misses_are_of_mutants_that_are_not_held_out(book):
    """Each is of a trap that is explained, lies at elements that there are, and differs from the truth
    there.
    """
    seen, count = {m.flag for m in mutants() if not m.held_out}, 0
    for entry in book.entries.values():
        for miss in entry.words["near_miss"]:
            places, values = parsed_probes(miss["probes"])
            assert miss["trap"] in seen
            assert (np.abs(values - entry.want(miss["tensor"]).ravel()[places]) > 1e-9).any(), (
                entry.id,
                miss,
            )
            count += 1
    assert count > 500


@pytest.mark.parametrize(("held_out", "least"), [(False, 0.9), (True, 0.7)])
def test_the_right_trap_is_named(book, held_out, least):
    """Of some mutants, each in one of its encodings; of all 367 that are not held out 343 (93 %).

    The table, with every encoding of every mutant, has higher shares, for there a bug that many encodings can
    have counts many times.
    """
    cases, right = named.by_encoding(), []
    for mutant, encoding in some_of(NAMED):
        if mutant.held_out == held_out and (flags := named.flags_of(mutant, encoding, cases, book)):
            right.append(flags[0] == mutant.flag)
    assert len(right) > 10
    assert sum(right) >= least * len(right)


def first_of(book, name, encoding):
    """What is said first of a mutant."""
    (mutant,) = (m for m in mutants() if m.name == name)
    return named.said_of(mutant, encoding, named.by_encoding(), book)[0]


def test_a_name_beside_the_stored_numbers_of_another_bug_is_a_guess(book):
    """They came in every failing case that has them."""
    first = first_of(book, "sandwich-mean", "sandwich")
    assert first.trap.flag == "bias.scale"
    assert "sandwich.formula gives as much: you take the mean of the waves" in first.trap.evidence
    assert first.whole
    assert not first.alone


def test_a_factor_on_a_part_is_a_guess_where_one_on_the_whole_does_the_same(book):
    first = first_of(book, "twice", "deltanet")
    assert (first.trap.flag, first.whole, first.alone) == ("mix.norm", True, False)
    assert "basic gives as much: y: it is the golden tensor times 2" in first.trap.evidence


def test_a_part_that_is_left_out_has_its_own_flag(book):
    """Not that of the part which it is given."""
    first = first_of(book, "kda-no-gate", "kda")
    assert (first.trap.flag, first.whole and first.alone) == ("mix.gate", True)


def test_two_changed_formulas_that_only_together_give_all_are_a_guess(book):
    """One bug is more likely than two."""
    first = first_of(book, "dual-chunk-one-less", "dual_chunk")
    assert (first.whole, first.alone) == (True, False)
    assert first.trap.evidence.count("the reference with this bug gives what came") == 2


def test_the_table_counts_as_probable_what_the_report_calls_so(book):
    """A computation confirms this name, and it is a guess."""
    (found,) = table.measured(book, ("F32",), only=lambda m: m.name == "dual-chunk-one-less").values()
    assert found[1:] == (["dual_chunk.before", "dual_chunk.last"], False)


def test_a_measurement_goes_on_where_it_was_interrupted(tmp_path):
    """What is in the file is not measured again, and a file of other code is refused."""
    path = tmp_path / "measured"
    first = table.Measured(path)("one", lambda: [1.5, float("nan")])
    again = table.Measured(path)
    assert str(again("one", lambda: 1 / 0)) == str(first) == "[1.5, nan]"
    assert again("two", lambda: (1, "b")) == table.Measured(path).found["two"] == [1, "b"]
    path.write_text(path.read_text().replace(path.read_text()[1:9], "0" * 8))
    with pytest.raises(SystemExit, match="of other code"):
        table.Measured(path)


def test_no_trap_is_named_where_only_digits_are_missing(book):
    """Arithmetic of 8 and 11 bits fails and is no bug."""
    wrongly, count, failing = named.of_honest(book, ("none", "forgetting"))
    assert count == 4
    assert failing > 50
    assert not wrongly, (
        f"traps named for honest code of few digits: {wrongly}; make those guesses of the diagnosis stricter"
    )


@pytest.mark.parametrize(
    ("case", "name", "rounding"),
    [
        ("deltanet.op/last-state", "last.q", "bfloat16"),
        ("xpos.attn/together-1-packed", "probabilities", "float16"),
    ],
)
def test_a_tensor_that_is_right_but_for_16_bits_says_nothing_of_a_part(book, case, name, rounding):
    """What a convolution or a softmax was given may have had them too."""
    entry = book.entries[case]
    (one,) = (one for one in named.by_encoding()[entry.words["encoding"]] if one.id == case)
    answer = Answer(entry, named.tensors(entry, coarse.computed(one, entry.inputs(), rounding)))
    assert name in answer.wrong
    assert diagnosed(entry, name, answer.got[name]) is None


def traps(answers):
    return [one.trap for one in weighed(answers)]


def wrong(book, change, *cases, encoding="rope"):
    """What comes from somebody for whom change(case, inputs) is the case."""
    every = {case.id: case for case in named.by_encoding()[encoding]}
    return [
        Answer(
            book.entries[name],
            named.tensors(book.entries[name], change(every[name], book.entries[name].inputs())),
        )
        for name in cases
    ]


@pytest.mark.parametrize(
    ("place", "words"),
    [
        (lambda i: np.minimum(i, 3332), "ends at position 3333 "),
        (lambda i: i % 2999, "modulo 2999"),
        (lambda i: i + 13, "13 too large"),
    ],
)
@pytest.mark.parametrize("case", ["rope.table/long", "rope.op/long"])
def test_a_parameter_of_the_trap_is_found(book, place, words, case):
    """Where a table ends, wraps or begins: no number that is stored anywhere."""
    answer = wrong(
        book,
        lambda case, a: expected(case, a, None, replace(case.at, i=place(case.at.i), j=place(case.at.i))),
        case,
    )
    assert words in traps(answer)[0].words


def replace_see(case, see):
    """The place of a case's tokens, with a mask of one's own."""
    at = replace(case.at)
    vars(at)["see"] = see
    return at


WRONG = [  # what somebody computed, for which cases, and what they read
    (
        lambda c, a: expected(replace(c, layout="interleaved"), a),
        ("rope.op/default", "rope.op/partial", "rope.op/interleaved"),
        "you pair channels as layout interleaved does, whatever the case asks for",
        "and in 1 of 1 right ones that it could change",
    ),
    (
        lambda c, a: expected(
            c, a, None, replace(c.at, i=c.at.i.astype(np.float16), j=c.at.i.astype(np.float16))
        ),
        ("rope.op/long", "rope.table/long", "rope.op/default"),
        "your positions were float16",
        "2 of 2 failing cases",
    ),
    (
        lambda c, a: expected(c, {**a, "param.table": a["param.table"][np.maximum(np.arange(32) - 1, 0)]}),
        ("t5.op/default", "t5.table/default", "t5.table/far", "t5.table/two-sided"),
        "every distance has the row before its own",
        "4 of 4 failing cases",
    ),
    (
        lambda c, a: {"out": expected(c, a, None, replace_see(c, np.tri(c.T, k=1, dtype=bool)))["out"]},
        ("none.attn/default", "none.attn/heads-12"),
        "a token sees the one after it",
        "2 of 2 failing cases",
    ),
    (
        lambda c, a: {"bias": -(2.0 ** (-8 * np.arange(c.H) / c.H))[:, None] * np.abs(a["distances"])},
        ("alibi.table/default", "alibi.table/heads-7"),
        "your slopes are 2^(-max_bias h/H) from h = 0 on",
        "2 of 2 failing cases",
    ),
]


@pytest.mark.parametrize(("change", "cases", "words", "evidence"), WRONG)
def test_it_is_said_in_words(book, change, cases, words, evidence):
    """Of several cases together, right ones among them."""
    with np.errstate(all="ignore"):
        found = traps(wrong(book, change, *cases, encoding=cases[0].partition(".")[0]))[0]
    assert words in found.words
    assert evidence in found.evidence


def test_one_number_is_no_rotation(book):
    """A single key-value head: any two of its channels could be a pair, so few digits of k alone say
    nothing.
    """
    entry = book.entries["rope.op/partial"]
    k = Tensor(
        "F32",
        (entry.want("k_rotated") * (1 + 0.002 * np.cos(np.arange(56.0)).reshape(1, 1, 7, 8))).astype(
            np.float32
        ),
    )
    assert Answer(entry, {"k_rotated": k}).wrong
    assert diagnosed(entry, "k_rotated", k) is None


def test_other_cases_decide(book):
    """The root of every base and a base of 100 are the same in one case, and not in two."""
    root = lambda case, a: expected(replace(case, options={"base": case.config.pe[0][1]["base"] ** 0.5}), a)
    same = lambda case, a: expected(replace(case, options={"base": 100.0}), a)
    both = ("rope.op/default", "rope.op/base-500000")
    assert [traps(wrong(book, change, *both))[0].flag for change in (root, same)] == [
        "rope.exponent",
        "rope.base.ignored",
    ]
    found = traps(wrong(book, same, *both))[0]
    assert "2 of 2 failing cases" in found.evidence


@pytest.mark.parametrize(
    ("change", "flag"),
    [
        (lambda g, dy: -g, "grad.sign"),
        (lambda g, dy: 0 * g, "grad.zero"),
        (lambda g, dy: 2 * g, "grad.factor"),
        (lambda g, dy: np.roll(g, 1, 2), "grad.time"),
        (lambda g, dy: dy, "grad.rotation"),
        (lambda g, dy: g.swapaxes(1, 2).reshape(g.shape), "grad.heads_permuted"),
    ],
)
def test_a_wrong_derivative_is_named(book, change, flag):
    """By its numbers, where the output is right; beside a wrong output it says nothing of its own."""
    entry = book.entries["rope.op/default"]
    wrong = Tensor("F64", change(entry.want("vjp.q"), entry.inputs()["cotangent.q_rotated"]))
    assert diagnosed(entry, "vjp.q", wrong, probes=False).flag == flag
    assert traps([Answer(entry, {"vjp.q": wrong})])[0].flag == flag
    turned = Tensor("F64", entry.want("q_rotated").swapaxes(2, 3))
    assert flag not in [trap.flag for trap in traps([Answer(entry, {"vjp.q": wrong, "q_rotated": turned})])]


def test_a_derivative_whose_heads_stand_in_their_order_has_none_of_them_permuted(book):
    entry = book.entries["rope.op/default"]
    g = entry.want("vjp.q")
    wrong = Tensor("F64", g.swapaxes(2, 3).reshape(g.shape))
    assert diagnosed(entry, "vjp.q", wrong, probes=False).flag == "basic"
