"""Equinox (JAX): nn.RotaryPositionalEmbedding, pairs in halves, positions that count from 0. Gradients
through jax.vjp.

The modules are made and called in the order of the cases, in one process, as a program with several models
would.
"""

import equinox as eqx
import jax
import numpy as np

PACKAGES = ("equinox", "jax")
DTYPES = ("f32",)


def run(case, a):
    o, facts = case["options"], case["facts"]
    if case["encoding"] != "rope" or case["level"] != "op" or o["learned"]:
        return None
    i = a["positions"]
    if i.ndim > 1 or (i != np.arange(len(i))).any():
        return None
    if facts["layout"] != "half" or facts["R"] != facts["D"]:
        return None
    made = eqx.nn.RotaryPositionalEmbedding(facts["D"], o["base"])
    found = {}
    for name in "qk":
        y, back = jax.vjp(jax.vmap(jax.vmap(made)), a[name])
        found |= {
            f"{name}_rotated": np.asarray(y),
            f"vjp.{name}": np.asarray(back(a[f"cotangent.{name}_rotated"])[0]),
        }
    return found
