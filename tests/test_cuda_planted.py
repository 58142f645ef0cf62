"""Mistakes planted in the text of the CUDA kernels are caught: an index, a barrier, a race, an end."""

import re

import ml_dtypes
import numpy as np
import pytest
from emulated.device import Fault
from emulated.twins import BF16, CLOSE, SAME, emulated, errors
from test_cuda_recurrences import RUNS as BREAKS
from test_cuda_recurrences import arrays as recurrent
from test_cuda_recurrences import of
from test_ops import random

from peref.backends.cuda import attention, embedding, loss, norm, optimizer, place, retention
from peref.backends.cuda.launch import FOLDER, source
from peref.encodings.mix.retnet import retention as plain_retention
from peref.ops import attention as plain_attention
from peref.ops import embedding as plain_embedding
from peref.ops import loss as plain_loss
from peref.ops import norm as plain_norm
from peref.ops.place import At

LOG = np.log1p(-(2.0 ** -np.arange(2.0, 5.0)))


def of_attention(B, T, H, G, D, **rest):
    at, qkv = At.of(T), [random(B, heads, T, D, seed=n) for n, heads in enumerate((H, G, G))]
    return (
        attention.attention,
        plain_attention.attention,
        [*qkv, random(H, T), None, None, random(B, H, 1, T)],
        {"at": at, "scale": 0.2},
        rest,
    )


def of_index():
    at = At.of(70, positions=np.arange(70) // 3)
    qkv = [random(1, 2, 70, 8, seed=n) for n in range(3)]
    return (
        attention.attention,
        plain_attention.attention,
        [*qkv, random(2, len(at.distances))],
        {"at": at, "scale": 0.2},
    )


def of_retention(E):
    q, k, v = random(1, 3, 70, 8), random(1, 3, 70, 8, seed=1), random(1, 3, 70, E, seed=2)
    return (
        retention.retention,
        plain_retention,
        [q, k, v, random(1, 3, 8, E), None],
        {"log_decay": LOG, "chunk": 64, "scale": 0.5},
    )


def of_recurrence(*names):
    made = ((name, *of(name)) for name in names)
    return [
        (fast, plain, recurrent(name, 35, 18, 6, True, BREAKS), settings, rest)
        for name, fast, plain, settings, rest in made
    ]


RUNS = {
    # in bfloat16 by wgmma: three tiles of keys, of which two have one place
    "attention": [of_attention(1, 70, 2, 2, 33), of_attention(1, 150, 1, 1, 8, dtype=ml_dtypes.bfloat16)],
    "attention_backward": [of_attention(1, 70, 2, 1, 33), of_attention(1, 20, 1, 1, 65)],
    "norm": [
        (
            norm.layer_norm,
            plain_norm.layer_norm,
            [1 + random(131, 1, C), random(C), random(C, seed=1)],
            {"eps": 1e-5},
        )
        for C in (70, 72)
    ],
    "loss": [
        (loss.cross_entropy, plain_loss.cross_entropy, [5 * random(M, V), np.arange(M) % (V + 1) - 1], {})
        for M, V in ((300, 33), (3, 2088))
    ],
    "embedding": [
        (embedding.take, plain_embedding.take, [random(5, 200), np.arange(4096) ** 2 // 7 % 4], {})
    ],
    "retention": [of_retention(6), of_retention(70)],
    "by_index": [of_index()],
    "convolution": of_recurrence("short_conv"),
    "wkv4": of_recurrence("wkv4"),
    "wkv6": of_recurrence("wkv6"),
    "wkv7": of_recurrence("wkv7"),
    "selective": of_recurrence("euler", "zoh"),
    "diagonal": of_recurrence("diagonal_scan"),
}
# what several files include is looked at in one of them
INCLUDED = {"loss": "common.cuh", "wkv6": "state.cuh"}


def updated(seed=1, edit=None):
    """Parameters, moments and the word after a step of AdamW over an arena, and one of a tensor alone."""
    p, g = (
        {"a.weight": random(30, 40, seed=n).astype(np.float32), "b": random(700, seed=n).astype(np.float32)}
        for n in (0, 1)
    )
    with emulated(seed, edit) as cupy:
        lines = [
            place(kind, cupy)
            for kind in (p, {n: 0 * a for n, a in p.items()}, {n: 0 * a for n, a in p.items()})
        ]
        there, word = {n: cupy.asarray(a) for n, a in g.items()}, cupy.zeros(3)
        numbers = [cupy.asarray(np.array(x)) for x in (2.0, 0.01, 3.0, 1.0)]
        rule = {"beta1": 0.9, "beta2": 0.95, "eps": 1e-8}
        optimizer.update(*lines[:1], there, *lines[1:], *numbers, word, sizes={}, decay=0.1, **rule)
        alone = [cupy.asarray(p["b"]) for _ in range(4)]
        optimizer.adamw(*alone, *numbers[1:3], **rule, decay=0.1)
        assert edit is None or cupy.emulated.changed
        return [a.get() for a in (*(line.line for line in lines), word, *alone)]


def compared(run, edit=None, seeds=(1, 2)):
    *given, rest = run if len(run) == 5 else (*run, {})
    return errors(*given, edit=edit, seeds=seeds, **rest)


def allowed(run):
    """How far from float64 a run may be, and how far one with a mistake is."""
    narrow = len(run) == 5 and "dtype" in run[4]
    return (BF16, 3 * BF16) if narrow else (CLOSE, 100 * CLOSE)


def caught(file, edit):
    """Whether somebody sees an edit: by a number that is wrong, by numbers that follow the order of
    threads, or by the guard that it runs into.
    """
    try:
        if file == "optimizer":
            right = updated(edit=SAME)
            return any(
                a.tobytes() != b.tobytes()
                for seed in (1, 2)
                for a, b in zip(updated(seed, edit), right, strict=True)
            )
        # one order of threads shows most; two show what the others leave
        return any(
            not np.max(compared(run, edit, seeds)) <= allowed(run)[1]
            for seeds in ((1,), (1, 2))
            for run in RUNS[file]
        )
    except Fault:
        return True


PLANTED = {
    "another distance": ("attention", "near[mine + r - l]", "near[mine + r - l + 1]"),
    "another distance for the keys": (
        "attention_backward",
        "near[KEYS ? l0 + l - mine - r : mine + r - l0 - l]",
        "near[KEYS ? l0 + l - mine - r - 1 : mine + r - l0 - l]",
    ),
    "another diagonal of the gradient": (
        "attention_backward",
        "line[(8 * q + g - l0 + LOOP) * 4 + t]",
        "line[(8 * q + g - l0 + LOOP - 1) * 4 + t]",
    ),
    "a square's columns that are turned too far": (
        "attention_backward",
        "g + 2 * t + j < 8 ?",
        "g + 2 * t + j < 7 ?",
    ),
    "logits left out that somebody sees": (
        "attention_backward",
        "at.causal && furthest < 0",
        "at.causal && furthest < 16",
    ),
    "sums of the head before": ("attention_backward", "total[mine + r] = 0;\n      });", ";\n      });"),
    "another head's keys": ("attention", "g = h / (H / G)", "g = (h + 1) % G"),
    "the row above": ("attention", "return lane() / 4 + c / 2 * 8;", "return lane() / 4 + c / 2 * 7;"),
    "one key too many": ("attention", "r < rows && c < width", "r <= rows && c < width"),
    "a barrier that some do not reach": (
        "attention",
        "__syncthreads();  // the keys",
        "if (threadIdx.x) __syncthreads();  // the keys",
    ),
    "keys that are not waited for": ("attention", "meet(FULL + STAGES * (mine / 64) + stage, 256);", ""),
    "keys that are still read": ("attention", "if (n >= STAGES) meet(EMPTY + stage, BLOCK);", ""),
    "a product that is not waited for": ("attention", "wgmma_wait<1>();", "wgmma_wait<2>();"),
    "16s in another row's places": ("attention", "at >> 3 & ld - 8", "at >> 4 & ld - 8"),
    "no sum over the warp": ("norm", "middle = row_sum(total, shares, W) / C;", "middle = total / C;"),
    "one share too few": ("norm", "p < P; p += 8", "p < P - 1; p += 8"),
    "one column too many": ("norm", "if (warp() || n >= N) return;", "if (warp()) return;"),
    "the largest of the lane": ("loss", "top = row_max(top, shares, W);", ""),
    "all list in one share": ("embedding", "w < warp() ? found[w] : 0", "0"),
    "the first of equal ones alone": ("by_index", "while (__ballot_sync(ALL, rest != 0))", "while (0)"),
    "every second of equal ones": ("by_index", "rest &= rest - 1;", "rest &= rest - 1, rest &= rest - 1;"),
    "a warp's line left out": ("by_index", "w < WARPS; w++", "w < WARPS - 1; w++"),
    "another token's weight": ("convolution", "int t = s - k + K - 1;", "int t = s - k + K;"),
    "another document's tokens": (
        "convolution",
        "run[t] == (s >= 0 ? run[s] : 0)",
        "run[t] >= (s >= 0 ? run[s] : 0)",
    ),
    "the larger exponent": ("wkv4", "p >= x ? Shares{1, less} : Shares{less, 1}", "Shares{1, less}"),
    "a document's first token goes on": (
        "wkv4",
        "if (t < T && !follows(run, t)) a = b = 0, p = -infinity();",
        "",
    ),
    "the token before": ("wkv6", "kept[(t * ROWS + m) * THREADS + threadIdx.x] = s[m] = on", "s[m] = on"),
    "a warp's columns left out": ("wkv6", "for (int w = 0; w < 4; w++)", "for (int w = 0; w < 3; w++)"),
    "a state kept too late": ("wkv6", "keep(start / TOKENS);", "keep(start / TOKENS + 1);"),
    "what was taken out": ("wkv7", "a * away + s[m] * dtaken", "a * away"),
    "a sum over half the rows": (
        "wkv7",
        "for (int m = 4; m < 32; m *= 2)",
        "for (int m = 4; m < 16; m *= 2)",
    ),
    "the gain's derivative": ("selective", "dz += dgain * s.decay;", "dz += dgain;"),
    "softplus is not differentiated": ("selective", "* expf(delta - step)", ""),
    "a factor that is not conjugate": (
        "diagonal",
        "a[m].re * grad.re + a[m].im * grad.im,",
        "a[m].re * grad.re - a[m].im * grad.im,",
    ),
    "a warp's last places left out": ("embedding", "m < M ? index[m]", "m + 32 < M ? index[m]"),
}


def barriers():
    """(file, edit) for each barrier that is written in a kernel file: its text with what stands before,
    without it.
    """
    for file in (*RUNS, "optimizer"):
        text, looked = source(file), (f"{file}.cu", *([INCLUDED[file]] if file in INCLUDED else []))
        own = "".join((FOLDER / name).read_text(encoding="utf-8") for name in looked)
        for found in re.finditer(r"__syncthreads\(\);", text):
            before = text[found.start() - 150 : found.start()]
            if before[-60:] in own:
                yield pytest.param(
                    file,
                    (before + found[0], before + ";"),
                    id=f"{file}-{text[: found.start()].count('__syncthreads')}",
                )


@pytest.mark.parametrize(("file", "edit"), list(barriers()))
def test_every_barrier_is_missed(file, edit):
    """Leave out one, whichever: it is seen. So none is there in vain, and none that is needed was
    forgotten where the sizes here go.
    """
    assert caught(file, edit)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_caught(name):
    """Another index, an end that is not kept, a sum that is not made."""
    file, old, new = PLANTED[name]
    assert caught(file, (old, new))


@pytest.mark.parametrize("name", RUNS)
def test_without_a_mistake_nothing_is_caught(name):
    """The same runs, as they are."""
    for run in RUNS[name]:
        assert np.max(compared(run)) <= allowed(run)[0]
