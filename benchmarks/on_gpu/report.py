"""Phase 8: the table of targets, what the device vouches for, and what misses. It reads rows alone, and
asks no device.
"""

import json
import re
from datetime import date
from typing import Any, NamedTuple

from on_gpu.ceilings import sources
from on_gpu.session import Session
from on_gpu.shapes import of
from peref.backends.cuda.launch import declared
from peref.errors import counted

# nodes of a step's graph with RoPE and GELU: without layers, and for each; counted under the emulation
LAUNCHES = {"tf32": (17, 25), "bf16": (17, 25)}
# of an H200, to which floors and expected times belong, as row and figure of phase 2; here they are scaled
RATES = {"memory": ("copy", "TB_per_s", 4.3), "products": ("gemm bf16", "TFLOP_per_s", 788.0)}
GOES = 3.0  # times as fast as its plain text on CuPy: a kernel that is not goes


class Target(NamedTuple):
    """One line of the table."""

    id: str
    ours: str  # a row
    peer: str  # a row
    must: float | None = None  # how many times as fast as the peer we must be
    suspect: str = ""  # what to look at first where we are not
    floor: float | None = None  # microseconds that an H200 cannot go below, by what moves or is multiplied
    most: float | None = None  # microseconds that we must not exceed
    expected: float | None = None  # microseconds, by the arithmetic of docs/cuda.md: an estimate
    bound: str = ""  # by which of RATES these three are: "memory", "products", both, or neither


def targets(tiny: bool) -> list[Target]:
    w = of(tiny)
    (b, n), (B, N) = w.steps[0], w.steps[-1]
    wide, narrow = w.attend[0], w.attend[-1]
    small, large, head = f"step {b} x {n}", f"step {B} x {N}", f"attention {narrow[0]} x {narrow[1]}"
    ours, alibi, table, first = (
        f"{small} tf32, recorded",
        f"{head} ALiBi",
        f"attention 64 x {w.masked} table",
        f"attention {wide[0]} x {wide[1]}",
    )
    half, learned = f"{large} bf16, recorded", f"attention 64 x {w.learned} table, with gradients"
    return [
        Target(
            "G1",
            "rope",
            "torch rope eager",
            4.0,
            "cos and sin read from memory",
            62,
            expected=68,
            bound="memory",
        ),
        Target("G1", "rope", "torch rope compiled"),
        Target(
            "G2",
            f"{first} no table",
            f"torch sdpa {wide[0]} x {wide[1]} flash",
            0.9,
            "products that wait for a tile's copy or for its probabilities",
            1400,
            expected=3600,
            bound="products",
        ),
        Target("G2", f"{first} no table", f"triton {first}"),
        Target(
            "G3",
            f"{head} no table",
            f"torch sdpa {narrow[0]} x {narrow[1]} flash",
            0.9,
            "exponentials that wait for products",
            1400,
            expected=4600,
            bound="products",
        ),
        Target("G3", f"{head} no table", f"triton {head}"),
        Target(
            "G4",
            alibi,
            f"{head} no table",
            0.91,
            "the table's reads from shared memory",
            expected=4800,
            bound="products",
        ),
        Target("G4", f"{head} table", f"{head} no table", 0.91, "as above", expected=4800, bound="products"),
        Target("G5", alibi, f"torch flex {narrow[0]} x {narrow[1]} ALiBi", 1.0, "as G3"),
        Target(
            "G6",
            table,
            f"torch sdpa {narrow[0]} x {w.masked} mask",
            3.0,
            "as G3",
            expected=1200,
            bound="products",
        ),
        Target(
            "G7",
            f"attention 8 heads x {w.far} ALiBi, skipping",
            f"attention 8 heads x {w.far} ALiBi",
            2.5,
            "the bound is too wide",
            expected=780,
            bound="products",
        ),
        Target(
            "G7",
            f"attention 8 heads x {w.long} ALiBi, skipping",
            f"attention 8 heads x {w.long} ALiBi",
            7.0,
            "blocks of flat heads come last",
            expected=3500,
            bound="products",
        ),
        Target(
            "G8",
            learned,
            f"torch flex {narrow[0]} x {w.learned} learned",
            1.2,
            "sums along diagonals",
            expected=3800,
            bound="products",
        ),
        Target(
            "G9",
            "rms_norm",
            "torch rms_norm compiled",
            1.0,
            "too few packs under way",
            250,
            expected=250,
            bound="memory",
        ),
        Target(
            "G10",
            "cross-entropy",
            "torch cross-entropy eager",
            2.5,
            "one block counts the targets, one adds up",
            125,
            160,
            expected=190,
            bound="memory",
        ),
        Target(
            "G11",
            "adamw",
            "torch adamw",
            1.0,
            "gathering the gradients, eight in a launch",
            33,
            60,
            expected=54,
            bound="memory",
        ),
        Target(
            "G12",
            half,
            f"torch {large} eager",
            2.5,
            "element-wise work that is not fused",
            710,
            3000,
            expected=1800,
            bound="memory products",
        ),
        Target("G12", half, f"torch {large} compiled", 1.1, "as above"),
        Target("G12", half, f"torch {large} compiled graph", 1.2, "as above"),
        Target("G13", ours, f"torch {small} eager", 6.0, "nodes of the graph", 40, 600, expected=460),
        Target("G13", ours, f"torch {small} compiled", 2.0, "nodes of the graph"),
        Target("G13", ours, f"torch {small} compiled graph", 1.2, "nodes of the graph"),
        Target("G14", ours, f"{small} plain ops on CuPy", 10.0, "nodes of the graph"),
        Target("G15", ours, f"jax {small}", 1.2, "nodes of the graph"),
        Target("G15", half, f"jax {large}", 1.0, "as G12"),
        Target(
            "G16",
            "9 cold and warm start",
            "torch start compiled",
            4.0,
            "compiling kernels one after another",
            None,
            10e6,
        ),
    ]


def scale(s: Session, bound: str) -> float:
    """How much longer it takes here than on an H200 what is bound so; of both the mean."""
    rates = [(s.found(row, key), there) for kind, (row, key, there) in RATES.items() if kind in bound]
    found = [there / here for here, there in rates if here]
    return sum(found) / len(found) if found else 1.0


def line_of(s: Session, t: Target) -> str:
    by = scale(s, t.bound)
    t = t._replace(**{key: x and x * by for key in ("floor", "most", "expected") for x in [getattr(t, key)]})
    a, b = s.found(t.ours, "us"), s.found(t.peer, "us")
    micro = lambda x: "not measured" if x is None else f"{x:,.1f}"
    ratio, bare = b / a if a and b else None, lambda x: "" if x is None else f"{x:,.0f}"
    misses = (ratio is not None and t.must is not None and ratio < t.must) or (
        a is not None and t.most is not None and a > t.most
    )
    said = f"misses; suspect: {t.suspect}" if misses else ""
    cells = [
        t.id,
        t.ours,
        micro(a),
        bare(t.floor),
        bare(t.expected),
        f"{a / t.expected:.2f}" if a and t.expected else "",
        bare(t.most),
        t.peer,
        micro(b),
        "" if ratio is None else f"{ratio:.2f}",
        "" if t.must is None else f"{t.must:g}",
        said,
    ]
    return f"| {' | '.join(cells)} |"


def alone(row: dict[str, Any]) -> bool:
    """Whether a row that sets ours against its plain text has ours alone."""
    return row["name"].endswith(", and its plain text") and "us" in row and "times_as_fast" not in row


def table(s: Session) -> str:
    """At most 60 lines."""
    w = of(s.emulated)
    lines = [
        (
            f"# {s.found('environment', 'gpu')}{', EMULATED: no time means anything' if s.emulated else ''}, "
            f"{date.today()}"
        ),
        "",
    ]
    lines += [
        "| target | ours | us | floor | expected | of that | at most | peer | us | times as fast | must | |",
        "|---" * 12 + "|",
    ]
    lines += [line_of(s, t) for t in targets(s.emulated)]
    here = (f"{kind} {scale(s, kind):.2f}" for kind in RATES)
    lines += ["", f"- times an H200's: {', '.join(here)}; floor, expected and at most are multiplied with it"]
    compiled = [row for row in s.rows if row["phase"] == "1 compiling" and not row["name"].startswith("warm")]
    ready = [row for row in compiled if "variants" in row]
    seconds = max((row.get("seconds", 0) for row in ready), default=0)
    figures = lambda row: ", ".join(f"{key} {x:,.4g}" for key, x in row.items() if isinstance(x, float))
    lines += [
        f"- compiled side by side: {len(ready)} of {counted(len(compiled), 'kernel file')}, "
        f"{counted(sum(row['variants'] for row in ready), 'variant')}, in {seconds:.0f} s",
        *(
            f"- {row['name']}: {row.get('verdict') or row.get('error') or figures(row)}"
            for row in s.rows
            if row["phase"] == "3 go or no-go"
        ),
    ]
    ours, theirs = (
        s.found(name, "peak_bytes")
        for name in (f"attention 64 x {w.masked} table", f"torch sdpa {w.attend[-1][0]} x {w.masked} mask")
    )
    ratio = f"{theirs / ours:.1f} times ours (must: 20)" if ours and theirs else "not measured"
    lines.append(
        f"- memory of attention with a table at {w.masked}: {ours} bytes, table and result; SDPA with a "
        f"float mask: {ratio}"
    )
    far = {kind: s.found(f"attention 64 x {w.long} {kind}", "us") for kind in ("ALiBi", "table")}
    said = (f"{kind} {'not measured' if us is None else f'{us:,.0f} us'}" for kind, us in far.items())
    lines.append(f"- attention at {w.long} (must: runs): {', '.join(said)}")
    for kind, (once, each) in LAUNCHES.items():
        found = [s.found(f"launches of a step, {kind}", key) for key in ("launches", "parts", "sets")]
        said = "not counted"
        if None not in found:
            every, parts, sets = found
            said = f"{every - parts}, {parts} sums of parts by cuBLAS beside them, {sets} of them set memory"
        step = f"a step of {counted(w.layers, 'layer')}, {kind}"
        lines.append(f"- launches of {step}: {said} (expected: {once + each * w.layers})")
    kernels = {row["name"].partition(",")[0]: row for row in s.rows if "times_as_fast" in row}
    ratios = (
        f"{name} {row['times_as_fast']:.2f}{'' if row['times_as_fast'] >= GOES else ' GOES'}"
        for name, row in kernels.items()
    )
    lines.append(
        f"- kernels, times as fast as their plain text on CuPy (below {GOES:g} a kernel goes): "
        f"{', '.join(ratios) or 'not measured'}"
    )
    bare = (f"{row['name'].partition(',')[0]} {row['us']:,.0f} us" for row in s.rows if alone(row))
    lines.append(f"- kernels whose plain text did not come to its end: {', '.join(bare) or 'none'}")
    why = lambda row: ", ".join(
        sorted({one for said in row["because"] for one in re.findall(r"have (no [^;]+)", said)})
    )
    refused = (f"{row['name']} ({why(row)})" for row in s.rows if "because" in row)
    lines.append(f"- refused by the backend: {'; '.join(refused) or 'nothing'}")
    twice = [row for row in s.rows if "same_bits" in row]
    apart = [row["name"] for row in twice if not row["same_bits"]]
    lines.append(
        f"- run twice for equal bits (must: all): {len(twice) - len(apart)} of {len(twice)} rows; not: "
        f"{', '.join(apart) or 'none'}"
    )
    later = {row["name"] for row in s.rows if row.get("complete")}  # by a run that went on with it
    bad = [
        row["name"]
        for row in s.rows
        if row["name"] not in later and (row.get("good") is False or isinstance(row.get("error"), str))
    ]
    late = [row["name"] for row in s.rows if row["name"] not in later and "skipped" in row]
    return (
        "\n".join(
            [
                *lines,
                "",
                f"left out: {', '.join(late) or 'nothing'}",
                f"wrong or failed: {', '.join(bad) or 'nothing'}",
            ][-60:]
        )
        + "\n"
    )


def ways_of(file: str, row: dict[str, Any]) -> list[dict[str, Any]]:
    """What a row found where kernels of this file were launched: in the result, in the gradients."""
    ways = (row.get(way, {"kernels": []}) for way in ("forward", "backward"))
    return [way for way in ways if any(kernel.startswith(f"{file}.") for kernel in way["kernels"])]


def attested(s: Session) -> dict[str, Any]:
    """What may stand in tests/attest.json: of each kernel file its hash and what this device measured;
    nothing from an emulation.

    A file is vouched for by the operations that are its own alone: where every row that names it launched
    it and was right in what it gave, and all its kernels were launched.
    """
    found: dict[str, Any] = {}
    for file, sha256 in sources().items():
        kinds: dict[str, list[dict[str, Any]]] = {}
        missed, rows = s.emulated, [row for row in s.rows if file in row.get("files", "").split()]
        for row in rows:
            kind = next((kind for kind in ("tf32", "bf16") if row["name"].endswith(f" {kind}")), "")
            kinds.setdefault(f"error_{kind}" if kind else "error", []).extend(ways := ways_of(file, row))
            missed = missed or not ways
        every = [way for ways in kinds.values() for way in ways]
        ran = {kernel for way in every for kernel in way["kernels"]}
        whole = {f"{file}.{name}" for name in declared(file)} <= ran
        seen = whole and not missed and all(way["good"] for way in every)
        about = {key: max(way["error"] for way in ways) for key, ways in kinds.items() if ways}
        about = {"sha256": sha256, "device": s.found("environment", "gpu"), "date": str(date.today())} | about
        found[file] = about if seen else dict.fromkeys(("sha256", "device", "date", "error"))
    return found


def report(s: Session) -> None:
    (s.out / "attest.json").write_text(json.dumps(attested(s), indent=1) + "\n")
    text = table(s)
    (s.out / "table.md").write_text(text)
    s.say(text)
