"""A published model as a run, and back: the files that Hugging Face's save_pretrained writes.

Not here: what its config.json and the names of its tensors mean (porting), its tokens (vocabulary).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np

from peref import runs, store
from peref.config import Config
from peref.environment import environment
from peref.errors import Diverged, Misuse
from peref.huggingface.keys import json_object, text_of
from peref.memory import check_weights
from peref.model import PLAIN
from peref.porting import load, names_of, one_or_two, unload
from peref.porting.files import CONFIG, TENSORS, published
from peref.recipe import Recipe
from peref.vocabulary import TOKENIZER, tokenizer_of


def import_run(
    folder: str | Path,
    root: str | Path,
    argv: list[str],
    *,
    name: str | None = None,
    dtype: Literal["float32", "float64"] = "float32",
) -> runs.Run:
    """A run in `root`, perhaps called `name`, whose only checkpoint holds the weights of the model in
    `folder` as `dtype`, with its config.json and tokenizer.json beside it.

    Raises Misuse for a model that cannot be expressed, quantised tensors and what does not fit into memory;
    Damaged for a file that is cut short, or a tokenizer that its library, where it is there, cannot read;
    Diverged for weights that are not finite.
    """
    found = published(folder)
    cfg = one_or_two(found.config, found.tensors)
    check_weights(cfg, dtype)
    kind, model_type = names_of(found.config), text_of(found.config).values["model_type"]
    kept = [one for one in (CONFIG, TOKENIZER) if (found.folder / one).is_file()]
    files = {f"public/{one}": store.read_bytes(found.folder / one) for one in kept}
    if TOKENIZER in kept and find_spec("tokenizers"):
        tokenizer_of(files[f"public/{TOKENIZER}"], found.folder)
    params = load(found.tensors, cfg, kind, dtype=np.dtype(dtype), public=found.config)
    record = {
        "config": cfg.to_json(),
        "recipe": asdict(Recipe(dtype=dtype)),
        "steps": 0,
        "data": {"name": "", "spec": "", "sha256": ""},
        "imported": {
            **{"folder": str(found.folder.resolve()), "model_type": model_type},
            **{"model": kind, "files": found.sha256()},
        },
        "environment": environment(PLAIN),
        "argv": argv,
    }
    first = {f"p/{one}": a for one, a in params.items()}
    parts = [] if name else [model_type, f"L{cfg.L}"]
    try:
        return runs.create(root, parts, record, files, first, name or "")
    except Diverged:
        runs.check_finite(unload(params, cfg, kind))  # says it of theirs
        raise


def export_run(
    run: runs.Run, cfg: Config, params: Mapping[str, np.ndarray], folder: Path, dtype: str = "float32"
) -> Path:
    """Write config.json, tokenizer.json and the weights of a run that was imported, or trained on from one,
    into a new `folder`, as `dtype`: float32 or bfloat16, to nearest.

    Raises Misuse where the model is no longer the one that its config.json describes.
    """
    about, said = run.record.get("imported"), run.public(CONFIG)
    if about is None or said is None:
        what = f"{run.folder} was not imported, and has no {CONFIG} to write"
        raise Misuse(f"{what}; export takes a run of import")
    public = json_object(said, run.folder / "public" / CONFIG)
    theirs = unload(params, cfg, about["model"])
    if one_or_two(public, theirs) != cfg:
        differs = f"is another model than its {CONFIG} describes (encoding, options or length)"
        raise Misuse(f"{run.folder} {differs}")
    if folder.exists():
        raise Misuse(f"{folder} is there already; choose a new folder")
    written = lambda a: store.to_bfloat16(a) if dtype == "bfloat16" else a.astype("<f4", copy=False)
    tensors = {name: written(a) for name, a in theirs.items()}
    public |= {key: dtype for key in ("dtype", "torch_dtype") if key in public}
    with runs.being_made(folder.parent) as made:
        inner = made.folder / "public"
        store.write_text(inner / CONFIG, json.dumps(public, indent=2) + "\n", made.folder)
        if tokenizer := run.public(TOKENIZER):
            store.write_bytes(inner / TOKENIZER, tokenizer, made.folder)
        store.write_buffers(inner / TENSORS, store.tensor_file(tensors, {"format": "pt"}), made.folder)
        inner.rename(folder)
    return folder
