"""Cases with a state before: what is wrong with the state handed in, with the last one, and with the gradient
that arrives through it has its name first. Every recurrence that has such cases is asked.
"""

import numpy as np
import pytest

from peref.golden.compute.reference import expected
from peref.golden.diagnosis.answer import Answer
from peref.golden.diagnosis.ranking import weighed
from peref.golden.diagnosis.recurrences import exchanging, put
from peref.golden.spec.cases import rebuilt
from peref.golden.spec.files import Tensor

TAILS = (*"xbcqkv", "tail")  # last inputs of a shift or a convolution
flipped = lambda x: np.swapaxes(x, -1, -2) if x.ndim == 4 and x.shape[-1] == x.shape[-2] else x


def of_inputs(change):
    return lambda case, a: expected(case, {name: change(name, x) for name, x in a.items()})


def of_last(case, a):
    return {name: flipped(x) if name.startswith("last.") else x for name, x in expected(case, a).items()}


def token_before(case, a):
    """The last input that is handed on is that of the token before."""
    found, before = expected(case, a), a["x"][:, -2:-1]
    shifted = found.get("last.x", np.zeros(0)).shape == before.shape  # else it is that of a convolution
    return found | ({"last.x": before} if shifted else {})


nothing = lambda start, of=None: of_inputs(
    lambda name, x: 0 * x if name.startswith(start) and (of is None or name.rpartition(".")[2] in of) else x
)
BUGS = [
    ("cache.state_dropped", nothing("state.")),
    ("cache.tail_dropped", nothing("state.", TAILS)),
    ("cache.tail_dropped", token_before),
    ("state.transposed", of_last),
    ("state.gradient", nothing("cotangent.last.")),
]


def answers(book, encoding, program):
    """What comes of the cases with a state before, all at once."""
    found = []
    for entry in book.entries.values():
        if entry.words["encoding"] == encoding and "before" in entry.words["facts"]:
            a = entry.inputs()
            with np.errstate(all="ignore"):
                given = program(rebuilt(entry.words, a), a)
            found.append(Answer(entry, {n: Tensor("F64", np.asarray(x, float)) for n, x in given.items()}))
    return found


@pytest.mark.parametrize(("flag", "program"), BUGS)
def test_a_wrong_state_is_named(book, flag, program):
    every = {e.words["encoding"] for e in book.entries.values() if "before" in e.words["facts"]}
    shown = 0
    for encoding in sorted(every):
        some = answers(book, encoding, program)
        if any(one.wrong for one in some):
            shown += 1
            first = weighed(some)[0]
            assert (first.trap.flag, first.whole) == (flag, True), (encoding, first)
    assert shown


@pytest.mark.parametrize("change", [put(0, lambda x, given: given[2]), exchanging(0, 2)])
def test_what_is_not_there_in_a_call_is_read_by_no_guess(change):
    """A convolution has no state in its first call."""
    with pytest.raises(ValueError, match="an argument is not there"):
        change(lambda x, w, state: x, [np.zeros(3), np.ones(3), None], {})
