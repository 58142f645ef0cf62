"""What an encoding does to content, over random content or a trained model's: scores, weights of attention,
responses.

Nothing here looks inside an encoding. The weight of key s in the output of query t is how much that output
moves with the value of s: a backward pass through the whole sublayer gives a row of weights, whatever made
them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from peref import hooks
from peref.config import Config
from peref.encodings import HOOKS, Encoding
from peref.lab.panels import DISTANCE, Curve, Image, Panel, numbered, past
from peref.layers import block, embed, norm, projected, settings_of_heads
from peref.model import PLAIN
from peref.ops.attention import scores
from peref.ops.place import At
from peref.passes import start_pass
from peref.rng import generator
from peref.tape import Tape, Var

TOKENS, SMALL = 256, 96  # of random sequences that are averaged over, and of one that is shown whole
DRAWS, TIMES = 16, 8  # sequences at once, and how often
COPIES = 64  # of a sequence, a row asked of each
UNITS = 4  # random directions of an output whose response is averaged; contents of a random start
STARTS = 32  # random starts that are averaged over


@dataclass(frozen=True)
class Subject:
    """An encoding as it stands in a layer of a model, with the parameters that it has there."""

    name: str
    cfg: Config
    encoding: Encoding
    p: dict[str, Any]
    options: dict[str, Any]
    trained: bool = False
    under: str = ""  # what its parameters were trained under, where that is something else


def random_content(cfg: Config, encoding: Encoding, T: int, B: int, time: int = 0) -> dict[str, Any]:
    """x, q, k, v of a layer: normal, q of a size that gives logits of about 1."""
    draw = lambda stream, *shape: generator(0, f"picture {stream}", time).standard_normal(shape)
    if encoding.mix:
        return {"x": draw("x", B, T, cfg.C)}
    size = hooks.query_size(encoding, cfg.D)
    q, k, v = (draw(name, B, heads, T, cfg.D) for name, heads in (("q", cfg.H), ("k", cfg.G), ("v", cfg.G)))
    return {"q": size * q, "k": k, "v": v, "x": draw("x", B, T, cfg.C)}


STIRRED = "it starts as nothing, here are random parameters"


def stirred(p: Any, time: int = 0) -> Any:
    """Parameters away from where they start, for what starts as nothing."""
    noise = lambda n, a: generator(0, f"picture {n}", time).standard_normal(a.shape)
    return {n: a + max(a.shape[-1:] or (1,)) ** -0.5 * noise(n, a) for n, a in p.items()}


def starts(s: Subject, count: int) -> list[dict[str, Any]]:
    """Its parameters as they start, drawn anew each time."""
    every = (s.encoding.init(generator(0, "pe", n)) for n in range(count))
    return [{name: np.asarray(p[name], np.float64) for name in s.p} for p in every]


def starts_random(s: Subject) -> bool:
    """Whether its parameters are those of a random start."""
    one, other = starts(s, 2)
    return not s.trained and any(not np.array_equal(one[name], other[name]) for name in s.p)


def told_apart(s: Subject, params: Sequence[dict[str, Any]]) -> Any:
    """The logarithm of the last token's weight at each distance, less that of its own, [samples,T]: of every
    head, with these parameters in turn, where all tokens have one random content.
    """
    T, found = min(s.cfg.L, TOKENS), []
    at = At.of(T, n=s.cfg.L)
    for time, p in enumerate(params):
        if [hook for hook in HOOKS if getattr(s.encoding, hook)] == ["bias"]:
            logs = np.asarray(hooks.distance_table(PLAIN, s.encoding, p, np.arange(T)), np.float64)
        else:
            content = random_content(s.cfg, s.encoding, T, UNITS, time)
            alike = {name: np.repeat(a[..., :1, :], T, -2) for name, a in content.items()}
            w = weights(s.encoding, p, at, [T - 1] * UNITS, {"layout": s.cfg.layout}, **alike)
            logs = np.log(np.maximum(w[..., ::-1], np.finfo(float).tiny)).reshape(-1, T)
        found.append(logs - logs[:, :1])
    return np.concatenate(found)


def start_panels(s: Subject) -> list[Panel | Image]:
    """What holds of the weights by distance before training, over many random starts: one start means
    nothing. Empty where the start is not random, or tells no distances apart.
    """
    if s.trained or not s.p:
        return []
    random = starts_random(s)
    x = told_apart(s, starts(s, STARTS if random else 1))
    if idle := not x.any():
        x = told_apart(s, [stirred(p, n) for n, p in enumerate(starts(s, STARTS))])
    if not x.any() or not (random or idle):
        return []
    d, square = np.arange(x.shape[1]), x.T @ x / len(x)
    apart = np.sqrt(np.maximum(np.diag(square)[:, None] + np.diag(square) - 2 * square, 0))
    over = f"{'starts as nothing: ' * idle}over {STARTS} draws of random parameters, all contents equal"
    y, curve = "ln of weight, less that of distance 0", Curve(d, x.mean(0), spread=x.std(0))
    how, rms = f"mean and standard deviation; {over}", f"root mean square difference in ln of weight; {over}"
    return [
        Panel("weight over distance, random parameters", DISTANCE, y, [curve], note=how),
        Image("how far two distances are told apart", DISTANCE, DISTANCE, apart, note=rms),
    ]


# ---------------------------------------------------------------- attention


def weights(
    encoding: Encoding, p: Any, at: At, rows: Sequence[int], how: Any, *, q: Any, k: Any, v: Any, x: Any
) -> Any:
    """The weights of row rows[b] of sequence b, [B,H,S]."""
    (B, H, _, D), (G, S), tape = q.shape, k.shape[1:3], Tape()
    watched, found, u = tape.watch(v), np.zeros((B, H, S)), np.full(D, D**-0.5, v.dtype)
    o, _ = hooks.attend_heads(PLAIN, encoding, p, q, k, watched, x, at, **how)
    assert isinstance(o, Var)
    recorded = list(tape.entries)
    for r in range(H // G):  # the r-th query head of every key-value head: there may be more than channels
        dy = np.zeros(o.shape, o.dtype)
        for b, t in enumerate(rows):
            dy[b, r :: H // G, t] = u
        tape.entries = list(recorded)
        found[:, r :: H // G] = tape.gradients(o, dy)[watched] @ u
    return found


def attention_weights(encoding: Encoding, p: Any, at: At, how: Any, content: dict[str, Any]) -> Any:
    """The weights of every row of one sequence, [H,T,T]. Outputs are weights times values, and what does not
    move with them: so values that are unit vectors, less none, show as many keys as a value has channels.
    """
    q, k, x, nothing, found = content["q"], content["k"], content["x"], np.zeros_like(content["v"]), []
    output = lambda v: hooks.attend_heads(PLAIN, encoding, p, q, k, v, x, at, **how)[0][0]
    (_, _, T, D), still = nothing.shape, output(nothing)
    for first in range(0, T, D):
        n, v = min(D, T - first), nothing.copy()
        v[:, :, first : first + n, :n] = np.eye(n)
        found.append((output(v) - still)[..., :n].astype(np.float64))
    return np.concatenate(found, -1)


def attend_panels(s: Subject) -> list[Panel | Image]:
    T, t, how = min(s.cfg.L, TOKENS), min(s.cfg.L, SMALL), {"layout": s.cfg.layout}
    contents = [random_content(s.cfg, s.encoding, T, DRAWS, time) for time in range(TIMES)]
    at, last = At.of(T, n=s.cfg.L), [T - 1] * DRAWS
    rows = [weights(s.encoding, s.p, at, last, how, **content) for content in contents]
    d, of_last = np.arange(T), np.mean(rows, (0, 1))
    equal = Curve(d, np.full(T, 1 / T), "equal weights", plain=True)
    curves = [equal, *numbered(d, of_last[:, ::-1])]
    content = random_content(s.cfg, s.encoding, t, 1)
    one = attention_weights(s.encoding, s.p, At.of(t, n=s.cfg.L), how, content)[0]
    y, note = f"weight among {T} keys", f"mean over {DRAWS * TIMES} random contents"
    drawn = Panel("attention of the last token", DISTANCE, y, curves, log="y", note=note)
    return [drawn, past("attention", one)]


def what_is_added(s: Subject, at: At, content: dict[str, Any]) -> Any:
    """Term, row and column of a score together, [B,H,T,T]."""
    f, _ = hooks.features(PLAIN, s.encoding, s.p, content["x"], at)
    _, table = hooks.place_tables(PLAIN, s.encoding, s.p, at)
    parts = hooks.score_terms(PLAIN, s.encoding, s.p, content["q"], content["k"], f, at, table)
    added = sum(np.asarray(a) for a in parts if a is not None)
    return np.broadcast_to(added, (len(content["q"]), s.cfg.H, at.T, at.S))


def start_score_panels(s: Subject) -> list[Panel | Image]:
    """What a random start that tells no distances apart adds to the logits, over many starts: by distance,
    and by the logit that it is added to.
    """
    T, added, logits = min(s.cfg.L, SMALL), [], []
    at, scale, no = At.of(T, n=s.cfg.L), hooks.softmax_scale(s.encoding, s.cfg.D), [None] * 4
    for time, p in enumerate(starts(s, STARTS)):
        content = random_content(s.cfg, s.encoding, T, 1, time)
        logits.append(scores(content["q"], content["k"], *no, at=at, scale=scale)[:, :, at.see])
        added.append(what_is_added(replace(s, p=p), at, content))
    all_added, d, i = np.concatenate(added), np.arange(T // 2 + 1), np.arange(T // 2, T)
    late = [all_added[:, :, i, i - n] for n in d]  # of the same queries at every distance
    flat, of_logit = np.ravel(logits), all_added[:, :, at.see].ravel()
    groups = np.array_split(np.argsort(flat, kind="stable"), T // 2)
    each = lambda f, parts: np.array([f(part) for part in parts])
    curves = lambda x, parts: [Curve(x, each(np.mean, parts), spread=each(np.std, parts))]
    over = f"mean and standard deviation over {STARTS} draws of random parameters"
    note, title = f"{over} and contents; by itself it tells no distances apart", "what is added over "
    by_logit = curves(each(np.mean, [flat[g] for g in groups]), [of_logit[g] for g in groups])
    y, random = "added to the logit", ", random parameters"
    return [
        Panel(f"{title}distance{random}", DISTANCE, y, curves(d, late), note=note),
        Panel(f"{title}the logit{random}", "logit", y, by_logit, note=over),
    ]


def score_panels(s: Subject) -> list[Panel | Image]:
    if starts_random(s):  # and start_panels has nothing to say of it
        return start_score_panels(s)
    T, t = min(s.cfg.L, TOKENS), min(s.cfg.L, SMALL)
    at, content = At.of(T, n=s.cfg.L), random_content(s.cfg, s.encoding, T, DRAWS)
    added = what_is_added(s, at, content)
    if idle := not added.any():
        s = replace(s, p=stirred(s.p))
        added = what_is_added(s, at, content)
    d = np.arange(T // 2 + 1)
    late = np.stack([np.diagonal(added, -int(n), 2, 3)[..., -(T // 2) :] for n in d], -1)  # [B,H,T/2,d]
    mean, spread = late.mean((0, 2)), late.std((0, 2))
    curves = [replace(one, spread=apart) for one, apart in zip(numbered(d, mean), spread, strict=True)]
    note = f"{STIRRED}; " * idle + "mean and standard deviation over random contents"
    return [
        Panel("what is added to the logits", DISTANCE, "added to the logit", curves, note=note),
        past("what is added", added[0, 0, :t, :t], centred=True),
        *attend_panels(s)[:1],
    ]


# ---------------------------------------------------------------- mixers


def sensitivity(
    encoding: Encoding, p: Any, x: Any, at: At, rows: Sequence[int], across: dict[str, Any]
) -> Any:
    """How much the output at rows[b] of sequence b moves with the input at each token, [B,T]: root mean
    square over random directions.
    """
    tape = Tape()
    watched, found = tape.watch(x), np.zeros(x.shape[:2])
    y, _ = hooks.mixed(PLAIN, encoding, p, watched, at, across=across)
    recorded, direction = list(tape.entries), generator(0, "picture direction")
    for _ in range(UNITS):
        dy = np.zeros(y.shape, y.dtype)
        for b, t in enumerate(rows):
            dy[b, t] = direction.standard_normal(y.shape[2])
        tape.entries = list(recorded)
        found += (np.asarray(tape.gradients(y, dy)[watched], np.float64) ** 2).sum(-1)
    return np.sqrt(found / UNITS)


def mix_panels(s: Subject) -> list[Panel | Image]:
    T = min(s.cfg.L, TOKENS)
    x = random_content(s.cfg, s.encoding, T, DRAWS)["x"]
    r = sensitivity(s.encoding, s.p, x, At.of(T, n=s.cfg.L), [T - 1] * DRAWS, {})
    r = np.sqrt((r**2).mean(0))[::-1]
    d, note = np.arange(T), f"root mean square over {DRAWS} random contents"
    change, share = Curve(d, r / r[0]), Curve(d + 1, (r**2).cumsum() / (r**2).sum())
    title, y = "response to a change of an earlier input", "change of the last output, own token 1"
    far, back = "how far back the response comes from", "tokens, from the last one back"
    ends = [("y", 0, ""), ("y", 1, "")]
    return [
        Panel(title, DISTANCE, y, [change], log="y", note=note),
        Panel(far, back, "share of the response", [share], log="x", marks=ends, note=note),
    ]


# ---------------------------------------------------------------- a trained model


def byte_label(n: int) -> str:
    """A byte in one character, or in two digits: what is no printable ASCII in hexadecimal."""
    return {9: "\u21e5", 10: "\u23ce", 32: "\u2423"}.get(n) or (chr(n) if 32 < n < 127 else f"{n:02x}")


def layer_weights(
    cfg: Config, params: dict[str, Any], tokens: Any, rows: Sequence[int]
) -> Iterator[tuple[list[str], Any]]:
    """For each layer the names of its heads and their weights over the tokens [T] in these rows,
    [heads,rows,T]; of a layer that mixes, its response. NaN where a row does not see.
    """
    T = len(tokens)
    at = At.of(T, n=max(T, cfg.L), causal=cfg.causal, window=cfg.window)
    this = start_pass(PLAIN, cfg, params, at)
    x = embed(this, np.asarray(tokens)[None])
    for layer in range(cfg.layers):
        pe, p, at = cfg.encoding(layer), this.inside[layer], this.places[layer]
        h = norm(this, this.weights[layer], "norm1", x)
        if pe.mix:
            parts = [rows[n : n + COPIES] for n in range(0, len(rows), COPIES)]
            heads = np.concatenate([response(this, pe, p, h, at, part) for part in parts])[None]
        else:
            q, k, v = projected(this, layer, h)
            how, content = settings_of_heads(this, layer), {"q": q, "k": k, "v": v, "x": h}
            heads = attention_weights(pe, p, at, how, content)[:, list(rows)]
        seen = np.broadcast_to(at.see, (1, 1, T, T))[0, 0][list(rows)]
        names = [f"layer {layer}, {'response' if pe.mix else f'head {n}'}" for n in range(len(heads))]
        yield names, np.where(seen, heads, np.nan)
        x, _ = block(this, layer, x, None)


def response(this: Any, pe: Encoding, p: Any, h: Any, at: At, rows: Sequence[int]) -> Any:
    """The shares of each token in the response of these rows, [rows,T]."""
    copies = lambda a: np.repeat(a, len(rows), 0)
    before = {name: copies(a) for name, a in this.across.items()}
    moved = sensitivity(pe, p, copies(h), at, rows, before)
    return moved / np.maximum(moved.sum(-1, keepdims=True), np.finfo(float).tiny)


def maps(
    cfg: Config, params: dict[str, Any], tokens: Any, words: Sequence[str] | None = None
) -> list[list[Image]]:
    """For each layer its heads' weights over the tokens [T], called `words`, or as bytes are; of a layer that
    mixes, its response.
    """
    words = [byte_label(int(n)) for n in tokens] if words is None else words
    return [
        [Image(name, "", "", a, ticks=words, top=1.0) for name, a in zip(names, heads, strict=True)]
        for names, heads in layer_weights(cfg, params, tokens, range(len(tokens)))
    ]
