"""Warm start: a new run that begins with the weights of another, perhaps under another encoding or at another
length. So are position interpolation, YaRN and LongRoPE used in their papers, and DroPE, which trains with
RoPE, drops it and trains on a little.

Not here: which run and options are meant (cli/train.py), other encodings for the same weights
(evaluate.under).
"""

from dataclasses import dataclass, replace
from typing import Any

from peref.config import Config
from peref.errors import Misuse, counted, few
from peref.evaluate import under
from peref.member import kinds
from peref.parameters import init
from peref.porting.files import CONFIG
from peref.recipe import Recipe
from peref.runs import Run
from peref.vocabulary import TOKENIZER
from peref.xp import Arrays


@dataclass(frozen=True)
class Start:
    """The weights that a run begins with, what its record says of them, under "parent" and, where the
    vocabulary is from, "imported", and the files of that, as in runs.create.
    """

    params: Arrays
    record: dict[str, Any]
    files: dict[str, bytes]


def trained_on(cfg: Config, pe: str | None, given: tuple[str, ...], fields: dict[str, Any]) -> Config:
    """`cfg` with another encoding or other options, as --pe and --set say, and other fields.

    Where L is another, what would follow it stays with the L of `cfg`, unless it is given: `original`, which
    the scalings of RoPE stretch from, and `temperature_length`.
    """
    found = replace(under(cfg, pe, given), **fields)
    pinned = []
    for name, chosen in found.pe if found.L != cfg.L else ():
        of_length = {key: cfg.L for key in kinds(name) if key.rpartition(".")[2] == "original"}
        if chosen.get("temperature", "none") not in ("none", "ssmax"):
            of_length |= {"temperature_length": cfg.L}
        pinned.append((name, {**chosen, **{k: L for k, L in of_length.items() if chosen.get(k) is None}}))
    return replace(found, pe=tuple(pinned)) if pinned else found


def start(run: Run, params: Arrays, step: int, cfg: Config, recipe: Recipe, *, anew: bool) -> Start:
    """The weights `params` of `run` after `step` for a new run of `cfg`, in the dtype of `recipe`.

    Raises Misuse for what does not fit, unless `anew`: then what cfg lacks is drawn by the seed of `recipe`,
    and what cfg has no use for is left out.
    """
    new = init(cfg, recipe.seed, recipe.dtype)
    drawn = [name for name, a in new.items() if name not in params or params[name].shape != a.shape]
    left = sorted(params.keys() - new.keys())
    if (drawn or left) and not anew:
        shape = lambda of, name: str(list(of[name].shape)) if name in of else "not"
        said = [f"{name} (is {shape(params, name)} there, {shape(new, name)} here)" for name in drawn + left]
        what = f"{counted(len(said), 'tensor')} of {run.folder} and the new model do not fit"
        raise Misuse(f"{what}: {few(said)}; --new-parameters draws anew what it lacks")
    kept = {name: a if name in drawn else params[name].astype(a.dtype) for name, a in new.items()}
    where = {"run": str(run.folder.resolve()), "step": step, "sha256": run.digest(step)}
    record = {key: about for key, about in run.record.items() if key == "imported"}
    files = {f"public/{name}": data for name in (CONFIG, TOKENIZER) if (data := run.public(name))}
    return Start(kept, record | {"parent": where | {"drawn": drawn, "left": left}}, files)
