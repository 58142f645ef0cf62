"""Where somebody's trace begins to differ from the reference's: the first tensor that is beyond the class
asked for (verdicts.py), and why (causes.py).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from peref.config import Config
from peref.errors import Damaged, Misuse, PerefError
from peref.errors import explained as unreadable
from peref.evaluate import weights_of
from peref.golden.spec.files import LONGEST_HEADER, Tensor, read_tensors, strict_json, whole_header
from peref.golden.spec.rule import ROUNDOFF, Verdict
from peref.model import check_tokens
from peref.parameters import half_of, shapes_of
from peref.passes import Memory
from peref.porting import PUBLIC_NAMES, load, names_of
from peref.porting.files import CONFIG, published
from peref.porting.tensors import rows
from peref.runs import open_run
from peref.schema import COUNT, LIST, NAMES, OBJECT, TEXT, fields, misfit
from peref.store import is_file, read_bytes
from peref.trace import OF_LAYER
from peref.trace_diff.causes import MOST_FOLLOWED, diagnosed, explains, small_error
from peref.trace_diff.evidence import Differing, collapsed
from peref.trace_diff.steps import layer_and_step
from peref.trace_diff.verdicts import OF_PARAMETER, Traces
from peref.xp import Arrays

TRACE_FORMAT = "peref trace 1"
BEGINNING = fields({"format": TEXT | {"pattern": "^peref trace"}})  # of any
OF_TENSOR = fields({"name": TEXT, "axes": NAMES})
ROWS_OF_TOKENS = {"type": ["array", "null"], "items": LIST | {"items": COUNT}}
OF_TRACE = fields(
    {"config": OBJECT, "tokens": ROWS_OF_TOKENS, "tensors": LIST | {"minItems": 1, "items": OF_TENSOR}},
    **{"encoder_tokens": ROWS_OF_TOKENS, "n": COUNT | {"minimum": 1}},
    **{"names": {"enum": [None, "", *PUBLIC_NAMES]}, "source": {"type": ["string", "null"]}},
)
NOTE = fields({"peref": TEXT})  # what trace writes into the header of its tensors


@dataclass(frozen=True)
class Walk:
    """What came of two traces: how many tensors agree before the first that differs, which of the reference
    are missing in theirs, what else is to be said, and which of theirs the reference has not (`unknown`).
    """

    agree: tuple[str, ...]
    missing: tuple[str, ...]
    found: Differing | None
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()  # what is missing, and what is unknown, in few words
    strange: tuple[str, ...] = ()


def said_of_trace(path: Path) -> dict[str, Any] | None:
    """What trace wrote of its tensors at `path`, into that file and as JSON beside it; None where they are no
    trace. Raises Misuse where they are and nothing says of what, or the JSON is of another trace.
    """
    if path.suffix != ".safetensors" or not is_file(path):
        return None
    beside, (inside, names) = path.with_suffix(".json"), written_into(path)
    found = strict_json(read_bytes(beside), str(beside)) if is_file(beside) else inside
    if misfit(found, BEGINNING):
        found = inside
    if found is None:
        if any(layer_and_step(name)[1] in OF_LAYER for name in names if name.startswith("layers.")):
            what = f"{path} has the tensors of a trace and nothing says of which model and tokens"
            raise Misuse(f"{what}: put the {beside.name} that trace wrote beside it, or say --rule allclose")
        return None
    if found["format"] != TRACE_FORMAT:
        raise Misuse(f"{beside}: format is {found['format']!r}; this peref reads {TRACE_FORMAT!r}")
    lacking = [f"no {name} in it" for name in OF_TRACE["required"] if name not in found]
    if said := (lacking or [misfit(found, OF_TRACE)])[0]:
        raise Damaged(f"{beside}: {said}; expected the JSON that trace wrote")
    other = [key for key in found if key != "source" and found[key] != (inside or found).get(key)]
    if {one["name"] for one in found["tensors"]} != names:
        other = ["tensors"]
    if other:
        what = f"{beside}: it is of another trace than {path.name}, with other {other[0]}"
        raise Misuse(f"{what}; put the one that trace wrote with it there, or remove it")
    return found


def written_into(path: Path) -> tuple[dict[str, Any] | None, set[str]]:
    """What trace says of its tensors in their own file, None where it says nothing; their names."""
    with unreadable(path, "read"), path.open("rb") as file:
        first = file.read(8)
        length = min(int.from_bytes(first, "little"), LONGEST_HEADER)
        header = whole_header(first + file.read(length), str(path))
    note = header.pop("__metadata__", None)
    said: Any = None if misfit(note, NOTE) else strict_json(note["peref"].encode(errors="replace"), str(path))
    meta = None if misfit(said, fields({"meta": BEGINNING})) else said["meta"]
    return meta, {*header}


def first_difference(path: Path, second: Path, words: Mapping[str, Any], limit: str = "C") -> Walk:
    """Theirs at `second` held against the trace at `path`, of which `words` is the JSON.

    Raises Misuse where they have no tensor in common or one of theirs is not of floats, Damaged for what is
    no trace.
    """
    ours, came = read_tensors(path), read_tensors(second)
    check_described(path, words, ours)
    of_public, public = renamed(came, words)
    strange = [name for name in came if name not in ours and name not in public.values()]
    came |= of_public
    for name in (one for one in ours if one in came and came[one].dtype not in ROUNDOFF):
        asked = f"expected one of {', '.join(ROUNDOFF)}; write it in the dtype that it was computed in"
        raise Misuse(f"{second}: {name} has dtype {came[name].dtype}; {asked}")
    if came.keys().isdisjoint(ours):
        some, mine = (", ".join([*of][:3]) or "none" for of in (came, ours))
        raise Misuse(f"{second}: no tensor in common with the reference; it has {some}, expected {mine}, ...")
    params, notes = weights_of_trace(words, path)
    both = Traces(ours, came, dict(words), limit, params, notes)
    walk = (walk_of_both if "encoder" in words["config"] else walk_of)(both)
    if walk.found and walk.found.name in public:
        known = (f"theirs has it in {public[walk.found.name]}", *walk.found.known)
        walk = replace(walk, found=replace(walk.found, known=known))
    lacking, unknown = collapsed(walk.missing, both.axes), collapsed(strange, came)
    return replace(walk, unknown=tuple(strange), lacking=tuple(lacking), strange=tuple(unknown))


def check_described(path: Path, words: Mapping[str, Any], ours: Mapping[str, Tensor]) -> None:
    """Raises Damaged where model, tokens, place and shapes of a trace do not go together."""
    tokens, cfg = words["tokens"], Config.from_json(words["config"])
    try:
        B, T = (1, words["n"]) if tokens is None else check_tokens(cfg, np.array(tokens)).shape
        at = cfg.place(B, T, words.get("positions"), words.get("seg"), words.get("n"))
        cfg.check_place(at, np.dtype(np.float64))
        S = check_tokens(cfg.encoder, np.array(words["encoder_tokens"])).shape[1] if cfg.encoder else 0
    except (KeyError, TypeError, ValueError) as error:
        raise Damaged(f"{path}: its tokens and place are not of its model: {error}") from error
    for one in words["tensors"]:
        name, axes, shape = one["name"], one["axes"], ours[one["name"]].bits.shape
        half = cfg.encoder if cfg.encoder and "encoder." in name else cfg
        sizes = {letter: getattr(half, letter) for letter in "CVHGD"} | {"B": B, "S": S}
        sizes["T"] = T if half is cfg else S
        if (*map(sizes.get, axes, shape),) != shape or len(axes) != len(shape):
            raise Damaged(f"{path}: {name} is {list(shape)}; expected the sizes of its model, {axes}")


def walk_of_both(t: Traces) -> Walk:
    """The encoder's tensors, then, behind what theirs made, the decoder's and all gradients. Raises Misuse
    where that is not there.
    """
    front, config = "encoder.", dict(t.words["config"])
    about = {one["name"]: one for one in t.words["tensors"]}
    if f"{front}final" not in t.came:
        raise Misuse(f"theirs has no {front}final, of which the decoder's keys and values are; dump it too")
    inner = lambda some: {n.removeprefix(front): x for n, x in some.items() if n.startswith(front)}
    first = {"config": config.pop("encoder"), "tokens": t.words["encoder_tokens"]}
    first["tensors"] = [one | {"name": name} for name, one in inner(about).items()]
    p, q = (half_of(t.params, part) if t.params else {} for part in ("encoder", "decoder"))
    encoder = Traces(inner(t.ours), inner(t.came), first, t.limit, p, t.notes, front)
    walk = walk_of(encoder)
    agree, missing = ([f"{front}{name}" for name in some] for some in (walk.agree, walk.missing))
    rest = {name: one for name, one in about.items() if not name.startswith(front)}
    if walk.found or t.came.keys().isdisjoint(rest):
        found = walk.found and replace(walk.found, name=f"{front}{walk.found.name}")
        missing += [name for name in rest if name not in t.came]
        return Walk((*agree,), (*missing,), found, walk.notes)
    memory = Memory(encoder.theirs["final"], np.ones((1, encoder.engine.at.T), int))
    second = {**t.words, "config": config, "tensors": [*rest.values()]}
    mine = {name: t.ours[name] for name in rest}
    walk = walk_of(replace(t, ours=mine, words=second, params=q, notes=walk.notes, memory=memory, whole=t))
    return replace(walk, agree=(*agree, *walk.agree), missing=(*missing, *walk.missing))


@np.errstate(all="ignore")  # what theirs has, and what a reading makes of it, may be anything
def walk_of(t: Traces) -> Walk:
    """Theirs in the order of computation, up to the first that differs."""
    missing = tuple(name for name in t.order if name not in t.came)
    agree, doubtful, failing = list[str](), list[tuple[str, Verdict]](), list[tuple[str, Verdict]]()
    for name, verdict, by_theirs in judged_in_order(t):
        if not verdict.worst <= t.most:
            failing = [(name, verdict)]
            break
        if by_theirs and t.doubtful(name, verdict):
            doubtful.append((name, verdict))
        agree.append(name)
    if failing and t.params and not t.consistent(failing[0][0]):
        said = "the weights in the run are not those of the trace; they are left out"
        return walk_of(replace(t, params={}, notes=(*t.notes, said)))
    worst = {name for name, _ in sorted(doubtful, key=lambda one: -one[1].worst)[:MOST_FOLLOWED]}
    found = next(filter(None, (small_error(t, *one) for one in doubtful if one[0] in worst)), None)
    if not found and failing:
        found = diagnosed(t, *failing[0], t.limit)
    found = found and in_first_layer(t, found, doubtful)
    before = agree[: agree.index(found.name)] if found and found.name in agree else agree
    return Walk(tuple(before), missing, found, t.notes)


def in_first_layer(t: Traces, found: Differing, doubtful: list[tuple[str, Verdict]]) -> Differing:
    """The same step in the first layer where the reading explains what the class asked for lets pass."""
    step = layer_and_step(found.name)[1]
    for one in takewhile(lambda one: one[0] != found.name, doubtful if found.readings else ()):
        if layer_and_step(one[0])[1] == step and explains(t, found.readings[0].engine, *one):
            return small_error(t, *one) or found
    return found


def judged_in_order(t: Traces) -> Iterator[tuple[str, Verdict, bool]]:
    """The verdict on each of theirs; whether it is by what theirs before it make."""
    for group, some in groupby((name for name in t.order if name in t.came), t.group):
        names = list(some)
        judged = t.judged(t.engine, [name for name in names if group > -2 and name in t.theirs])
        for name in names:
            yield name, judged.get(name) or t.beside(name), name in judged


def renamed(came: Mapping[str, Tensor], words: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Gradients of parameters under public names, which the traced model was imported with, under ours, of
    whatever shape they are; and the public name of each.
    """
    found, public = dict[str, Tensor](), dict[str, str]()
    for row in rows(Config.from_json(words["config"]), words["names"]) if words.get("names") else ():
        if x := came.get(theirs := f"{OF_PARAMETER}{row.theirs}"):
            fits = x.bits.shape == row.public_shape
            parts = row.parted(x.bits, None) if fits else dict.fromkeys(row.ours, x.bits)
            for name, a in parts.items():
                found[f"{OF_PARAMETER}{name}"], public[f"{OF_PARAMETER}{name}"] = Tensor(x.dtype, a), theirs
    return found, public


def weights_of_trace(words: Mapping[str, Any], path: Path) -> tuple[Arrays, tuple[str, ...]]:
    """The parameters of the model that was traced as float64, and what is to be said where they are not to be
    had.
    """
    source, shapes = words.get("source"), shapes_of(Config.from_json(words["config"]))
    for place in () if source is None else (Path(source), path.parent / source):
        run = is_file(place / "run.json")
        if run or is_file(place / CONFIG):
            try:
                params = weights_of(open_run(place))[1] if run else published_in(place, words)
            except PerefError as error:
                return {}, (f"the weights were not read: {error}",)
            if not {name: a.shape for name, a in params.items()}.items() <= shapes.items():
                return {}, (f"the weights in {source} are those of another model; they are left out",)
            return {name: np.asarray(a, np.float64) for name, a in params.items()}, ()
    here = f"{source} is not here" if source else "the trace names no run"
    return {}, (f"{here}: what its weights make is compared with the reference's own numbers",)


def published_in(folder: Path, words: Mapping[str, Any]) -> Arrays:
    """The parameters in the folder of a published model: of the one layer that was traced, or all."""
    model, alone = published(folder), words["tokens"] is None
    layer = layer_and_step(words["tensors"][0]["name"])[0] if alone else None
    cfg = Config.from_json(words["config"])
    return load(model.tensors, cfg, names_of(model.config), dtype=np.dtype(np.float64), layer=layer)
