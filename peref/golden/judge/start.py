"""The start of a function of one encoding that somebody then makes right: a few lines that run, made from its
golden cases and the formula in its docstring.

In NumPy whatever is installed, so that the text does not depend on the machine: an array of it is a tensor of
every framework.

Not here: how it is called (function).
"""

import textwrap
from collections.abc import Iterable

from peref import share
from peref.encodings import module
from peref.errors import Misuse, did_you_mean
from peref.golden.judge.function import plain
from peref.golden.spec.book import Book

ORDER = ("q", "k", "v", "x", "positions")


def start_of(name: str, book: Book) -> str:
    """The text of a module with a function of `name`, for --for. Raises Misuse where it has no case."""
    every = [entry.words for entry in book.entries.values() if entry.words["encoding"] == name]
    if not every:
        known = {entry.words["encoding"] for entry in book.entries.values()}
        meant = did_you_mean(name, known, f"expected one encoding, see: {share.program()} list")
        raise Misuse(f"--start {name}: no encoding of that name has a case{meant}")
    level = "op" if any(words["level"] == "op" for words in every) else "attn"
    cases = [words for words in every if words["level"] == level]
    axes = {key: letters for words in cases for key, letters in words["axes"].items()}
    inputs = in_all(words["inputs"] for words in cases)
    arrays = sorted(inputs & set(ORDER), key=ORDER.index)
    outputs, letters = {}, ""
    for output in sorted(in_all(words["expected"] for words in cases)):
        if not output.startswith("vjp."):
            same = next((n for n in arrays if axes.get(n) == axes[output]), "")
            sizes = axes[output].replace("S", "T")
            letters += "" if same else sizes
            outputs[output] = same or f"np.zeros(({', '.join(sizes)}))"
    leaves = {key[4:] for words in cases for key in words["expected"] if key.startswith("vjp.")}
    taken = [*arrays, *sorted(set(letters))]
    lines = [f"def {name}({', '.join(taken)}, **more):"]
    lines += textwrap.wrap(
        f"# more: {more_of(cases, taken)}", 100, initial_indent="    ", subsequent_indent="    #   "
    )
    if any("before" in words["facts"] for words in cases):
        lines += ['    if more.get("before") is not None: return None  # a state: yours']
    lines += [f"    y = {dict_of(outputs)}  # yours"]
    if not leaves:
        lines += ["    return y"]
    else:
        rest = ' | {n: a for n, a in more.items() if n.startswith(("param_", "x"))}'
        given = dict_of({name: name for name in arrays if name in leaves})
        lines += [f"    leaves = {given}{rest * bool(leaves - set(arrays))}"]
        lines += ['    return y | {f"vjp_{n}": np.zeros_like(a) for n, a in leaves.items()}  # yours']
    formula = "\n\n".join(module(name).__doc__.split("\n\n")[:2]).rstrip()
    run = f"{share.program()} check --impl mine:{name} --for {name}.{level}"
    said = "It runs as it is, and is wrong until you write the lines marked yours. As mine.py:"
    about = f"{formula}\n\n{said}\n\n    {run}\n"
    return f'r"""{about}"""\n\nimport numpy as np\n\n\n' + "\n".join(lines) + "\n"


def dict_of(items: dict[str, str]) -> str:
    """As it is written, its values being code."""
    return f"{{{', '.join(f'{key!r}: {text}' for key, text in items.items())}}}".replace("'", '"')


def in_all(lists: Iterable[list[str]]) -> set[str]:
    """The names that are in each list."""
    return set.intersection(*map(set, lists))


def more_of(cases: list[dict], taken: list[str]) -> str:
    """What else a parameter may be called after: other inputs, then facts, then options."""
    names_in = lambda part: {plain(name) for words in cases for name in words[part]}
    parts = [sorted(names_in(part) - set(taken)) for part in ("inputs", "facts", "options")]
    return "; ".join(", ".join(part) for part in parts if part)
