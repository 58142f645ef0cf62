"""Phase 7: the table of targets, what the device vouches for, and what misses."""

import json
from datetime import date
from typing import Any

from on_gpu.ceilings import sources
from on_gpu.session import Session
from on_gpu.shapes import of
from peref.backends.cuda import find


def targets(tiny: bool) -> list[tuple[str, str, str, float, str]]:
    """(id, our row, the peer's row, how many times as fast we must be, what to suspect first where we are not)."""
    w = of(tiny)
    (b, n), (B, N) = w.steps[0], w.steps[-1]
    wide, narrow = w.attend[0], w.attend[-1]
    small, large, head = f"step {b} x {n}", f"step {B} x {N}", f"attention {narrow[0]} x {narrow[1]}"
    ours, alibi, table = f"{small} tf32, recorded", f"{head} ALiBi", f"attention 64 x {w.masked} table"
    return [
        ("G1", "rope", "torch rope eager", 4.0, "cos and sin read from memory"),
        ("G2", f"attention {wide[0]} x {wide[1]} no table", f"torch sdpa {wide[0]} x {wide[1]} flash", 0.9, "mma.sync, and no copy ahead of it"),
        ("G3", f"{head} no table", f"torch sdpa {narrow[0]} x {narrow[1]} flash", 0.9, "exponentials that wait for products"),
        ("G4", alibi, f"{head} no table", 0.91, "the table's reads from shared memory"),
        ("G5", alibi, f"torch flex {narrow[0]} x {narrow[1]} ALiBi", 1.0, "as G3"),
        ("G6", table, f"torch sdpa {narrow[0]} x {w.masked} mask", 3.0, "as G3"),
        ("G8", f"attention 64 x {w.learned} table, with gradients", f"torch flex {narrow[0]} x {w.learned} learned", 1.2, "sums along diagonals"),
        ("G9", "rms_norm", "torch rms_norm compiled", 1.0, "loads narrower than 16 bytes"),
        ("G10", "cross-entropy", "torch cross-entropy eager", 2.5, "the logits are read twice"),
        ("G11", "adamw", "torch adamw", 1.0, "gathering the gradients, eight in a launch"),
        ("G12", f"{large} bf16, recorded", f"torch {large} eager", 2.5, "element-wise work that is not fused"),
        ("G12", f"{large} bf16, recorded", f"torch {large} compiled", 1.1, "as above"),
        ("G12", f"{large} bf16, recorded", f"torch {large} compiled graph", 1.2, "as above"),
        ("G13", ours, f"torch {small} eager", 6.0, "nodes of the graph"),
        ("G13", ours, f"torch {small} compiled", 2.0, "nodes of the graph"),
        ("G13", ours, f"torch {small} compiled graph", 1.2, "nodes of the graph"),
        ("G14", ours, f"{small} plain ops on CuPy", 10.0, "nodes of the graph"),
        ("G15", ours, f"jax {small}", 1.2, "nodes of the graph"),
        ("G15", f"{large} bf16, recorded", f"jax {large}", 1.0, "as G12"),
    ]


def table(s: Session) -> str:
    """At most 60 lines."""
    w = of(s.emulated)
    micro = lambda x: "not measured" if x is None else f"{x:,.1f}"
    lines = [f"# {find.about()['gpu']}{', EMULATED: no time means anything' if s.emulated else ''}, {date.today()}", ""]
    lines += ["| target | ours | us | peer | us | times as fast | must | |", "|---|---|---|---|---|---|---|---|"]
    for name, ours, peer, must, suspect in targets(s.emulated):
        a, b = s.found(ours, "us"), s.found(peer, "us")
        ratio = b / a if a and b else None
        said = "" if ratio is None or ratio >= must else f"misses; suspect: {suspect}"
        lines.append(f"| {name} | {ours} | {micro(a)} | {peer} | {micro(b)} | {'' if ratio is None else f'{ratio:.2f}'} | {must} | {said} |")
    lines += ["", *(f"- {row['name']}: {row.get('verdict', row.get('error', ''))}" for row in s.rows if row["phase"] == "2 go or no-go")]
    ours, theirs = (s.found(name, "peak_bytes") for name in (f"attention 64 x {w.masked} table", f"torch sdpa {w.attend[-1][0]} x {w.masked} mask"))
    ratio = f"{theirs / ours:.1f} times ours (must: 20)" if ours and theirs else "not measured"
    lines.append(f"- memory of attention with a table at {w.masked}: {ours} bytes beside q, k and v; SDPA with a float mask: {ratio}")
    bad = [row["name"] for row in s.rows if row.get("good") is False or ("error" in row and isinstance(row["error"], str))]
    return "\n".join([*lines, "", f"wrong or failed: {', '.join(bad) or 'nothing'}"][:60]) + "\n"


def attested(s: Session) -> dict[str, Any]:
    """What may stand in tests/attest.json: of each kernel file its hash and what this device measured; nothing from an emulation."""
    found: dict[str, Any] = {}
    for file, sha256 in sources().items():
        was = s.errors.get(file)
        seen = was is not None and was["good"] and not s.emulated
        about = {"device": find.about()["gpu"], "date": str(date.today())} | {k: v for k, v in (was or {}).items() if k != "good"}
        found[file] = {"sha256": sha256} | about if seen else dict.fromkeys(("sha256", "device", "date", "error"))
    return found


def report(s: Session) -> None:
    (s.out / "attest.json").write_text(json.dumps(attested(s), indent=1) + "\n")
    text = table(s)
    (s.out / "table.md").write_text(text)
    s.say(text)
