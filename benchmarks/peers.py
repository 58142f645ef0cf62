"""One measurement of a peer, printed as one line of JSON: what measure.py does, written the way a good user
of torch or JAX writes it.

    pip install torch jax            # or: pip install -e '.[bench]'
    python benchmarks/peers.py train --peer torch --pe alibi --width 128 --layers 4 --heads 4 --batch 8 --len
    512 --shape bench

    torch           eager; F.scaled_dot_product_attention, q, k and v from one product, AdamW(fused=True),
                    clip_grad_norm_
    torch-compile   the same model under torch.compile
    torch-embedding eager, another way of gathering a learned mask
    jax             jax.nn.dot_product_attention; loss, gradients, clipping and AdamW in one jitted function
                    with donated buffers

Weights, inputs, decay, rate and clipping are those of measure.py, so that losses agree and the work is the
same. The mask of ALiBi is built once, outside the step. T5 and learned bias gather theirs from the table in
each step, with its gradient: by index_select, faster and smaller here than indexing and than F.embedding,
which is what public models of T5 call; `--peer torch-embedding` is eager with that. Everything else is
is_causal=True. Decoding writes into a key-value cache that is there from the start.
"""

import math
import os
from collections.abc import Callable
from typing import Any

from measure import (
    ADAM_EPS,
    BASE,
    BETA1,
    BETA2,
    BUCKETS,
    CLIP,
    DECAY,
    EPS,
    FARTHEST,
    RATE,
    VOCABULARY,
    angles,
    arguments,
    corner,
    empty_cache,
    hold,
    repeated,
    report,
    sizes,
    started,
    tensors,
    tokens,
    weights,
)

PEERS = ("torch", "torch-compile", "torch-embedding", "jax")


def slopes(heads: int) -> list[float]:
    """Of ALiBi, for a number of heads that is a power of two."""
    return [2.0 ** (-8.0 * (h + 1) / heads) for h in range(heads)]


def buckets(length: int) -> list[int]:
    """Of T5, for each distance into the past."""
    near = BUCKETS // 2
    far = lambda d: near + int(math.log(d / near) / math.log(FARTHEST / near) * (BUCKETS - near))
    return [d if d < near else min(far(d), BUCKETS - 1) for d in range(length)]


def fused(p: dict[str, Any], layer: int) -> Any:
    """The weights of q, k and v as one matrix."""
    import numpy as np

    return np.concatenate([p[f"{layer}.{name}.weight"] for name in "qkv"])


def sinusoids(a: Any) -> Any:
    """[len,width] float32."""
    import numpy as np

    angle = np.arange(a.len)[:, None] * BASE ** (-2 * np.arange(a.width // 2) / a.width)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(a.len, a.width).astype(np.float32)


# ---------------------------------------------------------------- torch


def alibi_mask(a: Any) -> Any:
    """[1,H,L,L]: the bias, and -inf for the future."""
    import torch

    i = torch.arange(a.len, dtype=torch.float32)
    relative = i[None] - i[:, None]
    mask = torch.tensor(slopes(a.heads))[:, None, None] * relative
    return mask.masked_fill_(relative > 0, -math.inf)[None]


def torch_model(a: Any) -> Any:
    """The model as a torch.nn.Module of (inputs, targets) -> loss, with `decode` beside it."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    H, G, D, C, L = a.heads, a.kv, a.head, a.width, a.len
    learned = a.pe in ("t5", "learned_bias")
    p = weights(a)

    def parameter(array: Any) -> Any:
        return nn.Parameter(torch.from_numpy(array))

    def linear(array: Any) -> Any:
        made = nn.Linear(array.shape[1], array.shape[0], bias=False, device="meta")
        made.weight = parameter(array)
        return made

    def turn(x: Any, cos: Any, sin: Any) -> Any:
        return x * cos + torch.cat((-x[..., D // 2 :], x[..., : D // 2]), -1) * sin

    def learned_mask(table: Any, index: Any, future: Any) -> Any:  # table [H,N]
        if a.peer == "torch-embedding":
            return (
                F.embedding(index.view(L, L), table.t()).permute(2, 0, 1)[None].masked_fill(future, -math.inf)
            )
        return table.index_select(1, index).view(1, H, L, L).masked_fill_(future, -math.inf)

    class Block(nn.Module):
        def __init__(self, layer: int) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.RMSNorm(C, eps=EPS), nn.RMSNorm(C, eps=EPS)
            self.qkv, self.out = linear(fused(p, layer)), linear(p[f"{layer}.o.weight"])
            self.gate = linear(p[f"{layer}.gate.weight"]) if a.shape == "llama" else None
            self.up, self.down = linear(p[f"{layer}.up.weight"]), linear(p[f"{layer}.down.weight"])
            if a.pe == "learned_bias":
                self.table = parameter(p[f"{layer}.pe.table"])

        def heads(self, x: Any) -> Any:
            q, k, v = self.qkv(self.norm1(x)).split((H * D, G * D, G * D), -1)
            return [y.view(*x.shape[:2], -1, D).transpose(1, 2) for y in (q, k, v)]

        def rest(self, x: Any, o: Any) -> Any:
            x = x + self.out(o.transpose(1, 2).reshape(*x.shape[:2], H * D))
            u = self.norm2(x)
            up = self.up(u)
            return x + self.down(
                F.gelu(up, approximate="tanh") if self.gate is None else F.silu(self.gate(u)) * up
            )

        def forward(self, x: Any, mask: Any, cos: Any, sin: Any, index: Any, future: Any) -> Any:
            q, k, v = self.heads(x)
            if cos is not None:
                q, k = turn(q, cos, sin), turn(k, cos, sin)
            if a.pe == "learned_bias":
                mask = learned_mask(self.table, index, future)
            scale = 1.0 if a.pe == "t5" else None
            o = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=G < H
            )
            return self.rest(x, o)

        def decode(self, x: Any, cos: Any, sin: Any, mask: Any, keys: Any, values: Any, n: int) -> Any:
            q, k, v = self.heads(x)
            if cos is not None:
                q, k = turn(q, cos, sin), turn(k, cos, sin)
            keys[:, :, n : n + 1], values[:, :, n : n + 1] = k, v
            o = F.scaled_dot_product_attention(
                q, keys[:, :, : n + 1], values[:, :, : n + 1], attn_mask=mask, enable_gqa=G < H
            )
            return self.rest(x, o)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCABULARY, C, _weight=torch.from_numpy(p["embed.weight"]))
            self.blocks = nn.ModuleList([Block(layer) for layer in range(a.layers)])
            self.norm = nn.RMSNorm(C, eps=EPS)
            self.head = linear(p["embed.weight" if a.shape == "llama" else "head.weight"])
            if a.shape == "llama":
                self.head.weight = self.embed.weight
            self.table = parameter(p["pe.0.table"]) if "pe.0.table" in p else None
            constants = dict.fromkeys(("mask", "cos", "sin", "index", "future", "added"))
            if a.pe == "alibi" and a.what != "decode":
                constants["mask"] = alibi_mask(a)
            if a.pe == "rope":
                angle = torch.from_numpy(angles(a)).repeat(1, 2)
                constants |= {"cos": angle.cos().float(), "sin": angle.sin().float()}
            if a.pe == "sinusoidal":
                constants["added"] = torch.from_numpy(sinusoids(a))
            if learned:
                far = torch.arange(L)
                apart = far[:, None] - far[None]
                of = torch.tensor(buckets(L), dtype=torch.int32) if a.pe == "t5" else far.int()
                constants |= {
                    "index": of[apart.clamp_(min=0)].view(-1),
                    "future": torch.ones(L, L, dtype=torch.bool).triu_(1),
                }
            for name, constant in constants.items():
                self.register_buffer(name, constant, persistent=False)

        def forward(self, inputs: Any, targets: Any) -> Any:
            x, mask = self.embed(inputs), self.mask
            if a.pe in ("sinusoidal", "learned"):
                x = x + (self.added if self.table is None else self.table)
            if a.pe == "t5":
                mask = learned_mask(self.table.t(), self.index, self.future)
            for block in self.blocks:
                x = block(x, mask, self.cos, self.sin, self.index, self.future)
            return F.cross_entropy(self.head(self.norm(x)).view(-1, VOCABULARY), targets.view(-1))

        def decode(self, inputs: Any) -> Any:
            """Logits of the last of `inputs` [B,L], given one at a time."""
            # [H,L]: of the keys up to a query at the end
            falling = torch.tensor(slopes(H))[:, None] * torch.arange(1 - L, 1)
            caches = [
                (torch.zeros(len(inputs), G, L, D), torch.zeros(len(inputs), G, L, D)) for _ in self.blocks
            ]
            for n in range(L):
                x = self.embed(inputs[:, n : n + 1])
                mask = falling[None, :, None, L - 1 - n :] if a.pe == "alibi" else None
                cos, sin = (None, None) if self.cos is None else (self.cos[n], self.sin[n])
                for block, (keys, values) in zip(self.blocks, caches, strict=True):
                    x = block.decode(x, cos, sin, mask, keys, values, n)
                y = self.head(self.norm(x))
            return y[0, 0]

    return Model()


def torch_training(a: Any) -> Callable[[], float]:
    import torch

    model = torch_model(a)
    forward = torch.compile(model) if a.peer == "torch-compile" else model
    inputs, targets = map(torch.from_numpy, tokens(a))
    plain = [p for n, p in model.named_parameters() if p.ndim < 2 or n.endswith("table")]
    decayed = [p for n, p in model.named_parameters() if not (p.ndim < 2 or n.endswith("table"))]
    groups = [{"params": plain, "weight_decay": 0.0}, {"params": decayed, "weight_decay": DECAY}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(BETA1, BETA2), eps=ADAM_EPS, fused=True)
    parameters = plain + decayed

    def step() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = forward(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        return float(loss.detach())

    return step


def torch_evaluation(a: Any) -> Callable[[], float]:
    import torch

    model = torch_model(a).eval()
    forward = torch.compile(model) if a.peer == "torch-compile" else model
    inputs, targets = map(torch.from_numpy, tokens(a))

    @torch.inference_mode()
    def step() -> float:
        return float(forward(inputs, targets))

    return step


def torch_attention(a: Any) -> Callable[[], list[Any]]:
    import torch
    import torch.nn.functional as F

    q, k, v, do = map(torch.from_numpy, tensors(a, 4))
    for x in (q, k, v):
        x.requires_grad_()
    mask = alibi_mask(a)

    def step() -> list[Any]:
        o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return [o.detach(), *torch.autograd.grad(o, (q, k, v), do)]

    return step


def torch_rotation(a: Any) -> Callable[[], Any]:
    import torch

    (x,), angle, half = (
        map(torch.from_numpy, tensors(a, 1)),
        torch.from_numpy(angles(a)).repeat(1, 2),
        a.head // 2,
    )
    cos, sin = angle.cos().float(), angle.sin().float()

    def made(x: Any) -> Any:
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin

    out, other = (torch.zeros_like(x) for _ in range(2)) if not a.allocate else (None, None)

    def into(x: Any) -> Any:
        torch.neg(x[..., half:], out=other[..., :half])
        other[..., half:].copy_(x[..., :half])
        torch.mul(x, cos, out=out)
        return out.addcmul_(other, sin)

    called = into if not a.allocate else torch.compile(made) if a.peer == "torch-compile" else made
    return torch.inference_mode()(lambda: called(x))


def torch_decoding(a: Any) -> Callable[[], Any]:
    import torch

    model, inputs = torch_model(a).eval(), torch.from_numpy(tokens(a)[0])
    return torch.inference_mode()(lambda: model.decode(inputs))


# ---------------------------------------------------------------- jax


def jax_loss(a: Any) -> tuple[dict[str, Any], dict[str, Any], Callable]:
    """Parameters, constants, and the loss as a function of (parameters, constants, inputs, targets)."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    H, G, D, L = a.heads, a.kv, a.head, a.len
    given, constants = weights(a), {}
    p = {
        name: w.T
        for name, w in given.items()
        if name.partition(".")[2].partition(".")[0] in ("o", "gate", "up", "down")
    }
    p |= {name: w for name, w in given.items() if "norm" in name or "table" in name or name == "embed.weight"}
    p |= {f"{l}.qkv.weight": fused(given, l).T for l in range(a.layers)}
    if a.shape == "bench":
        p["head.weight"] = given["head.weight"].T
    p = {name: jnp.array(w) for name, w in p.items()}  # copies: their buffers are donated
    apart = np.maximum(np.arange(L)[:, None] - np.arange(L), 0)
    if a.pe == "alibi":
        constants["bias"] = jnp.asarray(
            -np.array(slopes(H), np.float32)[:, None, None] * apart.astype(np.float32)
        )[None]
    if a.pe in ("t5", "learned_bias"):
        constants["index"] = jnp.asarray(
            (np.array(buckets(L)) if a.pe == "t5" else np.arange(L))[apart], jnp.int32
        )
    if a.pe == "sinusoidal":
        constants["added"] = jnp.asarray(sinusoids(a))
    if a.pe == "rope":
        angle = np.tile(angles(a), 2)[:, None]
        constants |= {
            "cos": jnp.asarray(np.cos(angle), jnp.float32),
            "sin": jnp.asarray(np.sin(angle), jnp.float32),
        }

    def norm(x: Any, w: Any) -> Any:
        return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * w

    def turn(x: Any, c: dict[str, Any]) -> Any:
        return x * c["cos"] + jnp.concatenate((-x[..., D // 2 :], x[..., : D // 2]), -1) * c["sin"]

    def loss(p: dict[str, Any], c: dict[str, Any], inputs: Any, targets: Any) -> Any:
        x, bias, (B, T) = p["embed.weight"][inputs], c.get("bias"), inputs.shape
        if a.pe in ("sinusoidal", "learned"):
            x = x + (c["added"] if a.pe == "sinusoidal" else p["pe.0.table"])
        if a.pe == "t5":
            bias = p["pe.0.table"].T[:, c["index"]][None]
        for l in range(a.layers):
            if a.pe == "learned_bias":
                bias = p[f"{l}.pe.table"][:, c["index"]][None]
            qkv = (norm(x, p[f"{l}.norm1.weight"]) @ p[f"{l}.qkv.weight"]).reshape(B, T, H + 2 * G, D)
            q, k, v = qkv[:, :, :H], qkv[:, :, H : H + G], qkv[:, :, H + G :]
            if a.pe == "rope":
                q, k = turn(q, c), turn(k, c)
            o = jax.nn.dot_product_attention(
                q, k, v, bias=bias, is_causal=True, scale=1.0 if a.pe == "t5" else None
            )
            x = x + o.reshape(B, T, H * D) @ p[f"{l}.o.weight"]
            u = norm(x, p[f"{l}.norm2.weight"])
            up = u @ p[f"{l}.up.weight"]
            x = (
                x
                + (jax.nn.gelu(up) if a.shape == "bench" else jax.nn.silu(u @ p[f"{l}.gate.weight"]) * up)
                @ p[f"{l}.down.weight"]
            )
        logits = norm(x, p["norm.weight"]) @ (p["head.weight"] if a.shape == "bench" else p["embed.weight"].T)
        picked = jnp.take_along_axis(logits, targets[..., None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - picked)

    return p, constants, loss


def jax_training(a: Any) -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    p, constants, loss_of = jax_loss(a)
    inputs, targets = map(jnp.asarray, tokens(a))

    def update(p: Any, m: Any, v: Any, n: Any, constants: Any, inputs: Any, targets: Any) -> tuple[Any, ...]:
        loss, g = jax.value_and_grad(loss_of)(p, constants, inputs, targets)
        length = jnp.sqrt(sum(jnp.sum(x * x) for x in g.values()))
        g = {name: x * jnp.minimum(1.0, CLIP / length) for name, x in g.items()}
        m = {name: BETA1 * m[name] + (1 - BETA1) * x for name, x in g.items()}
        v = {name: BETA2 * v[name] + (1 - BETA2) * x * x for name, x in g.items()}
        new = {}
        for name, x in p.items():
            change = m[name] / (1 - BETA1**n) / (jnp.sqrt(v[name] / (1 - BETA2**n)) + ADAM_EPS)
            new[name] = x - RATE * (change + (DECAY * x if x.ndim == 2 and name.endswith(".weight") else 0.0))
        return new, m, v, loss

    jitted = jax.jit(update, donate_argnums=(0, 1, 2))
    state = [p, *({name: jnp.zeros_like(x) for name, x in p.items()} for _ in range(2))]
    count = iter(range(1, 1 << 30))

    def step() -> float:
        *state[:], loss = jitted(*state, jnp.float32(next(count)), constants, inputs, targets)
        return float(loss)

    return step


def jax_evaluation(a: Any) -> Callable[[], float]:
    import jax
    import jax.numpy as jnp

    p, constants, loss_of = jax_loss(a)
    inputs, targets = map(jnp.asarray, tokens(a))
    jitted = jax.jit(loss_of)
    return lambda: float(jitted(p, constants, inputs, targets))


def jax_rotation(a: Any) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    if not a.allocate:
        raise SystemExit("jax has no preallocated outputs; add --allocate")
    x, angle, half = jnp.asarray(tensors(a, 1)[0]), np.tile(angles(a), 2), a.head // 2
    cos, sin = jnp.asarray(np.cos(angle), jnp.float32), jnp.asarray(np.sin(angle), jnp.float32)
    jitted = jax.jit(lambda x: x * cos + jnp.concatenate((-x[..., half:], x[..., :half]), -1) * sin)
    return lambda: jitted(x).block_until_ready()


# ---------------------------------------------------------------- all of them

STEPS: dict[str, dict[str, Callable]] = {
    "torch": {
        "train": torch_training,
        "start": torch_training,
        "eval": torch_evaluation,
        "attention": torch_attention,
        "rope": torch_rotation,
        "decode": torch_decoding,
    },
    "jax": {"train": jax_training, "start": jax_training, "eval": jax_evaluation, "rope": jax_rotation},
}


def main() -> None:
    a = arguments(__doc__, PEERS)
    hold(a.threads)
    of = STEPS[a.peer.partition("-")[0]]
    if a.what not in of or (
        a.peer == "torch-compile"
        and (a.what in ("attention", "decode") or (a.what == "rope" and not a.allocate))
    ):
        raise SystemExit(f"{a.what} is not measured of {a.peer}")
    with empty_cache("TORCHINDUCTOR_CACHE_DIR", a.cold):
        if a.peer == "jax":
            os.environ["JAX_PLATFORMS"] = "cpu"
            import jax

            versions = {"jax": jax.__version__}
        else:
            import torch

            torch.set_num_threads(a.threads)
            versions = {"torch": torch.__version__}
        step = of[a.what](a)
        if a.what == "start":
            found = started(step)
        else:
            looks = {"attention": sizes, "rope": corner, "decode": lambda y: sizes([y])}
            found = repeated(a, step, looks.get(a.what, lambda loss: [loss]))
    report(a, a.peer, found, versions)


if __name__ == "__main__":
    main()
