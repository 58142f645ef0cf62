"""show: a picture of what an encoding does, or a gallery of all; what a public config.json says of
positions.
"""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from peref import share, store
from peref.cli import completion, meant, options, text, two_configs
from peref.cli.found import find_trained
from peref.cli.progress import Progress
from peref.config import Config
from peref.encodings import HOOKS, names
from peref.errors import Misuse, counted, explained
from peref.evaluate import under
from peref.lab.effects import effects, fresh, trained_subject
from peref.lab.panels import Image
from peref.lab.responses import Subject, maps
from peref.parameters import check
from peref.settings import choose

PICTURE_KINDS = (".png", ".svg")
PROMPT = "for(i=0; i<n; i++){\n  x = f(i) + f(i-1);\n}\n"
LONGEST = 64  # bytes that an attention map can be read at
FARTHEST = 16384  # tokens that a picture is of: some are made of every pair of positions


@click.command("show", cls=options.Command)
@click.argument("name", required=False, metavar="[NAME]", type=options.ENCODINGS)
@click.option(
    "--pe",
    type=options.ENCODINGS,
    metavar="NAME",
    help="As the argument NAME: an encoding, or ./FILE.py of your own.",
)
@click.option(
    "-o",
    "--output",
    metavar="PATH",
    shell_complete=completion.complete_file,
    help="The file to write, .png or .svg; with --all a folder.  [default: NAME.png; gallery]",
)
@options.flag("--all", "every", "Draw every encoding, and write index.html with all the pictures.")
@click.option(
    "--format",
    "kind",
    type=click.Choice([k[1:] for k in PICTURE_KINDS]),
    help="The format of the pictures of --all.  [default: png]",
)
@options.size_option("--len", "L", f"The length trained for.  [default: {Config.L}]")
@click.option(
    "--run",
    metavar="RUN",
    shell_complete=completion.runs,
    help="Use the weights of this run, and draw its attention over a prompt.",
)
@click.option("--layer", type=int, help="The layer of the run to show.  [default: the first with NAME]")
@click.option(
    "--config",
    "public",
    metavar="FILE",
    multiple=True,
    shell_complete=completion.complete_file,
    help="A public model's config.json: what its rotary settings mean, in words and numbers; -o draws it. "
    "Said twice: in what two models differ, and from which layer on.",
)
@click.option("--prompt", help="The text that the run attends over.  [default: three lines of C]")
@options.set_option
@options.as_json
@options.together
def command(given: SimpleNamespace) -> None:
    """Draw what the encoding NAME does, or several in one layer (rope+alibi): frequencies, bias over
    distance, where attention or a response goes.

    With --config, say which encoding and options the config.json of a public model means, and what in it
    implementations read differently; with two of them, in what these models differ.
    """
    name, config, page = name_among(given), None, None
    if len(given.public) == 2:
        both = [(path, *meant.read_config(Path(path))) for path in given.public]
        data = two_configs.of_both(*both)
        text.emit(given.as_json, data, two_configs.difference_text(data))
        return
    if given.public:
        found, cfg, missing = meant.read_config(Path(given.public[0]))
        drawn = [picture(*one) for one in meant.subjects(found, given.output)] if given.output else []
        config = meant.described(given.public[0], found, cfg, missing)
    elif given.every:
        folder = Path(given.output or "gallery")
        with Progress(len(names()), "pictures", plain=given.as_json) as bar:
            drawn = gallery(folder, given.L or Config.L, given.kind or "png", bar)
        page = str(folder / "index.html")
    else:
        subject, about, layers = trained(given, name) if given.run is not None else untrained(given, name)
        drawn = [picture(Path(given.output or f"{subject.name}.png"), subject, about, layers)]
    paths = [one["path"] for one in drawn]
    said = meant.config_lines(config, paths) if config else [page or paths[0]]
    text.emit(given.as_json, {"pictures": drawn, "page": page, "config": config}, said)


def name_among(given: SimpleNamespace) -> Any:
    """The encoding that is named, if any. Raises Misuse for options that do not go together."""
    if given.name is not None and given.pe is not None:
        raise Misuse(f"NAME is {given.name} and --pe is {given.pe}; say one of them")
    name = given.pe if given.name is None else given.name
    for option, value in (("--layer", given.layer), ("--prompt", given.prompt)):
        if value is not None and given.run is None:
            raise Misuse(f"{option} is about a run; name it with --run")
    if given.kind is not None and not given.every:
        raise Misuse("--format is for --all; otherwise the name after -o says it, such as -o NAME.svg")
    if given.L is not None and given.L > FARTHEST:
        raise Misuse(f"--len is {given.L}; expected at most {FARTHEST}")
    alone, why = {"NAME": name, "--run": given.run, "--set": given.settings}, ""
    if len(given.public) > 2:
        raise Misuse(f"--config is given {len(given.public)} times; one is described, two are compared")
    if given.public:
        if len(given.public) == 2 and given.output is not None:
            raise Misuse("-o draws one model; leave it out, or give one --config")
        alone |= {"--all": given.every, "--len": given.L}
        why = "--config says all of the encoding itself"
    elif given.every:
        why = "--all shows every encoding as it starts"
    elif given.run is not None:
        alone, why = {"--len": given.L}, "--len is that of the run"
    elif name is None:
        raise Misuse("say which encoding to show, or --all, --run RUN or --config FILE")
    for option in (option for option, value in alone.items() if value and why):
        raise Misuse(f"{why}; leave {'it out' if option in why else f'out {option}'}")
    return name


def drawing() -> Any:
    """The module that draws, or Misuse where it cannot be had."""
    if find_spec("matplotlib") is None:
        raise Misuse(
            f"pictures need matplotlib: {share.install('[plot]')}; every other command works without it"
        )
    from peref.lab import pictures

    return pictures


def picture(
    path: Path, subject: Subject, about: str = "", layers: list[list[Image]] | None = None
) -> dict[str, Any]:
    """Draw one encoding to `path`; what was drawn, as data."""
    if path.suffix not in PICTURE_KINDS:
        raise Misuse(f"-o {path}: expected a name that ends in {' or '.join(PICTURE_KINDS)}")
    pictures, e, panels = drawing(), subject.encoding, effects(subject)
    chosen = ", ".join(f"{k}={short(v)}" for k, v in subject.options.items()) or "none"
    start = f"as it starts, for length {subject.cfg.L:,}"
    symbols = pictures.in_a_line(e)
    lines = [f"{e.formula}        {e.paper}", *([symbols] if symbols else []), f"options: {chosen}"]
    lines += [f"laws: {', '.join(sorted(e.claims)) or 'none'}", about or start]
    filled = [hook for hook in HOOKS if getattr(e, hook)]
    title = f"{subject.name}  ({', '.join(filled) or 'no hook'})"
    if subject.under:
        title += f", BUT THE WEIGHTS WERE TRAINED UNDER {subject.under}"
    pictures.draw(path, title, lines, panels, layers or [])
    titles = [p.title for p in [*panels, *(image for row in layers or [] for image in row)]]
    return {"name": subject.name, "path": str(path), "panels": titles}


def short(value: Any) -> str:
    """The value of an option; of a long list both ends."""
    long = isinstance(value, tuple) and len(value) > 8
    return f"{value[0]:g} ... {value[-1]:g} ({len(value)})" if long else str(value)


Drawn = tuple[Subject, str, list[list[Image]]]


def untrained(given: SimpleNamespace, name: str) -> Drawn:
    """An encoding as it starts."""
    return fresh(choose(name, given.settings), given.L or Config.L), "", []


def trained(given: SimpleNamespace, name: str | None) -> Drawn:
    """The encoding of a layer of a run, words about the run, and its attention over a prompt."""
    found, layer, prompt = find_trained(given.run, None, name), given.layer, given.prompt
    chosen = [] if name is None else [one for one, _ in choose(name)["pe"]]
    if len(chosen) > 1 and chosen != [one for one, _ in found.cfg.pe]:
        raise Misuse(f"{name} is not the cycle of the run, {found.cfg.named}; say which one of them to show")
    name = chosen[0] if len(chosen) == 1 else None
    known = found.vocabulary
    tokens = known.tokens(os.fsencode(PROMPT if prompt is None else prompt))
    words = None if known.of_bytes else [known.text([n]) for n in tokens]
    cfg = found.cfg
    other = None if name is None or any(name == n for n, _ in cfg.pe) else name
    cfg = under(cfg, other, given.settings)
    check(cfg, found.params)
    if not 0 < len(tokens) <= LONGEST:
        has = f"--prompt has {counted(len(tokens), known.unit)}"
        raise Misuse(f"{has}; expected 1 to {LONGEST}, so that a map can be read")
    names_of = [cfg.pe[n % len(cfg.pe)][0] for n in range(cfg.layers)]
    if layer is None:
        layer = 0 if name is None else names_of.index(name)
    if not 0 <= layer < cfg.layers:
        raise Misuse(f"--layer is {layer}; the run has layers 0 to {cfg.layers - 1}")
    if name is not None and names_of[layer] != name:
        has = f"layer {layer} of the run has {names_of[layer]}, not {name}"
        raise Misuse(f"{has}; the layers are: {', '.join(names_of)}")
    own = cfg.pe == found.cfg.pe
    under_what = "" if own else "other options" if cfg.named == found.cfg.named else found.cfg.named
    subject = replace(trained_subject(cfg, found.params, layer), under=under_what)
    about = (
        f"layer {layer} of {found.run.folder}, step {found.step:,}, trained with {text.cycle(found.cfg.pe)}"
    )
    return subject, f"{about} at length {cfg.L:,}", maps(cfg, found.params, tokens, words)


def gallery(folder: Path, L: int, kind: str, bar: Progress) -> list[dict[str, Any]]:
    """A picture of every encoding in `folder`, and a page of them."""
    pictures = drawing()
    with explained(folder, "make it"):
        folder.mkdir(parents=True, exist_ok=True)
    done = []
    for name in names():
        done.append(picture(folder / f"{name}.{kind}", fresh(choose(name), L)))
        bar.add(1)
    about = f"Every encoding as it starts, for length {L:,}, by the hook that it fills."
    store.write_text(folder / "index.html", pictures.page(about, done))
    return done
