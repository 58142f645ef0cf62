"""RWKV 4, 6 and 7 beside what is generated for them: both forms of the papers, the mix of the first
layer's values, how they start.
"""

import numpy as np
import pytest
from check import same
from generated import config, layer_input, lists, loop, weights
from loops import witness

from peref import model
from peref.encodings.mix.rwkv6 import wkv6
from peref.encodings.mix.rwkv7 import wkv7


@pytest.mark.parametrize("form", ["parallel", "recurrent"])
@pytest.mark.parametrize("chunk", [1, 3, 64])
@pytest.mark.parametrize("name", ["rwkv6", "rwkv7"])
def test_rwkv_is_both_forms_of_the_paper(name, form, chunk):
    """Whatever the number of tokens that are taken at once."""
    cfg = config(name, pe=((name, {"chunk": chunk}),))
    p, (x, *_) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, 7)
    got, _ = cfg.encoding(0).mix(model.PLAIN, p, x, model.At.of(7), {}, {})
    same(got[1], np.array(loop(cfg, form=form)(lists(p), lists(x[1]), [*range(7)])), 1e-12)


@pytest.mark.parametrize("value_gate", ["first", "own"])
def test_rwkv7_later_layers_mix_in_the_values_of_the_first(value_gate):
    """The first layer of its own, wherever that stands in a cycle, leaves them and has no gate for them;
    the later ones are the loop with them.
    """
    cfg = config("rwkv7", pe=(("rope", {}), ("rwkv7", {"value_gate": value_gate}), ("rwkv4", {})), layers=6)
    p, (x, *_), across = weights(cfg), layer_input(cfg, 7), {}
    of_layer = {layer: model.of_encoding(cfg, p, layer) for layer in (1, 4)}
    gates = {f"v.{part}" for part in ("down.weight", "up.weight", "bias")}
    assert set(of_layer[4]) - set(of_layer[1]) == gates
    cfg.encoding(1).mix(model.PLAIN, of_layer[1], x, model.At.of(7), {}, across)
    first = dict(across)
    got, _ = cfg.encoding(4).mix(model.PLAIN, of_layer[4], x, model.At.of(7), {}, across)
    assert across == first  # the later layer leaves them as they are
    (given,) = first.values()
    facts = {"H": cfg.H, "D": cfg.D, "value_gate": value_gate}
    same(
        got[1],
        np.array(
            witness("rwkv7", "mix", **facts, v_first=lists(given[1]))(lists(of_layer[4]), lists(x[1]), [])
        ),
        1e-12,
    )


def cycle_of(name, layers, **given):
    """What the layers of a model of that encoding start with, under their bare names."""
    cfg = config(name, layers=layers, **given)
    p = model.init(cfg, 0, np.float64)
    return [model.of_encoding(cfg, p, layer) for layer in range(layers)]


def test_rwkv_starts_as_released():
    """Decays, bonuses and mixes of the first and the last of three layers, by the rules of RWKV-LM (v4neo,
    v6, v7) put into numbers.
    """
    first, _, last = cycle_of("rwkv4", 3)
    got = [
        *first["decay"][[0, -1]],
        last["decay"][15],
        *first["bonus"][:3],
        first["mix.k"][6],
        last["mix.v"][6],
        first["mix.r"][6],
    ]
    third = 0.2 ** (1 / 3)
    same(
        np.array(got),
        np.array(
            [
                -5,
                3,
                -5 + 8 * (15 / 29) ** 2,
                *(np.log(0.3) + np.array([0, 0.5, -0.5])),
                0.2,
                third + 0.3,
                0.2**0.5,
            ]
        ),
        1e-14,
    )
    first, _, last = cycle_of("rwkv6", 3)
    got = [
        *first["decay.bias"][[0, -1]],
        *first["bonus"][0, :3],
        last["bonus"][0, 0],
        first["mix.x"][6],
        first["mix.r.bias"][6],
        last["mix.v.bias"][6],
    ]
    same(np.array(got), np.array([-6, -1, 0, 0.1, -0.1, 1, 0.8, 1 - 0.2**0.5, 0.7 - third]), 1e-14)
    assert (first["mix.w.up.weight"].shape, first["decay.up.weight"].shape) == ((30, 32), (24, 64))
    first, _, last = cycle_of("rwkv7", 3)
    got = [
        *first["decay.bias"][[0, 3]],
        last["decay.bias"][-1],
        first["a.bias"][0],
        last["v.bias"][-1],
        first["xi"][-1],
        first["mix.k"][6],
    ]
    same(np.array(got), np.array([-8, -3 + 18 / 23, 3, -0.69, 0.53, 0.66, 1 - 0.2**0.7]), 1e-14)
    wide = [
        {n.removesuffix(".up.weight"): a.shape[1] for n, a in p.items() if "up" in n}
        for p in cycle_of("rwkv7", 2, C=768, H=12, D=64)
    ]
    assert wide == [{"decay": 64, "a": 64, "gate": 128}, {"decay": 64, "a": 64, "v": 32, "gate": 128}]


@pytest.mark.parametrize("name", ["rwkv4", "rwkv6", "rwkv7"])
def test_rwkv_has_no_decay_on_decays_mixes_and_bonuses(name):
    """AdamW shrinks what is named .weight and has two axes: the linear maps, all of them with an input or
    output of the model's.
    """
    for p in cycle_of(name, 2, C=31):
        shrunk = {n for n, a in p.items() if n.endswith(".weight") and a.ndim == 2}
        assert {
            n.removesuffix(".weight").removesuffix(".down").removesuffix(".up").split(".")[-1] for n in shrunk
        } <= {*"rkvgwoa", "decay", "gate"}
        assert all(np.ndim(p[n]) == 1 or n == "bonus" for n in set(p) - shrunk)


def test_rwkv_reads_before_or_after_it_writes():
    """With one token RWKV-6 gives the bonus alone, (r u k) v, RWKV-7 what was just written, (r k) v."""
    r, k, v, u = (np.random.default_rng(n).standard_normal((1, 1, 1, 4)) for n in range(4))
    log_w, one = -np.ones_like(r), np.full_like(r, 0.5)
    same(wkv6(r, log_w, k, v, u[0, 0], None, None, chunk=1)[0], (r * u * k).sum() * v, 1e-15)
    same(wkv7(r, log_w, k, v, one, one, None, None, chunk=1)[0], (r * k).sum() * v, 1e-14)
