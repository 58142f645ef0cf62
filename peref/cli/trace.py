"""trace: every tensor on the way of a forward pass, for an engine that is to give the same."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from peref import __version__, store
from peref.cli import options, text
from peref.cli.found import weights_found
from peref.cli.options import FILE, Document, Given, option
from peref.config import Config
from peref.errors import Misuse, counted, theirs
from peref.huggingface import load_json
from peref.ops.place import At
from peref.porting import load, names_of, one_or_two
from peref.porting.files import CONFIG, mapped, published
from peref.porting.tensors import copied
from peref.runs import open_run
from peref.trace import byte_count, check_trace, layers_of, trace, trace_layer, write
from peref.xp import Arrays


@options.command("trace")
@options.argument("run", options.RUN)
@options.own_encodings
@option("--prompt", "The text that is read.")
@option("--tokens", "A file of token numbers that are read: text, or a JSON list.", FILE)
@option(
    "--source", "What the encoder reads, where RUN has one: text beside --prompt, a file beside --tokens."
)
@option("-o --output", "NAME.safetensors; NAME.json beside it says what each tensor is.", FILE, required=True)
@option(
    "--place",
    "JSON that says where the tokens are: positions, [T] or [axes,1,T], and seg, [1,T], the number of each "
    "one's document, 0 for padding.  [default: one document, counted from 0]",
    FILE,
)
@option("--layers=N,N,...", "Keep the tensors of these layers only.  [default: all]")
@option("--gradients", "Keep the gradients of the loss of the next tokens too.", bool)
@option("--dtype", "What is computed in.", ["float64", "float32"], default="float64")
@option("--layer", "Compute this layer alone, on --input.", int)
@option("--input states", "Hidden states that enter --layer: [T,C] or [1,T,C].", FILE)
def command(given: Given) -> Document:
    """Write every tensor of a forward pass of RUN, for `diff` to compare another engine with.

    With --layer, RUN may be the folder of a published model, of which only that layer is read.
    """
    inputs, alone = (given.prompt, given.tokens, given.states), given.layer is not None
    if sum(one is not None for one in inputs) != 1 or alone != (given.states is not None):
        raise Misuse("expected one of: --prompt TEXT; --tokens FILE; --layer N with --input FILE")
    if alone:
        given.refuse("positions of --layer count from 0", "place")
        given.refuse("one layer alone has no encoder", "source")
    if given.source is not None:
        given.refuse("positions of an encoder and a decoder count from 0", "place")
    if alone and (given.gradients or given.layers):
        raise Misuse("one layer has no loss, and is all that is kept; leave --gradients and --layers out")
    if Path(given.output).suffix != ".safetensors":
        raise Misuse(f"-o is {given.output!r}; expected a file for the tensors, NAME.safetensors")
    out, dtype, tokens, source = Path(given.output), np.dtype(given.dtype), None, None
    store.check_writable(out.parent, out.parent)
    cfg, params, folder, kind, known = model_named(given.run, given.layer, dtype)
    if alone:
        x = hidden_states(given.states, cfg, given.layer, dtype)
        T, layers = x.shape[1], [given.layer]
    else:
        tokens_of = numbers if given.prompt is None else known.prompt
        as_row = lambda said: tokens_of(said).astype(np.int64)[None]
        tokens = as_row(given.tokens if given.prompt is None else given.prompt)
        source = None if given.source is None else as_row(given.source)
        T, layers = tokens.size, chosen_layers(given.layers, cfg)
    S = 0 if source is None else source.size
    at = placed(cfg, T, given.place)
    check_trace(cfg, T, layers, dtype, given.gradients, S)
    size = byte_count(cfg, T, layers, dtype, given.gradients, alone, S)
    behind = f" behind {counted(S, 'token')} of a source" if S else ""
    said = f"{counted(T, 'token')}{behind}, {counted(len(layers), 'layer')}, {text.size(size)}"
    given.say("trace", said)
    with np.errstate(all="ignore"):
        if tokens is None:
            tensors = trace_layer(cfg, params, given.layer, x)
        else:
            how = {"layers": layers, "gradients": given.gradients, "at": at, "source": source}
            tensors = trace(cfg, params, tokens, **how)
    write(out, cfg, tensors, tokens, at, source, peref=__version__, source=folder, names=kind)
    loss = float(tensors["loss"]) if "loss" in tensors else None
    about = {"file": str(out), "described": str(out.with_suffix(".json")), "tensors": len(tensors)}
    lines = [] if loss is None else [text.labelled("loss", f"{loss:.6f} nats")]
    lines += [text.labelled("written", f"{out}, {counted(len(tensors), 'tensor')}; {about['described']}")]
    return about | {"bytes": size, "loss": loss}, lines


def placed(cfg: Config, T: int, path: str | None) -> At:
    """Where T tokens are, as the JSON in a file says, perhaps that beside another trace."""
    with theirs():
        said = load_json(Path(path), "positions and seg") if path else {}
    try:
        return cfg.place(1, T, said.get("positions"), said.get("seg"))
    except (ValueError, TypeError) as error:  # of lists that are no array
        what = f"expected positions, [{T}] or [axes,1,{T}], and seg, [1,{T}]"
        raise Misuse(f"{path}: {what}: {error}") from error


def chosen_layers(said: str | None, cfg: Config) -> list[int]:
    try:
        return [*layers_of(cfg)] if said is None else sorted({int(word) for word in said.split(",")})
    except ValueError as error:
        raise Misuse(f"--layers is {said!r}; expected numbers of layers, such as 0,5") from error


def numbers(path: str) -> np.ndarray:
    """The token numbers [T] in a file."""
    said = store.read_bytes(Path(path)).decode(errors="replace").strip().removeprefix("[").removesuffix("]")
    words, what = said.replace(",", " ").split(), "expected numbers of tokens with blanks or commas between"
    if strange := [word for word in words if not re.fullmatch("-?[0-9]{1,18}", word)]:
        raise Misuse(f"{path}: {strange[0][:40]!r} is none; {what}")
    if not words:
        raise Misuse(f"{path} is empty; {what}")
    return np.array([int(word) for word in words], np.int64)


def model_named(name: str, layer: int | None, dtype: Any) -> tuple[Any, Arrays, str, str | None, Any]:
    """The model of a run, where it is, whose names it was imported with, and its vocabulary; for one layer
    perhaps the one that is published in a folder, with the parameters of that layer. Raises Misuse for one
    layer of an encoder and a decoder.
    """
    if layer is not None and (Path(name) / CONFIG).is_file():
        model = published(name)
        cfg, kind = one_or_two(model.config, model.tensors), names_of(model.config)
        refuse_two(cfg, name)
        how: dict[str, Any] = {"dtype": dtype, "layer": layer, "public": model.config}
        return cfg, load(model.tensors, cfg, kind, **how), name, kind, None
    found = weights_found(open_run(name), pairs=True)
    if layer is not None:
        refuse_two(found.cfg, name)
    params = {name: a.astype(dtype, copy=False) for name, a in found.params.items()}
    imported = found.run.record.get("imported", {})
    return found.cfg, params, str(found.run.folder), imported.get("model"), found.vocabulary


def refuse_two(cfg: Config, name: str) -> None:
    if cfg.encoder:
        raise Misuse(f"{name} is an encoder and a decoder; trace its run whole, with --source and --prompt")


def hidden_states(path: str, cfg: Config, layer: int, dtype: Any) -> np.ndarray:
    """What enters a layer, [1,T,C], from a file: the tensor of its name, or the only one."""
    with theirs():
        found, name = mapped(Path(path)), f"layers.{layer}.input"
    a = found.get(name, next(iter(found.values())) if len(found) == 1 else None)
    shape = () if a is None else (1, *a.shape)[-3:]
    if a is None or a.size == 0 or a.ndim > 3 or shape[::2] != (1, cfg.C):
        has = "no such tensor" if a is None else f"it is {list(a.shape)}"
        raise Misuse(f"{path}: {has}; expected {name}, [T,{cfg.C}] or [1,T,{cfg.C}]")
    return copied(a, shape, dtype)
