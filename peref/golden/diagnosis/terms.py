"""Guesses at what is added to the logits by content: missing, of another size, shifted.

Not here: biases of distance (biases), steps of the formula (formulas).
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from peref.golden.diagnosis.answer import Answer, Guess, flag_of, guess
from peref.golden.diagnosis.engine import changed, computed, family
from peref.golden.diagnosis.rotation import LOW

nothing = changed(lambda x: 0 * x)


@family(lambda case: case.hook == "score")
def of_content(answer: Answer, case: Any) -> Iterator[Guess]:
    """What is added to the logits by content: missing, of another size, shifted."""
    flag = flag_of(answer, "terms", "missing", "")
    late = flag_of(answer, "terms", "shifted", flag)
    scale = flag_of(answer, "terms", "scaled", flag)
    put: Any = lambda change: computed(
        terms=lambda *some: tuple(None if x is None else changed(change)(x) for x in some)
    )
    for which, words, change in (
        (flag, "is missing", lambda x: 0 * x),
        (flag, "has the other sign", lambda x: -x),
        (scale, "counts half", lambda x: x / 2),
        (scale, "counts twice", lambda x: 2 * x),
        (late, "is of the key before", lambda x: np.roll(x, 1, -1)),
        (late, "is of the key after", lambda x: np.roll(x, -1, -1)),
        (late, "is of the query before", lambda x: np.roll(x, 1, -2)),
        (late, "is of the query after", lambda x: np.roll(x, -1, -2)),
        (late, "has queries and keys exchanged", lambda x: x.swapaxes(-1, -2)),
        (flag, "has heads in reverse order", lambda x: x[:, ::-1]),
        (flag, "has the heads of the next", lambda x: np.roll(x, -1, 1)),
        *((flag, f"was {name}", low) for name, low in LOW),
    ):
        if which:
            yield guess(which, f"what is added to the logits {words}", put(change), 0.97)
    for words, factor in (
        ("divided by sqrt(D) once more", case.D**-0.5),
        ("not divided by sqrt(D)", case.D**0.5),
    ):
        if scale:
            yield guess(
                scale, f"what is added to the logits is {words}", put(lambda x, c=factor: c * x), 0.97
            )
    far: tuple[tuple[str, Any], ...] = (
        ("have the other sign", lambda i, c: -i),
        ("are twice as far", lambda i, c: 2 * i),
    )
    for words, distance in far if late else ():
        yield guess(late, f"your distances {words}", computed(i=distance), 0.96)
    for n, part in enumerate(("term", "row", "column")):
        less = lambda *some, n=n: tuple(
            nothing(x) if m == n and x is not None else x for m, x in enumerate(some)
        )
        if flag:
            yield guess(flag, f"the {part} is not added to the logits", computed(terms=less), 0.96)
