"""Level step: ten steps of AdamW.

    inputs    param.NAME the first weights; tokens, targets [steps,B,T], a batch for each step; negative
              targets are not asked
    expected  losses, norms and rates [steps]: of each step, before its update; final.NAME the weights after
              the last

One step, counted from t = 1, with the recipe in the case's facts:

    g = gradient of the mean loss;   norm = its length over all parameters;
    g <- g clip / norm where norm > clip
    rate_t = rate t / warmup up to warmup, then rate (floor + (1 - floor) (1 + cos(pi (t - warmup) / (steps -
    warmup))) / 2)
    m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) g^2
    p <- p - rate_t (times m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + decay p)

decay acts on names that end in .weight and have two axes, on nothing else; times is 1 but for the parameters
named in facts["times"]. eps is 0.1 and not 1e-8: a small one makes whole steps of gradients that are nearly
0, or zero in exact arithmetic (a bias of k that softmax cannot see), and ten of them turn a rounding into a
thousand; beside a large one the length of gradients counts, and with it whether they are clipped. The last
rate is half of the largest, so that steps which are all late have moved less in the end.
"""

from typing import Any

import numpy as np

from peref.backends import Backend
from peref.golden.compute.model import drawn_parameters, drawn_tokens
from peref.golden.compute.operation import parameters_in
from peref.golden.spec.cases import Case
from peref.model import PLAIN, loss, step_sizes
from peref.optim import schedule, update
from peref.parameters import Arrays
from peref.rng import generator
from peref.tape import Tape


def training_inputs(case: Case) -> Arrays:
    """First weights and batches."""
    rng = generator(0, case.id)
    batches = drawn_tokens(case, rng, (case.recipe["steps"], case.B, case.T))
    return {"positions": np.array(case.at.i)} | batches | drawn_parameters(case, rng)


def rate_at(case: Case, step: int) -> float:
    r = case.recipe
    return schedule(step, peak=r["rate"], warmup=r["warmup"], steps=r["steps"], floor=r["floor"])


def loss_gradient(case: Case, p: Arrays, tokens: Any, targets: Any, be: Backend) -> tuple[Any, Arrays]:
    """The mean loss and its gradient."""
    tape = Tape()
    leaves = tape.watch(p)
    mean, _ = loss(case.config, leaves, tokens, targets, be=be, n=case.at.n)
    found = tape.gradients(mean, np.ones_like(mean.value))
    return mean.value, {name: found[leaf] for name, leaf in leaves.items()}


def training_outputs(case: Case, a: Arrays, be: Backend = PLAIN) -> Arrays:
    r, sizes, statuses = case.recipe, step_sizes(case.config), []
    p = {name: x.copy() for name, x in parameters_in(a).items()}
    m, v = ({name: np.zeros_like(x) for name, x in p.items()} for _ in "mv")
    how = {name: r[name] for name in ("beta1", "beta2", "eps", "decay")}
    rates = [rate_at(case, step) for step in range(1, len(a["tokens"]) + 1)]
    for step, (rate, tokens, targets) in enumerate(zip(rates, a["tokens"], a["targets"], strict=True), 1):
        mean, g = loss_gradient(case, p, tokens, targets, be)
        now, count, clip = (np.asarray(x) for x in (rate, step, r["clip"]))
        status = np.zeros(3)
        update(p, g, m, v, mean, now, count, clip, status, sizes=sizes, adamw=be.adamw, **how)
        statuses.append(status)
    losses, norms, _ = np.transpose(statuses)
    dtype = next(iter(p.values())).dtype
    found = {name: np.array(x, dtype) for name, x in (("losses", losses), ("norms", norms), ("rates", rates))}
    return found | {f"final.{name}": x for name, x in p.items()}
