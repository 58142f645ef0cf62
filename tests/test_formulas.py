"""A formula with one step changed is named by that step: programs written from the papers (tests/loops), each
with one expression of its text changed as people change it.
"""

import inspect
import sys
from types import ModuleType
from unittest import mock

import loops
import numpy as np
import pytest
from making.witness import witnessed

from peref.encodings import names
from peref.golden.diagnosis import ranking
from peref.golden.diagnosis.answer import BROKEN, Answer, NoProgram, guess
from peref.golden.diagnosis.engine import exchangeable, part_of
from peref.golden.diagnosis.formulas import forwards, of_formulas, remade
from peref.golden.diagnosis.options import attempt, fitted
from peref.golden.diagnosis.summary import Summary
from peref.golden.diagnosis.support import uncomputed_words
from peref.golden.diagnosis.variants import attempted, names_in, variants
from peref.golden.diagnosis.written import ELEMENTARY, FUNCTIONS, OPERATORS
from peref.golden.spec.cases import OPERATIONS, rebuilt
from peref.golden.spec.files import Tensor

BUGS = [  # encoding, what the program says, what is written in its place, flag
    ("kerple_log", "math.log(1 + r_2 * abs(apart))", "math.log(r_2 * abs(apart) + 1e-6)", "kerple.formula"),
    ("kerple_log", "positive(x), positive(y)", "math.exp(x), math.exp(y)", "kerple.parameters"),
    ("sandwich", "x / (8 * h / H)", "x * (8 * h / H)", "sandwich.formula"),
    ("fire", "(psi(max(L, i[m])) + eps)", "(max(L, i[m]) + eps)", "fire.normaliser"),
    ("shaw", "int(i[s] - i[t])", "int(i[t] - i[s])", "shaw.rows"),
    ("llama3", "wave = 2 * math.pi / freq", "wave = 1 / freq", "rope.llama3.blend"),
    ("yarn", "min(high, R - 1)", "min(high, R // 2 - 1)", "rope.yarn.ramp"),
    ("p_rope", "int(fraction * R // 2)", "int((1 - fraction) * R // 2)", "rope.p.fraction"),
    ("rwkv4", "math.exp(u + k[t])", "math.exp(k[t])", "rwkv.bonus"),
    ("mamba", "A = -math.exp(A_log)", "A = -math.log1p(math.exp(A_log))", "mamba.decay"),
]
FEW = 6  # cases that a program is run on: loops take long
MOST_LEFT = 0.25  # of the changed texts of an encoding, those that are no programs


def changed(monkeypatch, encoding, right, wrong):
    """The loop of an encoding whose text says something else."""
    text = inspect.getsource(sys.modules[f"loops.{encoding}"])
    assert right in text
    made = ModuleType(f"loops.{encoding}")
    exec(text.replace(right, wrong), vars(made))
    monkeypatch.setitem(sys.modules, f"loops.{encoding}", made)


def small(book, encoding):
    """Cases of an encoding at the levels of one operation, the cheapest of each first."""
    size = lambda e: np.prod([e.words["facts"][letter] for letter in "BTTHD"])
    some = [e for e in book.entries.values() if e.words["encoding"] == encoding]
    for level in OPERATIONS:
        yield from sorted((e for e in some if e.words["level"] == level), key=size)[:FEW]


@pytest.mark.parametrize(("encoding", "right", "wrong", "flag"), BUGS)
def test_the_step_that_is_another(book, monkeypatch, encoding, right, wrong, flag):
    __import__(f"loops.{encoding}")
    monkeypatch.setattr(loops, encoding, None, raising=False)
    changed(monkeypatch, encoding, right, wrong)
    came = []
    for entry in small(book, encoding):
        a = entry.inputs()
        given = witnessed(rebuilt(entry.words, a), a)
        single = {n: Tensor("F32", np.asarray(x, np.float32)) for n, x in given.items() if n in entry.outputs}
        came.append((entry, single, {}))
    first = Summary(came).probable[0]
    assert (first.trap.flag, first.confirmed) == (flag, True), first


@pytest.mark.parametrize("encoding", names())
def test_a_text_that_is_no_program_any_more_is_left_out(book, encoding):
    """Of every part some changed texts are run: what is wrong about one of them is never somebody's error,
    and few of them are no programs.
    """
    tried, left, exchanged = 0, 0, set()
    for level in OPERATIONS:
        some = (Answer(e, {}) for e in small(book, encoding) if e.words["level"] == level)
        answer = next((one for one in some if one.case), None)
        parts = exchangeable(answer) if answer else ()
        exchanged |= {*parts}
        for part in parts:
            f = part_of(answer.case, part)
            for one in variants(f, parts)[::15]:
                tried += 1
                try:
                    with np.errstate(all="ignore"):
                        forwards(part, f, lambda _, one=one: one.function)(answer)
                except BROKEN as error:
                    left += isinstance(error, NoProgram)
    assert bool(tried) == bool(exchanged)
    assert left <= MOST_LEFT * tried


def test_changed_texts_that_are_no_programs_are_counted_and_told(book):
    entry = book.entries["rope.op/default"]
    answer = Answer(entry, {"q_rotated": Tensor("F64", 2 * entry.want("q_rotated"))})
    doubled = guess("rope.sign", "a formula", lambda answer: {"q_rotated": 2 * answer.want("q_rotated")})
    broken = [guess("rope.sign", f"{n} is called", attempted(lambda answer: len(1))) for n in ("x", "y")]
    stages = dict.fromkeys(("FIRST", "NUMBERS", "LAST"), ()) | {"FORMULAS": (lambda _: [*broken, doubled],)}
    other = entry.want("k_rotated")
    partly = Answer(entry, {"q_rotated": answer.got["q_rotated"], "k_rotated": Tensor("F64", 3 * other)})
    with mock.patch.multiple(ranking, **stages):
        (whole, *_), (part, *_) = ranking.weighed([answer]), ranking.weighed([partly])
    assert "2 changed formulas could not be computed" in part.trap.evidence
    assert "could not be computed" not in whole.trap.evidence


def test_a_mistake_in_a_change_that_is_written_is_not_hidden():
    """Texts that were changed may be no programs any more; what is written here to be put in their place is
    one.
    """
    x = np.arange(1.0, 10).reshape(3, 3)
    for name, templates in (*OPERATORS.items(), *FUNCTIONS.items()):
        one = 2.5 if name == "int" else x
        for template in templates:
            assert np.shape(eval(template, {"np": np}, dict.fromkeys("abcxo", one))) in ((), (3, 1), (3, 3))
    with pytest.raises(AttributeError):
        remade(lambda x: x, lambda f: lambda x: f(x).transposed)(x)


@pytest.mark.parametrize(
    ("changed", "given"),
    [
        (lambda x: x, ()),  # the diagnosis calls it with too little
        (lambda x: names_in(x), ("no expression",)),  # and hands in what breaks
    ],
)
def test_a_mistake_of_the_diagnosis_in_a_changed_formula_is_not_hidden(changed, given):
    with pytest.raises((TypeError, AttributeError)):
        attempted(changed)(*given)


def unset(x):
    """As where the names of an inner loop were exchanged for those around it."""
    if x is None:
        y = 0
    return y


@pytest.mark.parametrize("changed", [lambda x: x.nothing, lambda x: len(x()), ELEMENTARY["silu"], unset])
def test_a_mistake_in_what_is_written_is_none_of_the_diagnosis(changed):
    """Of the text itself, of what it calls, and of a function that people write in place of another."""
    with pytest.raises(NoProgram):
        attempted(changed)("no number")


def test_values_of_options_that_cannot_be_computed_are_counted_and_told(book):
    """What is refused in words is none of them; a slip of the diagnosis is raised."""
    entry = book.entries["rope.op/default"]
    answer = Answer(entry, {"q_rotated": Tensor("F64", 2 * entry.want("q_rotated"))})
    raises = lambda error: mock.patch("peref.golden.diagnosis.options.with_option", side_effect=error)
    assert attempt(answer, "base", 0.0, "q_rotated") is None
    assert not answer.uncomputed
    with raises(ZeroDivisionError):
        assert fitted(answer, "base") is None
    assert len(answer.uncomputed["option value"]) > 10
    assert uncomputed_words([answer]).endswith(" option values could not be computed")
    with raises(TypeError), pytest.raises(TypeError):
        fitted(answer, "base")


def test_what_gives_no_numbers_is_left_out():
    """A text that was changed may give an array of None."""
    with pytest.raises(ValueError, match="of no numbers"):
        remade(lambda x: x, lambda f: lambda x: np.where(x > 0, None, 0))(np.ones(3))


def test_a_step_of_a_layer_has_the_flag_of_what_it_reads(book):
    """By the parameter or option in it, or the part that it is an argument of; where none says it, the flag
    of the whole layer is a guess.
    """
    entry = book.entries["gated_deltanet.op/default"]
    answer = Answer(entry, {"y": Tensor("F64", np.zeros(entry.want("y").shape))})
    found = {one.trap.words.partition(" where ")[2]: one for one in of_formulas(answer)}
    flags = {
        "D ** (-0.5) belongs, in mix": "delta.scale",
        "be.linear(x, p['a.weight'], None) belongs, in mix": "delta.decay",
        "be.linear(x, p['z.weight'], None) belongs, in mix": "mix.gate",
    }
    for words, flag in flags.items():
        assert (found[words].trap.flag, found[words].vague) == (flag, False), words
    of_all = found["heads if role == 'v' else H belongs, in mix"]
    assert (of_all.trap.flag, of_all.vague) == ("delta.projections", True)


def test_words_say_both_texts():
    """What stands there, what belongs there, and in which function."""
    words = {one.words for one in variants(part_of_fire())}
    assert "np.minimum(least, i) stands where xp.maximum(least, i) belongs, in share" in words
    assert len(words) > 50


def part_of_fire():
    from peref.encodings.score import fire

    return fire.share
