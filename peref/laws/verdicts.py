"""Everything asked of one encoding, each answer in words.

Not here: the checks themselves (everywhere, claimed, loops), printing (cli).
"""

import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from peref import modules
from peref.compare import Differs
from peref.encodings import LAWS, get, options
from peref.errors import Misuse
from peref.laws import claimed, everywhere, loops
from peref.laws.claimed import CLAIMED, HOLDS
from peref.laws.small import LENGTH, Given, Subject, broken, each_alone, last_words, tokens

EVERYWHERE: dict[str, Callable[[Subject], Any]] = {
    "gradients": everywhere.gradients,
    "gradients later": everywhere.gradients_later,
    "gradients inside": everywhere.gradients_inside,
    "gradients, options": everywhere.gradients_of_choices,
    "gradients, claims": everywhere.gradients_of_claims,
    "causality": everywhere.causal,
    "decoding in pieces": everywhere.decoding,
    "padding, documents": everywhere.packing,
    "documents, options": everywhere.packing_of_choices,
    "padding, gradients": everywhere.padding_backward,
    "rows of padding": everywhere.blind_rows,
    "grouped heads": everywhere.grouped_heads,
    "history": everywhere.history,
    "dtype": everywhere.dtype,
    "positions": everywhere.positions,
    "axes": claimed.axes,
}
ASKED_OF: dict[str, Callable[[Subject], Any]] = {  # laws that are asked of some encodings only -> of which
    "gradients inside": lambda s: (
        s.encoding.hook == "score" or (s.learns and s.encoding.hook in ("embed", "rotate", "bias"))
    ),
    "gradients, options": lambda s: len(s.choices) > 1,
    "gradients, claims": lambda s: s.claims() & {"two_sided", "window"} or s.axes > 1,
    "documents, options": lambda s: len(s.choices) > 1,
    "rows of padding": lambda s: s.encoding.hook in ("score", "attend"),
    "grouped heads": lambda s: s.encoding.hook != "mix",
    "loop": lambda s: s.loop is not None and s.encoding.hook,
    "scale of the loop": lambda s: s.loop is not None,
    "text": lambda s: s.axes > 1 or "text" in s.claims(),
    "products": lambda s: s.encoding.hook in ("score", "attend") or "products" in s.claims(),
}
SHORT_CHUNK = 2  # tokens, so that a gradient goes through three chunks, the last one not full
OF_LOOP = {"loop": loops.loop, "scale of the loop": loops.scale}


@dataclass(frozen=True)
class Verdict:
    """What was found of one law. `claimed` is None for laws of every encoding."""

    law: str
    claimed: bool | None
    right: bool
    words: str

    @property
    def status(self) -> str:
        if self.claimed is False and self.right:
            return "not claimed"
        holds = self.right or (self.claimed is False and HOLDS in self.words)
        before = {None: "", True: "claimed, ", False: "not claimed, "}[self.claimed]
        return before + ("holds" if holds else "broken")


def of_chunks(name: str) -> list[str]:
    """Options of a mix that may say how many tokens are computed at once: more than a small model has."""
    known = options(get(name)).items() if get(name).hook == "mix" else ()
    return [option for option, (default, _) in known if type(default) is int and default > LENGTH // 2]


def subject(
    name: str, given: Given, loop: str | None = None, sizes: Given | None = None
) -> tuple[Subject, dict[str, str]]:
    """The encoding with `given` options and the others at other values; what it refuses: option=value -> why.

    loop    the path of a file with its scalar loop
    """
    here = partial(loops.filled, modules.imported(modules.LOOP, loop)) if loop else None
    base, choices, refused = Subject(name, (given,), here, sizes or {}), [given], {}
    alone = [*each_alone(name), *((option, SHORT_CHUNK) for option in of_chunks(name))]
    others = [{option: value} for option, value in alone if option not in given]
    words = {option: word for option, word in last_words(name).items() if option not in given}
    for more in [*others, *([words] if len(words) > 1 else [])]:
        try:
            computed(base, {**given, **more})
            choices.append({**given, **more})
        except Misuse as error:
            refused[" ".join(f"{option}={value}" for option, value in more.items())] = str(error)
        except Exception:  # the laws will say what and where
            choices.append({**given, **more})
    return Subject(name, tuple(choices), here, sizes or {}), refused


def computed(s: Subject, given: Given) -> Any:
    """Logits of a small model. Raises Misuse where the options, or the sizes, are none that it takes."""
    return s.model(given).logits(tokens(1, 3))


def runs(s: Subject) -> None:
    """A small model gives finite numbers."""
    y = computed(s, s.choices[0])
    if not np.isfinite(y).all():
        raise broken(f"{np.count_nonzero(~np.isfinite(y))} of {y.size} logits are not finite")


def passes(s: Subject, check: Callable[[Subject], Any]) -> tuple[bool, str]:
    """Whether it passes, and in words why not, or what was refused as it must be."""
    try:
        said = check(s)
    except Differs as error:
        return False, str(error)
    except Misuse as error:
        return False, f"refused: {error}"
    except Exception as error:
        *_, frame = traceback.extract_tb(error.__traceback__)
        written = "; it writes into an array that is not its own" if "read-only" in str(error) else ""
        words = modules.blamed(error) or f"{type(error).__name__}: {error} (in {frame.name})"
        return False, words + written
    return True, f"refused: {said[0]}" if said else ""


def verdicts(s: Subject) -> Iterator[Verdict]:
    """One after the other; where the first, that it computes anything, fails, the others are not asked."""
    with np.errstate(all="ignore"):
        right, words = passes(s, runs)
        if not right:
            yield Verdict("a model", None, right, words)
            return
        for law, check in (EVERYWHERE | OF_LOOP).items():
            if ASKED_OF.get(law, bool)(s):
                yield Verdict(law, None, *passes(s, check))
        for law in CLAIMED:
            if ASKED_OF.get(law, bool)(s):
                yield Verdict(law, law in s.claims(), *passes(s, partial(claimed.ask, law)))


def about(law: str, found: Mapping[str, str] = LAWS) -> str:
    """What a law says."""
    checks = EVERYWHERE | OF_LOOP | {"a model": runs}
    return found[law] if law in found else str(checks[law].__doc__).split("\n")[0]
