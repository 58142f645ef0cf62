"""One peer on this machine's GPU, in a process of its own: a line of JSON for each result, under the names
that report.py looks for.

    python benchmarks/on_gpu/peers.py
    steps|rows|attention|compiled[-graph]-small|compiled[-graph]-large|compiled-rows|flex|triton|start|jax
    [--tiny] < /dev/null

It makes all that it times ready first, which compiles it, says so, and goes on when its standard input ends:
others may get ready meanwhile, and nobody times while one does.

--tiny runs tiny sizes once on the CPU, without times, so that the text is known to run. Weights are random,
for only times are compared; that both sides compute the same function is checked where the peers of the CPU
are (benchmarks/peers.py).
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent.parent)]

from on_gpu.session import spans_of  # noqa: E402
from on_gpu.shapes import of  # noqa: E402

TINY = "--tiny" in sys.argv
W = of(TINY)
READY = "ready"  # the line that says so
Found = dict[str, Any]
WAITING: list[tuple[str, Callable[[], Found]]] = []  # rows that are ready to be timed
DONE: dict[str, Found] = {}  # rows that were told
AGAIN = 4  # of what is quick, how often it is done in one span, as ours is


def tell(name: str, **found: Any) -> None:
    DONE[name] = found
    print(json.dumps({"name": name} | found), flush=True)


def attempt(name: str, act: Callable[[], Callable[[], Found]]) -> None:
    """A row: act() makes it ready, what it gives times it, when all are ready."""
    try:
        WAITING.append((name, act()))
    except Exception as error:
        tell(name, error=f"{type(error).__name__}: {error}"[:300])


def time_all() -> None:
    """What waits, once we are told to go on."""
    print(READY, flush=True)
    sys.stdin.read()
    for name, measure in WAITING:
        try:
            found = measure()
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:300]}
        tell(name, **found)


def spanning(
    act: Callable[[], Any], span: Callable[[], float], least: int, each: int = 1
) -> Callable[[], Found]:
    """Done once, and then what times it."""
    act()
    return lambda: {} if TINY else spans_of(span, least, each=each)


def with_more(measure: Callable[[], Found], **more: Any) -> Callable[[], Found]:
    return lambda: measure() | more


def timed(act: Callable[[], Any], wait: Callable[[], Any], least: int = 30) -> Callable[[], Found]:
    """As Session.timed, by the host's clock around a wait: for jax."""

    def span() -> float:
        before = time.perf_counter()
        act()
        wait()
        return 1e6 * (time.perf_counter() - before)

    return spanning(act, span, least)


def on_events(torch: Any, act: Callable[[], Any], least: int = 30, each: int = 1) -> Callable[[], Found]:
    """By events on the device, around `each` calls."""

    def span() -> float:
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(each):
            act()
        stop.record()
        stop.synchronize()
        return 1e3 * start.elapsed_time(stop)

    return spanning(act, span, least, each)


def captured(torch: Any, act: Callable[[], Any]) -> Callable[[], Any]:
    """The replay of act recorded as one CUDA graph, which keeps act, and so the memory that the graph reads;
    act itself for tiny sizes, which the CPU runs.
    """
    if TINY:
        return act
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(4):
            act()
    torch.cuda.current_stream().wait_stream(side)
    whole = torch.cuda.CUDAGraph()
    with torch.cuda.graph(whole):
        act()

    def replay(kept: Any = act) -> None:
        whole.replay()

    return replay


def torched() -> tuple[Any, str]:
    import torch

    if not TINY and not torch.cuda.is_available():
        raise SystemExit("torch finds no GPU")
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    return torch, "cpu" if TINY else "cuda"


def model(torch: Any, where: str) -> Any:
    """The model of our steps: pre-norm, RoPE, GELU of four times the width, tied head."""
    nn, F = torch.nn, torch.nn.functional

    class Block(nn.Module):
        def __init__(self, C: int, H: int) -> None:
            super().__init__()
            self.H = H
            self.norm1, self.norm2 = nn.RMSNorm(C), nn.RMSNorm(C)
            self.qkv, self.o = nn.Linear(C, 3 * C, bias=False), nn.Linear(C, C, bias=False)
            self.up, self.down = nn.Linear(C, 4 * C, bias=False), nn.Linear(4 * C, C, bias=False)

        def forward(self, x: Any, cos: Any, sin: Any) -> Any:
            B, T, C = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(B, T, 3, self.H, C // self.H).permute(2, 0, 3, 1, 4)
            a, b = q.chunk(2, -1)
            q = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
            a, b = k.chunk(2, -1)
            k = torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
            x = x + self.o(
                F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
            )
            return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(256, W.width)
            self.blocks = nn.ModuleList(Block(W.width, W.heads) for _ in range(W.layers))
            self.norm = nn.RMSNorm(W.width)

        def forward(self, x: Any, y: Any) -> Any:
            D = W.width // W.heads
            angle = torch.arange(x.shape[1], device=x.device)[:, None] * 10000.0 ** (
                -torch.arange(D // 2, device=x.device) * 2 / D
            )
            h, cos, sin = self.embed(x), angle.cos(), angle.sin()
            for block in self.blocks:
                h = block(h, cos, sin)
            return F.cross_entropy((self.norm(h) @ self.embed.weight.T).float().flatten(0, 1), y.flatten())

    return Model().to(where)


def steps(compiled: bool, sizes: tuple[tuple[int, int], ...], graphs: tuple[bool, ...]) -> None:
    """A whole training step with clipping and fused AdamW; the better of TF32 and bfloat16 by autocast; by
    itself and as one graph.
    """
    torch, where = torched()

    def stepping(B: int, T: int, half: bool, graph: bool) -> Callable[[], Found]:
        net = model(torch, where)
        adam = torch.optim.AdamW(
            net.parameters(),
            lr=1e-4,
            betas=(0.9, 0.95),
            weight_decay=0.1,
            fused=True,
            **({"capturable": True} if graph else {}),
        )
        x, y = (torch.randint(0, 256, (B, T), device=where) for _ in range(2))
        dtype = "bfloat16" if half else "tf32"
        mode = {"mode": "reduce-overhead"} if not graph else {}
        forward = torch.compile(net, **mode) if compiled and not TINY else net

        def step() -> None:
            with torch.autocast(where, torch.bfloat16, enabled=half):
                loss = forward(x, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
            adam.step()
            adam.zero_grad(set_to_none=not graph)

        return with_more(on_events(torch, captured(torch, step) if graph else step), dtype=dtype)

    kind = "compiled" if compiled else "eager"
    for B, T in sizes:
        for graph in graphs:
            title = f"torch step {B} x {T} {kind}{' graph' * graph}"
            names = [f"{title} {dtype}" for dtype in ("tf32", "bfloat16")]
            for half, name in enumerate(names):
                act = lambda B=B, T=T, half=bool(half), graph=graph: stepping(B, T, half, graph)
                attempt(name, act)
            best = lambda names=names: min(
                (DONE[name] for name in names), key=lambda row: row.get("us", 1e30)
            )
            attempt(title, lambda best=best: best)


def table_mask(torch: Any, table: Any) -> Any:
    """A table of distances [H,T] as the mask that SDPA adds, [1,H,T,T]: the entry of i - j, and -inf for
    keys that come later.
    """
    i = torch.arange(table.shape[1], device=table.device)
    distance = i[:, None] - i
    return table[:, distance.clamp(min=0)].masked_fill_(distance < 0, -float("inf"))[None]


def attention() -> None:
    """SDPA by each of its backends, and with a float mask."""
    torch, where = torched()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    dtype, F = torch.float32 if TINY else torch.bfloat16, torch.nn.functional
    kinds = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
    }

    def heads(D: int, T: int) -> Any:
        return [torch.randn(1, max(1, W.channels // D), T, D, device=where, dtype=dtype) for _ in range(3)]

    for D, T in W.attend:
        for name, kind in kinds.items():

            def act(D: int = D, T: int = T, kind: Any = kind) -> Callable[[], Found]:
                q, k, v = heads(D, T)

                def attend() -> None:  # which kernel it is, is chosen when it runs
                    with sdpa_kernel(SDPBackend.MATH if TINY else kind):
                        F.scaled_dot_product_attention(q, k, v, is_causal=True)

                return on_events(torch, attend)

            attempt(f"torch sdpa {D} x {T} {name}", act)

    def masked() -> Callable[[], Found]:
        D, T = W.attend[-1][0], W.masked
        q, k, v = heads(D, T)
        mask = table_mask(torch, torch.randn(q.shape[1], T, device=where, dtype=dtype))
        before = 0 if TINY else torch.cuda.memory_allocated() - mask.numel() * mask.element_size()
        if not TINY:
            torch.cuda.reset_peak_memory_stats()  # what making the mask took is no part of it
        found = on_events(torch, lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=mask), least=10)
        return found if TINY else with_more(found, peak_bytes=torch.cuda.max_memory_allocated() - before)

    attempt(f"torch sdpa {W.attend[-1][0]} x {W.masked} mask", masked)


def rows(compiled: bool) -> None:
    """RoPE, RMSNorm, cross-entropy with its gradient, AdamW with clipping."""
    torch, where = torched()
    dtype, F = torch.float32 if TINY else torch.bfloat16, torch.nn.functional
    kind = "compiled" if compiled else "eager"
    wrap = torch.compile if compiled and not TINY else lambda f: f

    def rope() -> Callable[[], Found]:
        T, D = W.rope[2:]
        q, k = (torch.randn(W.rope, device=where, dtype=dtype) for _ in range(2))
        angle = torch.arange(T, device=where)[:, None] * 10000.0 ** (
            -torch.arange(D // 2, device=where) * 2 / D
        )
        cos, sin = (torch.cat([f(angle)] * 2, -1).to(dtype) for f in (torch.cos, torch.sin))
        half = lambda x: torch.cat([-x[..., D // 2 :], x[..., : D // 2]], -1)
        work = wrap(lambda q, k: (q * cos + half(q) * sin, k * cos + half(k) * sin))
        return on_events(torch, lambda: work(q, k), each=AGAIN)

    def norm() -> Callable[[], Found]:
        x, w = (
            torch.randn(W.norm, device=where, dtype=dtype),
            torch.ones(W.norm[1], device=where, dtype=dtype),
        )
        work = wrap(lambda x: F.rms_norm(x, (W.norm[1],), w, 1e-5))
        return on_events(torch, lambda: work(x), each=AGAIN)

    def entropy() -> Callable[[], Found]:
        x = torch.randn(W.entropy, device=where, dtype=dtype).requires_grad_()
        y = torch.randint(0, W.entropy[1], (W.entropy[0],), device=where)
        work = wrap(lambda x: F.cross_entropy(x.float(), y))
        return on_events(torch, lambda: torch.autograd.grad(work(x), x), each=AGAIN)

    def adamw() -> Callable[[], Found]:
        p = [torch.randn(W.parameters // 32, 4, device=where).requires_grad_() for _ in range(8)]
        for a in p:
            a.grad = torch.randn_like(a)
        adam = torch.optim.AdamW(p, fused=True, capturable=True)
        step = lambda: (torch.nn.utils.clip_grad_norm_(p, 1.0, foreach=True), adam.step())
        return on_events(torch, captured(torch, step), each=AGAIN)

    attempt(f"torch rope {kind}", rope)
    attempt(f"torch rms_norm {kind}", norm)
    attempt(f"torch cross-entropy {kind}", entropy)
    if not compiled:
        attempt("torch adamw", adamw)


SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_M1": 32, "BLOCK_N1": 64, "BLOCK_M2": 64, "BLOCK_N2": 32}
# on an H200 24.1, 24.5 and 29.4 ms with gradients, and the last 39.2
FLEX_OPTIONS: tuple[dict[str, int], ...] = (
    {"fwd_num_stages": 2, "bwd_num_stages": 1},
    *({"num_stages": stages} for stages in (2, 1)),
    {**SMALL, "num_stages": 2},
)


def flex() -> None:
    """FlexAttention compiled, with its BlockMask: ALiBi, and a learned table with its gradient."""
    torch, where = torched()
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    dtype = torch.float32 if TINY else torch.bfloat16
    run = flex_attention if TINY else torch.compile(flex_attention)
    causal = lambda b, h, i, j: i >= j
    D, T = W.attend[-1]
    H = max(1, W.channels // D)
    slopes = torch.exp2(-8 * torch.arange(1, H + 1, device=where) / H)

    def alibi() -> Callable[[], Found]:
        q, k, v = (torch.randn(1, H, T, D, device=where, dtype=dtype) for _ in range(3))
        mask = create_block_mask(causal, None, None, T, T, device=where)
        return on_events(
            torch,
            lambda: run(q, k, v, score_mod=lambda s, b, h, i, j: s - slopes[h] * (i - j), block_mask=mask),
        )

    def learned() -> Callable[[], Found]:
        n = W.learned
        q, k, v = (
            torch.randn(1, H, n, D, device=where, dtype=dtype).requires_grad_(not TINY) for _ in range(3)
        )
        table = torch.randn(H, n, device=where).requires_grad_(not TINY)
        mask = create_block_mask(causal, None, None, n, n, device=where)

        def act(options: dict[str, int]) -> None:
            bias = lambda s, b, h, i, j: s + table[h, (i - j).clamp(min=0)]
            y = run(q, k, v, score_mod=bias, block_mask=mask, kernel_options=options)
            if not TINY:  # the CPU has no backward of it
                torch.autograd.grad(y.sum(), (q, k, v, table))

        if TINY:
            return on_events(torch, lambda: act({}))
        # what it chooses by itself asks for more shared memory than there is
        for options in FLEX_OPTIONS:
            try:
                return with_more(
                    on_events(torch, lambda options=options: act(options), least=10), options=options
                )
            except Exception as error:
                last = error
        raise last

    attempt(f"torch flex {D} x {T} ALiBi", alibi)
    attempt(f"torch flex {D} x {W.learned} learned", learned)


def in_triton() -> None:
    """Attention in Triton, held against SDPA before it is timed."""
    torch, where = torched()
    import triton  # type: ignore[import-not-found]  # noqa: F401

    if TINY:
        tell("peers triton", skipped="Triton has no CPU")
        return
    from on_gpu.triton_attention import attention as fused

    for D, T in W.attend:

        def act(D: int = D, T: int = T) -> Callable[[], Found]:
            q, k, v = (
                torch.randn(1, max(1, W.channels // D), T, D, device=where, dtype=torch.bfloat16)
                for _ in range(3)
            )
            apart = (
                (
                    fused(torch, q, k, v)
                    - torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                )
                .abs()
                .max()
                .item()
            )
            if not apart < 0.05:
                raise ValueError(f"it is {apart:.2g} away from SDPA")
            return with_more(on_events(torch, lambda: fused(torch, q, k, v)), apart=apart)

        attempt(f"triton attention {D} x {T}", act)


def start() -> None:
    """Seconds of a process of its own, with nothing compiled before, until its first training step by
    torch.compile is done.
    """
    torched()
    code = f"import sys; sys.argv.append('{'--tiny' * TINY}'); from on_gpu import peers; peers.first_step()"

    def act() -> Found:
        with tempfile.TemporaryDirectory() as folder:
            caches = {"TORCHINDUCTOR_CACHE_DIR": folder, "TRITON_CACHE_DIR": folder}
            env = os.environ | caches | {"PYTHONPATH": str(Path(__file__).resolve().parent.parent)}
            before = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False, timeout=55
            )
            if done.returncode:
                raise RuntimeError(done.stderr.strip()[-200:])
            return {} if TINY else {"us": 1e6 * (time.perf_counter() - before)}

    attempt("torch start compiled", lambda: act)


def first_step() -> None:
    """One step, as `steps` has it."""
    torch, where = torched()
    net = model(torch, where)
    adam = torch.optim.AdamW(net.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    x, y = (torch.randint(0, 256, W.steps[0], device=where) for _ in range(2))
    (net if TINY else torch.compile(net))(x, y).backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=True)
    adam.step()
    if not TINY:
        torch.cuda.synchronize()


def jax_steps() -> None:
    """Loss, gradient, clipping and AdamW in one jitted function with donated buffers."""
    import jax
    import jax.numpy as jnp

    if not TINY and jax.devices()[0].platform == "cpu":
        tell("peers jax", skipped="jax is here without its GPU part")
        return
    C, H, D = W.width, W.heads, W.width // W.heads
    norm = lambda x: x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def fresh() -> dict[str, Any]:
        shapes = {
            f"{n}.{w}": s
            for n in range(W.layers)
            for w, s in (("qkv", (C, 3 * C)), ("o", (C, C)), ("up", (C, 4 * C)), ("down", (4 * C, C)))
        }
        keys = jax.random.split(jax.random.key(0), len(shapes) + 1)
        made = {
            name: jax.random.normal(key, s) * s[0] ** -0.5
            for key, (name, s) in zip(keys, shapes.items(), strict=False)
        }
        return made | {"embed": jax.random.normal(keys[-1], (256, C)) * C**-0.5}

    def loss(p: Any, x: Any, y: Any) -> Any:
        B, T = x.shape
        angle = jnp.arange(T)[:, None] * 10000.0 ** (-jnp.arange(D // 2) * 2 / D)
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        turn = lambda a: jnp.concatenate(
            [
                a[..., : D // 2] * cos - a[..., D // 2 :] * sin,
                a[..., : D // 2] * sin + a[..., D // 2 :] * cos,
            ],
            -1,
        )
        h = p["embed"][x]
        for n in range(W.layers):
            q, k, v = jnp.moveaxis((norm(h) @ p[f"{n}.qkv"]).reshape(B, T, 3, H, D), 2, 0)
            h = (
                h
                + jax.nn.dot_product_attention(turn(q), turn(k), v, is_causal=True).reshape(B, T, C)
                @ p[f"{n}.o"]
            )
            h = h + jax.nn.gelu(norm(h) @ p[f"{n}.up"]) @ p[f"{n}.down"]
        z = norm(h) @ p["embed"].T
        return (jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, y[..., None], -1)[..., 0]).mean()

    def step(p: Any, m: Any, v: Any, x: Any, y: Any) -> Any:
        value, g = jax.value_and_grad(loss)(p, x, y)
        length = jnp.sqrt(sum((a * a).sum() for a in jax.tree.leaves(g)))
        g = jax.tree.map(lambda a: a * jnp.minimum(1, 1 / length), g)
        m, v = (
            jax.tree.map(lambda a, b, k=k, e=e: k * a + (1 - k) * b**e, old, g)
            for old, k, e in ((m, 0.9, 1), (v, 0.95, 2))
        )
        return (
            jax.tree.map(lambda a, b, c: a - 1e-4 * (b / (jnp.sqrt(c) + 1e-8) + 0.1 * a), p, m, v),
            m,
            v,
            value,
        )

    run = jax.jit(step, donate_argnums=(0, 1, 2))
    for B, T in W.steps:

        def act(B: int = B, T: int = T) -> Callable[[], Found]:
            p = fresh()
            state = [p, *(jax.tree.map(jnp.zeros_like, p) for _ in "mv"), None]
            x = jax.random.randint(jax.random.key(1), (B, T), 0, 256)

            def one() -> None:
                state[:] = run(*state[:3], x, x)

            wait = lambda: state[3].block_until_ready()
            return with_more(timed(one, wait), on=jax.devices()[0].platform)

        attempt(f"jax step {B} x {T}", act)


RUN: dict[str, Callable[[], None]] = {
    "steps": lambda: steps(False, W.steps, (False, True)),
    "rows": lambda: rows(False),
    "attention": attention,
    "compiled-small": lambda: steps(True, W.steps[:1], (False,)),
    "compiled-large": lambda: steps(True, W.steps[-1:], (False,)),
    "compiled-graph-small": lambda: steps(True, W.steps[:1], (True,)),
    "compiled-graph-large": lambda: steps(True, W.steps[-1:], (True,)),
    "compiled-rows": lambda: rows(True),
    "flex": flex,
    "triton": in_triton,
    "start": start,
    "jax": jax_steps,
}

if __name__ == "__main__":
    try:
        RUN[sys.argv[1]]()
        time_all()
    except ImportError as error:
        tell(f"peers {sys.argv[1]}", skipped=f"not installed: {error.name}")
