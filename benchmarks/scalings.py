"""What each scaling makes of RoPE's weights: one model trained with RoPE at 512, the same weights evaluated
under each at 1, 2, 4 and 8 times that.

    python benchmarks/scalings.py [--only NAME ...] [--resume] [--seen 'A sentence.'] [--steps 500] [--backend
    numba] [--quick]

About 4 minutes, half of it training; a run of extrapolation.py with the same recipe is taken as it is. The
factor is the multiple of the length, the original length is 512: `cli.py eval RUN --pe yarn --set factor=4
--set original=512 --len 2048 --bytes 65536` is one of these numbers. At the length trained for every scaling
of factor 1 is RoPE: the first column is a check, and differences in it are an error.

Results: benchmarks/results/scalings.json (every number, with what it was measured on) and scalings.md (the
table). --resume keeps numbers of the same run, sources, versions and machine; training goes on where it stood
in any case. --seen puts a sentence under the table, which stays there for as long as the table says the same.
--quick: a tiny model and text, a try of the script and no result; its files go to runs/quick.
"""

import argparse
import hashlib
import sys
import time
from pathlib import Path

from extrapolation import BYTES, LENGTH, RESULTS, run_of
from speed import Row, Store, described, setup, table

from peref import backends, data, evaluate, runs, train
from peref.encodings import get, options
from peref.recipe import Recipe

ENCODINGS = ["rope", "pi", "ntk", "dynamic_ntk", "yarn", "longrope", "llama3", "ntk_by_parts"]
# as the paper has it; Hugging Face multiplies by the factor what has already grown with the length
PAPER = "dynamic_ntk, factor 1"
MULTIPLES = (1, 2, 4, 8)
QUICK = {"C": 32, "layers": 1, "H": 2, "L": 64}
SECONDS = {"train": 100.0, "score": 3.0}  # of training 500 steps, of one number


def cases(only: list[str]) -> list[str]:
    """Rows of the table: the encodings asked for, dynamic_ntk also without a factor."""
    return [row for name in only for row in ([name, PAPER] if name == "dynamic_ntk" else [name])]


def settings(case: str, multiple: int, original: int) -> tuple[str, tuple[str, ...]]:
    """--pe and --set of one number."""
    name = case.partition(",")[0]
    given = {"factor": 1.0 if case == PAPER else float(multiple), "original": original}
    return name, tuple(f"{option}={value}" for option, value in given.items() if option in options(get(name)))


def trained(
    root: Path, recipe: Recipe, corpus: data.Corpus, be: backends.Backend, shape: dict[str, int]
) -> runs.Run:
    """RoPE's run, to its last step."""
    run = run_of(root, "rope", recipe, corpus, be, **shape)
    print(f"rope: {run.folder}", flush=True)
    if not run.finished:
        for event in train.train(run, corpus, be, say=print):
            if event["event"] == "step" and "valid" in event:
                print(
                    f"  step {event['step']}: {event['valid']['bpb']:.3f} bits/byte, "
                    f"{event['tokens_per_s']:.0f} tokens/s",
                    flush=True,
                )
    return run


def cell(store: Store, case: str, multiple: int) -> str:
    return next((f"{row['bpb']:.2f}" for row in store.find(case=case, multiple=multiple)), "")


def best(store: Store, multiple: int) -> str:
    """The rows with the fewest bits at this multiple, to two digits; at 1 all are RoPE."""
    found = {row["case"]: f"{row['bpb']:.2f}" for row in store.find(multiple=multiple)}
    least = min(found.values(), key=float, default="")
    return f"{' and '.join(case for case, bits in found.items() if bits == least)} at {multiple}x ({least})"


def digest(cells: list[list[str]]) -> str:
    return hashlib.sha256(repr(cells).encode()).hexdigest()[:16]


def document(store: Store, seen: str | None) -> str:
    """The page. `seen` is what somebody says of the table now; None: what was said of it before, if it
    still says the same.
    """
    numbers = store.find(kind="number")
    first = numbers[0]
    length, multiples = first["original"], sorted({row["multiple"] for row in numbers})
    cells = [
        [case, *(cell(store, case, m) for m in multiples)]
        for case in cases(ENCODINGS)
        if store.find(case=case)
    ]
    if seen is not None:
        store.keep(lambda row: row["kind"] != "seen")
        store.add({"kind": "seen", "text": seen, "of": digest(cells)})
    said = [row["text"] for row in store.find(kind="seen", of=digest(cells))]
    errors = [row["stderr"] for row in numbers]
    beyond = [best(store, m) for m in multiples if m > 1]
    run = first["run"]
    return (
        "# Scalings of RoPE\n"
        "\n"
        "Written by `python "
        f"benchmarks/scalings.py`{'' if first['result'] else ' --quick, which is no result'}; every number "
        "is in scalings.json.\n"
        "\n"
        f"Bits per byte of one model, trained with RoPE at {length}, under each scaling: factor = multiple "
        f"of the length, original = {length}. Windows side by side over the same {first['bytes']} bytes, "
        f"standard errors {min(errors):.3f} to {max(errors):.3f}.\n"
        "\n"
        f"{table(['encoding', *(f'{m}x, {m * length}' for m in multiples)], cells)}\n"
        + "".join(
            f"{text}\n\n" for text in (f"Fewest bits: {', '.join(beyond)}." if beyond else "", *said) if text
        )
        + (
            f"Llama-shaped, {run['model']}, {run['recipe']}; {run['text']}. Trained with peref "
            f"{run['peref']}, backend {run['backend']}.\n"
            "\n"
            "Evaluated on:\n"
            "\n"
            f"{described(numbers)}"
        )
    )


def about(run: runs.Run, corpus: data.Corpus) -> dict[str, str]:
    """The run, for people."""
    cfg, recipe, before = run.record["config"], run.record["recipe"], run.record["environment"]
    heads = f"{cfg['H']} heads over {cfg['G']}"
    return {
        "folder": run.folder.name,
        "model": f"width {cfg['C']}, {cfg['layers']} layers, {heads}",
        "recipe": (
            f"{recipe['steps']} steps of {recipe['batch']} x {cfg['L']} bytes, seed {recipe['seed']}, peak "
            f"rate {recipe['rate']}"
        ),
        "text": f"{corpus.source} ({corpus.sha256[:12]})",
        "peref": f"{before['peref']} (code {before['code']})",
        "backend": before["backend"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", choices=ENCODINGS, default=ENCODINGS, metavar="NAME", help=", ".join(ENCODINGS)
    )
    parser.add_argument("--steps", type=int, help="500, with --quick 20")
    parser.add_argument("--runs", type=Path, help="runs/extrapolation, with --quick runs/quick")
    parser.add_argument("--backend", default="numba")
    parser.add_argument(
        "--resume", action="store_true", help="keep numbers of the same run, sources, versions and machine"
    )
    parser.add_argument("--seen", help="a sentence on what the table shows")
    parser.add_argument("--quick", action="store_true", help="tiny, no result")
    parser.add_argument("--results", type=Path, help="benchmarks/results, with --quick runs/quick")
    parser.add_argument(
        "--tables", action="store_true", help="measure nothing, write scalings.md from scalings.json"
    )
    given = parser.parse_args()
    place = given.results or (Path("runs/quick") if given.quick else RESULTS)
    store, began = Store(place / "scalings.json"), time.perf_counter()
    if not given.tables:
        measure(given, store)
    if not store.find(kind="number"):
        sys.exit(f"{store.path}: nothing measured yet")
    text = document(store, given.seen)
    (place / "scalings.md").write_text(text)
    print(f"\n{text}\n{place / 'scalings.md'} after {(time.perf_counter() - began) / 60:.1f} min")
    first = {cell(store, case, 1) for case in cases(ENCODINGS)} - {""}
    if len(first) > 1:
        sys.exit(f"at the length trained for all must be RoPE, and are: {', '.join(sorted(first))}")


def measure(given: argparse.Namespace, store: Store) -> None:
    """Every number that is asked for and not there yet."""
    rows, length, size = (
        cases(given.only),
        QUICK["L"] if given.quick else LENGTH,
        4096 if given.quick else BYTES,
    )
    left = SECONDS["train"] + SECONDS["score"] * len(rows) * len(MULTIPLES)
    print(f"about {0.3 if given.quick else left / 60:.1f} min", flush=True)
    corpus, be = data.corpus(), backends.get(given.backend, say=print)
    recipe = Recipe(steps=given.steps or (20 if given.quick else 500))
    root = given.runs or Path("runs/quick" if given.quick else "runs/extrapolation")
    run = trained(root, recipe, corpus, be, QUICK if given.quick else {})
    cfg, params, step = evaluate.weights_of(run)
    params, text = be.place(params), corpus.valid[: size + 1]
    here = setup(0, ("peref", "numba", "numpy"))
    here["threads"] = here["cores"]
    same = {
        "original": length,
        "bytes": size,
        "run": about(run, corpus),
        "setup": here,
        "result": not given.quick,
        "backend": be.name,
    }
    again = lambda row: given.resume and all(row.get(name) == fact for name, fact in same.items())
    table_of = lambda row: all(row.get(name) == same[name] for name in ("original", "bytes", "run", "result"))
    store.keep(lambda row: row["kind"] == "seen" or again(row) or (row["case"] not in rows and table_of(row)))
    for case in rows:
        for multiple in MULTIPLES:
            if store.find(case=case, multiple=multiple):
                continue
            pe, chosen = settings(case, multiple, length)
            before = time.perf_counter()
            row, _, _ = evaluate.score(
                evaluate.under(cfg, pe, chosen), params, text, length * multiple, be=be
            )
            facts: Row = {
                "kind": "number",
                "case": case,
                "multiple": multiple,
                "pe": pe,
                "set": list(chosen),
                **row,
                "step": step,
                **same,
            }
            store.add(
                facts | {"seconds": time.perf_counter() - before, "date": time.strftime("%Y-%m-%d %H:%M:%S")}
            )
            print(
                f"  {case:22} {multiple}x: {row['bpb']:.3f} bits/byte, {time.perf_counter() - before:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
