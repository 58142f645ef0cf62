"""Wrong blocks, models, training steps and traces: for each flag of these levels a function (case, inputs) ->
outputs that falls into its trap.

Written on the plain ops, with one thing wrong each. Not here: the flags of single operations.
"""

import math
from contextlib import suppress
from copy import copy
from dataclasses import fields, replace
from functools import cached_property

import numpy as np

from peref import hooks, layers, model, passes
from peref.backends import Backend
from peref.config import Config
from peref.encodings import get, settings
from peref.golden.compute import model as stack
from peref.golden.compute import reference, trace, training
from peref.member import LEARNED, settings_of
from peref.ops.feed import activated_linear
from peref.ops.kept import Kept
from peref.ops.linear import linear
from peref.ops.norm import layer_norm, rms_norm
from peref.ops.place import At
from peref.ops.shape import add
from peref.ops.turn import turn
from peref.optim import adamw
from peref.tape import Op, value

# ---------------------------------------------------------------- block


def sublayer(case, p, h, at):
    """Attention, or what stands in its place, of the normed input."""
    this = passes.start_pass(model.PLAIN, case.config, p, at)
    return (layers.mixer if case.hook == "mix" else layers.self_attention)(this, 0, h, None)[0]


def wired(order):
    """A block whose parts are joined by `order`(x, norm1, norm2, attend, feed)."""

    def block(case, a):
        p, cfg, at = stack.parameters_in(a), case.config, case.at
        this = passes.start_pass(model.PLAIN, cfg, p, at)
        norm = lambda name: lambda x: layers.norm(this, this.weights[0], name, x)
        feed = lambda x: layers.feed_forward(this, 0, x, None)
        return {"y": order(a["x"], norm("norm1"), norm("norm2"), lambda h: sublayer(case, p, h, at), feed)}

    return block


def post_norm(x, norm1, norm2, attend, feed):
    x = norm1(add(x, attend(x)))
    return norm2(add(x, feed(x)))


def parallel(x, norm1, norm2, attend, feed):
    return add(add(x, attend(norm1(x))), feed(norm2(x)))


def with_backend(**changes):
    """The outputs with some operations replaced; no gradients."""
    return lambda case, a: stack.run_model(case, a, Backend(**changes))


def layer_for_rms(x, w, *, eps):
    return layer_norm(x, w, None, eps=eps)


def rms_for_layer(x, w, b, *, eps):
    y = rms_norm(x, w, eps=eps)
    return y if b is None else y + b


def exact_gelu_forward(x):
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))), x


def exact_gelu_backward(x, dy):
    return (
        dy
        * (
            0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
            + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
        ),
    )


exact_gelu = Op(exact_gelu_forward, exact_gelu_backward)


def gelu_of_erf(case, a):
    """And its derivative, which is farther from that of the tanh form than the values are."""
    return stack.model_outputs(
        case,
        a,
        Backend(
            activated_linear=lambda up, gate, w, b, residual: add(residual, linear(exact_gelu(up), w, b))
        ),
    )


def other_eps(case, a):
    """1e-6 in place of 1e-5."""
    rms, layer = (
        lambda x, w, eps: rms_norm(x, w, eps=1e-6),
        lambda x, w, b, eps: layer_norm(x, w, b, eps=1e-6),
    )
    return stack.run_model(case, a, Backend(rms_norm=rms, layer_norm=layer))


def norm_after_turn(case, a):
    weights = []

    def later(x, w, *, eps):
        if x.ndim == 3:
            return rms_norm(x, w, eps=eps)
        weights.append((w, eps))
        return x

    def turned(x, angle, gain, *, layout):
        w, eps = weights.pop(0)
        return rms_norm(turn(x, angle, gain, layout=layout), w, eps=eps)

    return stack.run_model(case, a, Backend(rms_norm=later, turn=turned))


def documents_mixed(case, a):
    return stack.run_model(replace(case, seg=None, positions=tuple(map(tuple, case.at.i.tolist()))), a)


# ---------------------------------------------------------------- model


def mean_of_all(case, a):
    def loss(logits, targets):
        _, each = model.PLAIN.cross_entropy(logits, targets)
        return each.mean(), each

    return stack.run_model(case, a, Backend(cross_entropy=loss))


def no_final_norm(case, a):
    last = a["param.norm.weight"]
    return stack.run_model(
        case, a, Backend(layer_norm=lambda x, w, b, eps: x if w is last else layer_norm(x, w, b, eps=eps))
    )


def head_alone(case, a):
    """Only the head's part of the gradient."""
    return stack.model_outputs(case, a, Backend(take=lambda w, tokens: model.PLAIN.take(value(w), tokens)))


def first_layer_alone(case, a):
    """Only the first layer's part of a table's gradient."""
    count = []

    def attention(q, k, v, table, *more, **how):
        count.append(1)
        return model.PLAIN.attention(q, k, v, table if len(count) == 1 else value(table), *more, **how)

    return stack.model_outputs(case, a, Backend(attention=attention))


# ---------------------------------------------------------------- step


def trained(change):
    """Training with another AdamW."""
    return lambda case, a: training.training_outputs(case, a, Backend(adamw=change(case)))


def decay_everywhere(case):
    return lambda *arrays, decay, **how: adamw(*arrays, decay=decay or case.recipe["decay"], **how)


def decay_coupled(case):
    return lambda p, g, m, v, rate, step, shrink, *, decay, **how: adamw(
        p, g * shrink + decay * p, m, v, rate, step, decay=0.0, **how
    )


def uncorrected(case):
    def step(p, g, m, v, rate, step, shrink, *, beta1, beta2, eps, decay):
        g = g * shrink
        m += (1 - beta1) * (g - m)
        v += (1 - beta2) * (g * g - v)
        p -= rate * (m / (np.sqrt(v) + eps) + decay * p)

    return step


def from_zero(case, a):
    """Rates of the step before."""
    r = case.recipe
    rates = iter([0.0, *(training.rate_at(case, step) for step in range(1, r["steps"]))])
    seen = {}

    def late(p, g, m, v, rate, step, shrink, **how):
        now = int(step)
        if now not in seen:
            seen[now] = next(rates)
        return adamw(
            p, g, m, v, np.asarray(seen[now] * float(rate) / training.rate_at(case, now)), step, shrink, **how
        )

    return training.training_outputs(case, a, Backend(adamw=late))


def unclipped(case, a):
    return training.training_outputs(replace(case, recipe={**case.recipe, "clip": 1e9}), a)


# ---------------------------------------------------------------- trace


def called(change):
    """A trace, or a model, whose calls are change(first, stop, fresh, n)."""
    return lambda case, a: reference.expected(
        replace(case, calls=tuple(change(case, *call) for call in case.calls)), a
    )


def at_positions(change):
    def run(case, a):
        if case.level == "model":
            counted = lambda cfg, p, tokens, old, be: model.decode(
                cfg, p, tokens, old, be=be, positions=np.arange(tokens.shape[1])
            )
            return stack.in_calls(case, a, model.PLAIN, counted)
        i = change(case, case.at.i)
        return trace.trace_outputs(case, a, None, replace(case.at, i=i, j=i))

    return run


def restarted(case, i):
    return np.concatenate([i[..., : stop - first] for first, stop, _, _ in case.calls], -1)


class TopLeft(At):
    """A mask aligned with the first key."""

    @cached_property
    def see(self):
        return np.arange(self.T)[:, None] >= np.arange(self.S)


def top_left(case, a):
    aligned = lambda at: TopLeft(**{f.name: getattr(at, f.name) for f in fields(At)})
    if case.level == "model":
        moved = lambda *arrays, at, **how: model.PLAIN.attention(*arrays, at=aligned(at), **how)
        return stack.in_calls(case, a, Backend(attention=moved))
    return trace.trace_outputs(case, a, None, aligned(case.at))


def with_encoding(change):
    return lambda case, a: trace.trace_outputs(case, a, change(case.config.encoding(0)))


def without_tail(pe):
    """States but those of the last inputs, which are called x and tail."""
    cut = lambda state: {name: s for name, s in state.items() if name not in ("x", "tail")}
    if pe.mix:
        mix = pe.mix
        return replace(pe, mix=lambda be, p, x, at, state, across: mix(be, p, x, at, cut(state), across))
    features = pe.features
    return replace(pe, features=lambda be, p, x, at, state: features(be, p, x, at, {}))


def without_features(pe):
    """What came with earlier keys is 0."""
    empty = lambda f, at: {
        name: np.where((np.arange(at.S) >= at.S - at.T).reshape(-1, *[1] * (x.ndim - 3)), x, 0)
        for name, x in f.items()
    }
    if pe.attend:
        attend = pe.attend
        return replace(pe, attend=lambda be, p, q, k, v, f, at: attend(be, p, q, k, v, empty(f, at), at))
    score = pe.score
    return replace(pe, score=lambda be, p, q, k, f, at: score(be, p, q, k, empty(f, at), at))


def without_bias(pe):
    bias, seen = pe.bias, []

    def first(be, p, d):
        seen.append(1)
        return bias(be, p, d) * (len(seen) == 1)

    return replace(pe, bias=first)


def doubled(case, i):
    return np.concatenate([i[..., f:s] + i[..., f : f + 1] - i[..., :1] for f, s, _, _ in case.calls], -1)


def seeing(change):
    """change(see [T,S], slots of the queries [T,1], of the keys [S], calls before, call) -> cells."""

    def run(case, a):
        def before(number, pe, at, old):
            other, slots = replace(at), np.arange(at.S)
            t, calls = slots[at.S - at.T :, None], case.calls
            vars(other)["see"] = change(at.see, t, slots, calls[:number], calls[number])
            return pe, other, old

        return trace.trace_outputs(case, a, before=before)

    return run


def tokens_lost(see, t, s, before, call):
    """Keys of earlier calls of one token."""
    gone = [first for first, stop, _, _ in before if stop - first == 1]
    return see & ~np.isin(s, gone)


def open_chunk(see, t, s, before, call):
    return see | (s >= t[0]) if before else see


def chunk_of_call(case, a):
    """The chunk of a query is counted from the first token of its call."""
    size = case.layer.chunk
    return seeing(lambda see, t, s, before, call: (s <= t) & ((t - t[0]) // size == s // size))(case, a)


def globals_dropped(case, a):
    """Later calls find the keys of the window alone."""
    wide = case.layer.window - 1
    return seeing(lambda see, t, s, before, call: see & (s >= t[0] - wide) if before else see)(case, a)


def heads_in_turn(case, a):
    """Query head h reads key-value head h mod G, once there is a cache."""
    groups, right, first = np.arange(case.H) % case.G, reference.expected(case, a)["out"], case.calls[0][1]
    if "G" in settings(get(case.encoding).init):  # key-value heads have parameters: queries are exchanged
        order = np.argsort(groups, kind="stable")
        wrong = reference.expected(case, a | {"q": a["q"][:, order]})["out"][:, np.argsort(order)]
    else:
        in_turn = {n: a[n][:, groups] for n in "kv"}
        wrong = reference.expected(replace(case, G=case.H), a | in_turn)["out"]
    return {"out": np.concatenate([right[:, :, :first], wrong[:, :, first:]], 2)}


def turned_again(case, a):
    """Cached keys are turned in every call."""
    p = {name.removeprefix("param."): x for name, x in a.items() if name.startswith("param.")}

    def before(number, pe, at, old):
        if "k" in old:
            k = old["k"].rows
            turned = hooks.rotation(pe, p, at.j[..., : k.shape[2]], at.n)
            k = hooks.turn_heads(model.PLAIN, k, k, turned, layout=case.layout)[1]
            old = old | {"k": Kept(np.array(k))}
        return pe, at, old

    return trace.trace_outputs(case, a, before=before)


def static(case, a):
    return trace.trace_outputs(replace(case, options={**case.options, "form": "static"}), a)


def other_cycle(change):
    """The layers have the settings that change(cycle) says; what they learn is what one layer has."""

    def run(case, a):
        more = {
            f"param.{layer}.{name.rpartition('.')[2]}": x
            for name, x in a.items()
            for layer in range(case.layers)
            if name.endswith(tuple(f".{own}" for own in LEARNED))
        }
        found = reference.expected(replace(case, cycle=change(case.cycle)), more | a)
        return {
            name: x for name, x in found.items() if name.removeprefix("vjp.") not in more.keys() - a.keys()
        }

    return run


def elsewhere(cycle):
    """Each layer has the settings of the next; encodings and their options stay."""
    names, given = zip(*cycle, strict=True)
    free = lambda name, mine: {n: x for n, x in mine.items() if n in settings_of(name)}
    own = lambda name, mine: {n: x for n, x in mine.items() if n not in settings_of(name)}
    moved = [*given[1:], given[0]]
    return tuple(
        (name, own(name, mine) | free(name, other))
        for name, mine, other in zip(names, given, moved, strict=True)
    )


def bare_layers(cycle):
    return tuple(
        (name, {n: x for n, x in given.items() if n not in settings_of(name)}) for name, given in cycle
    )


def other_config(case, name, value):
    """With another value of a setting of the model, whatever that means for its weights."""
    other = copy(case.config)
    object.__setattr__(other, name, value)
    return other


def usual_config(case, name):
    """A setting of the model is that of most models."""
    plain = "swiglu" if case.config.gated else "gelu"
    return other_config(case, name, plain if name == "activation" else getattr(Config, name))


def computed_with(case, a, config):
    other = replace(case)
    vars(other)["config"] = config
    return stack.model_outputs(other, a)


def one_setting_ignored(case, a):
    """One that weights do not tell."""
    for name in sorted(case.block, reverse=True):
        told = name in ("norm_place", "experts") or name.endswith("_bias")
        with suppress(KeyError, TypeError, ValueError):
            found = None if told else computed_with(case, a, usual_config(case, name))
            if found:
                return found
    raise AssertionError(f"{case.id} has no setting that could be ignored")


MUTANTS = {
    "block.settings_ignored": one_setting_ignored,
    "layer.settings_ignored": other_cycle(bare_layers),
    "layer.settings_elsewhere": other_cycle(elsewhere),
    "block.post_norm": wired(post_norm),
    "block.parallel": wired(parallel),
    "norm.mean": with_backend(rms_norm=layer_for_rms, layer_norm=rms_for_layer),
    "block.swiglu_swapped": with_backend(
        activated_linear=lambda up, gate, *more: (
            activated_linear(up, gate, *more) if gate is None else activated_linear(gate, up, *more)
        )
    ),
    "block.gelu_exact": gelu_of_erf,
    "block.qk_norm_order": norm_after_turn,
    "norm.eps": other_eps,
    "loss.ignored_targets": mean_of_all,
    "model.final_norm": no_final_norm,
    "model.tied_gradient": head_alone,
    "model.shared_gradient": first_layer_alone,
    "adamw.decay_everywhere": trained(decay_everywhere),
    "adamw.decay_coupled": trained(decay_coupled),
    "adamw.bias_correction": trained(uncorrected),
    "schedule.counted_from_0": from_zero,
    "clip.missing": unclipped,
    "cache.position_restarts": at_positions(restarted),
    "cache.not_cleared": called(lambda case, first, stop, fresh, n: (first, stop, first == 0, n)),
    "cache.state_dropped": called(lambda case, first, stop, fresh, n: (first, stop, True, n)),
    "cache.tail_dropped": with_encoding(without_tail),
    "cache.features_dropped": with_encoding(without_features),
    "cache.ring_positions": at_positions(lambda case, i: i % case.window),
    "cache.window_late": called(
        lambda case, first, stop, fresh, n: (first, stop, fresh or stop - first >= case.window, n)
    ),
    "mask.top_left": top_left,
    "cache.position_offset": at_positions(doubled),
    "cache.ignored": called(lambda case, first, stop, fresh, n: (first, stop, True, n)),
    "cache.keys_lost": seeing(tokens_lost),
    "mask.chunk_open": seeing(open_chunk),
    "cache.chunk_restarts": chunk_of_call,
    "cache.global_dropped": globals_dropped,
    "cache.keys_turned_again": turned_again,
    "cache.bias_dropped": with_encoding(without_bias),
    "t5.bias.dropped_on_decode": with_encoding(without_bias),
    "rope.ntk.cache_mixed_bases": called(
        lambda case, first, stop, fresh, n: (first, stop, fresh, max(stop, case.L))
    ),
    "rope.longrope.cache_mixed": called(
        lambda case, first, stop, fresh, n: (first, stop, fresh, max(stop, case.L))
    ),
    "rope.ntk.long_then_short": called(
        lambda case, first, stop, fresh, n: (first, stop, fresh, min(max(stop, case.L), 9))
    ),
    "rope.ntk.static_as_dynamic": static,
}
LEFT = {  # flags that other cases have too: their mutants at these levels
    "gqa.order": heads_in_turn,
    "mask.documents": documents_mixed,
    "mask.window": lambda case, a: (trace.trace_outputs if case.level == "trace" else stack.run_model)(
        replace(case, window=case.window + 1), a
    ),
    "rope.layout.half": lambda case, a: stack.run_model(replace(case, layout="half"), a),
}
