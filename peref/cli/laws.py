"""laws: what an encoding must keep, and what it claims."""

from dataclasses import asdict

from peref.cli import options, text
from peref.cli.options import Document, Given
from peref.encodings import resolve
from peref.errors import Misuse
from peref.laws.verdicts import Verdict, about, subject, verdicts
from peref.settings import choose

LAW, STATUS = 20, 20  # columns


@options.command("laws")
@options.argument("name", options.ENCODINGS, metavar="NAME|./FILE.py")
@options.option("--loop=FILE.py", "Also compare with this scalar loop.", options.FILE)
@options.option("--width", "The small models' width.  [default: 30]", options.SIZE)
@options.option("--head-width", "The width of their heads.  [default: 4]", options.SIZE)
@options.set_option
def command(given: Given) -> Document:
    """Check an encoding against the laws: gradients, causality, decoding, padding and the rest, whether it
    claims them or not.

    Exit 0 where all is right, 1 where something is broken, or holds and is not claimed.
    """
    chosen = choose(given.name, given.settings)
    if len(chosen["pe"]) != 1:
        raise Misuse(f"{given.name}: laws are asked of one encoding")
    ((encoding, own),) = chosen.pop("pe")
    sizes = {"C": given.width, "D": given.head_width} | chosen
    sizes = {letter: size for letter, size in sizes.items() if size is not None}
    s, refused = subject(encoding, own, given.loop, sizes)
    if not given.as_json:
        print(f"{encoding} ({s.encoding.hook or 'no hook'}): {s.encoding.formula}\n")
    found = []
    for verdict in verdicts(s):
        found.append(verdict)
        if not given.as_json:
            print(line(verdict), flush=True)
    wrong = [verdict for verdict in found if not verdict.right]
    tries = (text.folded(f"not tried: {choice}: {why}", later=4) for choice, why in refused.items())
    which = f"; wrong: {'; '.join(v.law for v in wrong)}" if wrong else ""
    end = f"\n{len(found) - len(wrong)} of {len(found)} as they must be{which}"
    laws = [asdict(v) | {"status": v.status, "about": about(v.law)} for v in found]
    data = {"encoding": encoding, "options": resolve(encoding, own), "right": not wrong, "laws": laws}
    return data | {"not_tried": refused}, [*tries, end], int(bool(wrong))


def line(verdict: Verdict) -> str:
    """One law: what it says, or how it was refused; what broke stands under it."""
    first = f"{verdict.law.ljust(LAW)}{verdict.status.ljust(STATUS)}"
    refused = verdict.right and verdict.claimed is False and verdict.words
    said = text.folded(refused or about(verdict.law), first, len(first))
    return said if verdict.right else f"{said}\n{text.folded(verdict.words, ' ' * 4, 4)}"
