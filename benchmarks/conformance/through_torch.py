"""A function of torch tensors as `check --impl` takes one: arrays in, arrays out, gradients from autograd.

    run = adapter(compute)
    compute(case, a) -> {output: tensor}, or None for a case that it does not claim

The tensors of `a` are those of the case in the dtype that is checked; positions, distances and seg stay as
they are. The outputs that have a cotangent are multiplied by it and summed, and the gradient of that sum is
vjp.NAME for every input that the case has a gradient of.
"""

import numpy as np
import torch

from peref.golden.spec.files import Tensor

KEPT = ("positions", "distances", "seg")
NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
}


def adapter(compute):
    """function(case, inputs) in NumPy."""

    def run(case, inputs):
        found = differentiated(
            compute, case, {name: torch.from_numpy(x.copy()) for name, x in inputs.items()}
        )
        return found and {name: y.detach().numpy() for name, y in found.items()}

    return run


def in_bfloat16(compute):
    """function(case, inputs) -> {output: Tensor}: NumPy has no such dtype, the bits are handed over."""

    def run(case, inputs):
        real = lambda name, x: x.bfloat16() if name not in KEPT and x.is_floating_point() else x
        found = differentiated(
            compute, case, {name: real(name, torch.from_numpy(x.copy())) for name, x in inputs.items()}
        )
        return found and {name: Tensor(NAMES[y.dtype], bits(y.detach())) for name, y in found.items()}

    return run


def bits(y):
    return (
        y.contiguous().view(torch.int16).numpy().view(np.uint16) if y.dtype == torch.bfloat16 else y.numpy()
    )


def differentiated(compute, case, a):
    """The outputs and the gradients, None for a case that is not claimed: whole blocks and models are not
    what these libraries' functions are.
    """
    if case["level"] not in ("table", "op", "attn"):
        return None
    leaves = {name: x for name, x in a.items() if f"vjp.{name}" in case["expected"]}
    for x in leaves.values():
        x.requires_grad_()
    outputs = compute(case, a)
    stateless = "before" in case["facts"] and not any(name.startswith("last.") for name in outputs or {})
    if outputs is None or stateless:
        return None  # a case of states is for those that hand them on
    judged = [
        (y, a[f"cotangent.{name}"])
        for name, y in outputs.items()
        if f"cotangent.{name}" in a and y.requires_grad
    ]
    if judged and leaves:
        total = sum((y * cotangent.to(y.dtype)).sum() for y, cotangent in judged)
        grads = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        outputs = outputs | {f"vjp.{name}": g for name, g in zip(leaves, grads, strict=True) if g is not None}
    return outputs


# ---------------------------------------------------------------- what several adapters need


def plain_attention(case, a, q, k, v, bias=None, scale=None):
    """Scores, probabilities and output of torch's own softmax, float32 at least, for libraries that offer
    only what goes into the scores.
    """
    see, dtype = seen(case, a), v.dtype
    q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if bias is None else scores + bias
    weights = torch.where(see, scores, -torch.inf).softmax(-1)
    share = torch.where(see, torch.nan_to_num(weights), 0)
    return {
        name: y.to(dtype)
        for name, y in (("scores", torch.where(see, scores, 0)), ("probabilities", share), ("out", share @ v))
    }


def seen(case, a):
    """Which key each query sees, [1,1,T,S] or [B,1,T,S]."""
    T, facts = case["facts"]["T"], case["facts"]
    ahead = torch.arange(T)[:, None] - torch.arange(T)
    see = ahead >= 0 if facts["causal"] else torch.ones_like(ahead, dtype=torch.bool)
    if facts["window"]:
        see = see & (ahead.abs() < facts["window"])
    if "seg" not in a:
        return see[None, None]
    seg = a["seg"]
    return (see & (seg[:, :, None] == seg[:, None]) & (seg[:, None] != 0))[:, None]


def put(module, name, tensor):
    """A tensor of the case in place of a parameter of the module, so that its gradient comes back to it."""
    module._parameters[name] = tensor


def put_mamba(block, p):
    """Parameters `p` of a case in a block whose parts have the names of Mamba's own code."""
    put(block.in_proj, "weight", torch.cat([p["x.weight"], p["z.weight"]]))
    put(block.conv1d, "weight", p["conv"][:, None])
    put(block.conv1d, "bias", p["conv.bias"])
    put(block.x_proj, "weight", torch.cat([p["down.weight"], p["b.weight"], p["c.weight"]]))
    put(block.dt_proj, "weight", p["dt.weight"])
    put(block.dt_proj, "bias", p["dt.bias"])
    put(block, "A_log", p["A_log"])
    put(block, "D", p["D"])
    put(block.out_proj, "weight", p["o.weight"])


def rows(a, longest=8192):
    """Whether the positions are rows of a table of at most so many: whole and not negative."""
    i = a["positions"]
    return not i.is_floating_point() and int(i.min()) >= 0 and int(i.max()) < longest


def counts(case, a):
    """Whether the positions are 0, 1, ... for every sequence: what libraries without position ids take."""
    i = a["positions"]
    return i.ndim == 1 and bool((i == torch.arange(len(i))).all())


def rotated(case, a, turn):
    """The outputs of a case of `rotate`, level op or attn; turn(x, role) turns q or k, [B,H,T,D]."""
    q, k = turn(a["q"], "q"), turn(a["k"], "k")
    if case["level"] == "op":
        return {"q_rotated": q, "k_rotated": k}
    return plain_attention(case, a, q, k, a["v"])


def with_pairs(turn, given, R):
    """`turn` for pairs laid out as `given`, by a library that knows the other layout: channels are
    permuted, and back, as converting weights does.
    """
    halves = torch.arange(R).reshape(2, R // 2).T.flatten()  # place 2n holds channel n, 2n+1 holds n + R/2
    order = halves if given == "half" else torch.argsort(halves)
    there = lambda x: torch.cat([x[..., :R][..., order], x[..., R:]], -1)
    back = lambda x: torch.cat([x[..., :R][..., torch.argsort(order)], x[..., R:]], -1)
    return lambda x, role: back(turn(there(x), role))


def at_queries(case, a, bias):
    """A bias table [H,T,T] with the cells that are not seen at 0, as level op has it."""
    return {"bias": torch.where(seen(case, a)[0], bias, 0)}
