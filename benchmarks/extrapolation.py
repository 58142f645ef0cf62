"""Which encoding extrapolates: the same model, data, seed and budget for each, trained at one length and
evaluated up to eight times it.

    python benchmarks/extrapolation.py [--steps 500] [--backend auto] [--runs runs/extrapolation]

Stop it whenever you like: called again it goes on where it stood. The table goes to
benchmarks/results/extrapolation.md, with what it was measured on; the rows of every run stay in its folder
under eval/.
"""

import argparse
import json
import time
from pathlib import Path

from peref import __version__, backends, data, evaluate, runs, store, train
from peref.config import shaped
from peref.recipe import Recipe
from peref.settings import choose

ENCODINGS = ["none", "sinusoidal", "rope", "alibi", "t5", "forgetting", "retnet"]
LENGTH, LONGEST, BYTES = 512, 4096, 65536
RESULTS = Path(__file__).parent / "results"


def run_of(
    root: Path, pe: str, recipe: Recipe, corpus: data.Corpus, be: backends.Backend, **shape: int
) -> runs.Run:
    """The run of one encoding with this recipe, made where there is none yet."""
    cfg = shaped("llama", **{"L": LENGTH} | shape, **choose(pe))
    for folder in sorted(root.glob("*/run.json")):
        run = runs.open_run(folder.parent)
        record, wanted = run.record, {"config": cfg.to_json(), "recipe": vars(recipe)}
        same = all(record[key] == value for key, value in wanted.items())
        if same and record["data"]["sha256"] == corpus.sha256 and record["environment"]["backend"] == be.name:
            return run
    return train.create_run(root, cfg, recipe, corpus, data.DEFAULT, be, [])


def measured(run: runs.Run, corpus: data.Corpus, be: backends.Backend) -> dict:
    """Train to the end, evaluate, and keep the rows beside the run."""
    kept = run.folder / "eval" / f"extrapolation-{LONGEST}-{BYTES}.json"
    if not run.finished:
        for event in train.train(run, corpus, be, say=print):
            if event["event"] == "step" and "valid" in event:
                print(
                    f"  step {event['step']}: {event['valid']['bpb']:.3f} bits/byte, "
                    f"{event['tokens_per_s']:.0f} tokens/s",
                    flush=True,
                )
    if not kept.exists():
        cfg, params, step = evaluate.weights_of(run)
        text, before = corpus.valid[: BYTES + 1], time.perf_counter()
        rows = list(evaluate.evaluate(cfg, params, text, LONGEST, be=be))
        print(f"  evaluated in {time.perf_counter() - before:.0f} s", flush=True)
        store.write_text(
            kept,
            store.canonical(
                evaluate.stored(evaluate.Protocol(), corpus.sha256, text, step, cfg, rows, be=be)
            ),
        )
    return json.loads(kept.read_text())


def table(found: dict[str, dict], recipe: Recipe, corpus: data.Corpus, be: backends.Backend) -> str:
    lengths = [row["length"] for row in next(iter(found.values()))["rows"]]
    head = f"| encoding | {' | '.join(map(str, lengths))} |\n|---|{'---|' * len(lengths)}\n"
    cells = {pe: [f"{row['bpb']:.2f}" for row in result["rows"]] for pe, result in found.items()}
    rows = [f"| {pe} | {' | '.join(of)} |\n" for pe, of in cells.items()]
    errors = [row["stderr"] for result in found.values() for row in result["rows"]]
    return (
        f"Bits per byte by evaluation length, trained at {LENGTH}; windows side by side over the same "
        f"{BYTES} bytes, standard errors {min(errors):.3f} to {max(errors):.3f}.\n"
        "\n"
        f"{head}{''.join(rows)}\n"
        f"Llama-shaped, width 128, 4 layers, 4 heads over 2, {recipe.steps} steps of {recipe.batch} x "
        f"{LENGTH} bytes, seed {recipe.seed}, peak rate {recipe.rate}; {corpus.source} "
        f"({corpus.sha256[:12]}); peref {__version__}, backend {be.name}.\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--runs", type=Path, default=Path("runs/extrapolation"))
    parser.add_argument("--backend", default="auto")
    given = parser.parse_args()
    corpus, be, recipe = data.corpus(), backends.get(given.backend), Recipe(steps=given.steps)
    found = {}
    for pe in ENCODINGS:
        run = run_of(given.runs, pe, recipe, corpus, be)
        print(f"{pe}: {run.folder}", flush=True)
        found[pe] = measured(run, corpus, be)
    RESULTS.mkdir(exist_ok=True)
    store.write_text(RESULTS / "extrapolation.md", table(found, recipe, corpus, be))
    print(table(found, recipe, corpus, be))


if __name__ == "__main__":
    main()
