"""Mistakes planted in the reading of each setting, derived from the lists of settings: ignored, one off, of
another layer, in the wrong order with its neighbour. The golden files notice each of them, and so do the
tests, which hold these files against the program.

What a layer has is planted where layers are bound, so whatever reads a setting reads it wrongly. The settings
of the model, and mistakes in the text of a block: test_block_cases.py.
"""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from making.catalogue import core, full
from mutants import mutants
from test_block import MISTAKES
from test_block_cases import OTHERS

from peref import config, layers, model
from peref.config import OF_FIELDS
from peref.errors import Misuse
from peref.golden.compute.operation import parameters_in
from peref.golden.compute.reference import expected, inputs
from peref.golden.spec.book import open_book
from peref.golden.spec.files import Tensor
from peref.golden.spec.rule import verdict_on
from peref.member import FEEDING, SETTINGS, settings_of
from peref.ops.temperature import tempered

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CASES = [case for case in (*core(), *full()) if any(given.keys() & SETTINGS for _, given in case.members)]
BOUND = config.bound


@pytest.fixture(scope="module")
def entries():
    return open_book(GOLDEN).entries


def ignored(setting, mine, others):
    return {name: x for name, x in mine.items() if name != setting}


def off_by(step):
    """A number so many steps on; of words, and of yes and no, another."""

    def change(setting, mine, others):
        x, words = mine.get(setting), get_args(SETTINGS[setting])
        if x is None:
            return mine
        if isinstance(x, bool):
            return mine | {setting: not x}
        if isinstance(x, str):
            return mine | {setting: words[(words.index(x) + step) % len(words)]}
        return mine | {setting: x + step * (2 if setting == "rotary_dim" else 1)}

    return change


def of_the_next_layer(setting, mine, others):
    return ignored(setting, mine, ()) | ({setting: others[setting]} if setting in others else {})


WRONG = {"ignored": ignored, "one more": off_by(1), "one less": off_by(-1), "elsewhere": of_the_next_layer}


def planted(case, setting, change):
    """`bound` for the layers of a case, who read a setting of theirs wrongly."""

    def wrong(name, given, facts, earlier, usual):
        members = case.members
        others = members[(facts["layer"] + 1) % len(members)][1]
        free = {key: x for key, x in others.items() if key in settings_of(name)}
        return BOUND(name, change(setting, dict(given), free), facts, earlier, usual)

    return wrong


def notices(entry, case, a):
    """Whether what comes of a case fails in float32, or its weights are of other shapes, or it is refused."""
    try:
        if case.level == "model":
            model.check(case.config, parameters_in({n: x for n, x in a.items() if n.startswith("param.")}))
        found = expected(case, a)
    except Misuse:
        return True
    return any(fails(entry, name, found[name]) for name in entry.outputs if name in found)


def fails(entry, name, got):
    as_float32 = Tensor("F32", got.astype(np.float32))
    return verdict_on(as_float32, entry.want(name), *entry.budget(name), entry.words["depth"]).grade == "FAIL"


@pytest.mark.parametrize("how", WRONG)
@pytest.mark.parametrize("setting", SETTINGS)
def test_a_setting_of_a_layer_that_is_read_wrongly_is_noticed(setting, how, entries, monkeypatch):
    """By a case that is right otherwise."""
    found = []
    for case in CASES:
        if any(setting in given and setting in settings_of(name) for name, given in case.members):
            if how == "elsewhere" and len(case.members) == 1:
                continue
            a, entry = inputs(case), entries[case.id]
            assert not notices(entry, replace(case), a)
            monkeypatch.setattr(config, "bound", planted(case, setting, WRONG[how]))
            found.append(notices(entry, replace(case), a))
            monkeypatch.setattr(config, "bound", BOUND)
    assert any(found), f"no golden case notices {setting}, {how}; add one to tests/recipes/settings.py"


# a setting and its neighbour in the wrong order: a mutant of the golden files (tests/mutants, recipes), or a
# mistake of test_block.py, which the golden files notice too (test_block_cases.py)
ORDER = {
    "window": "no-global-tokens",
    "chunk": "chunks-of-slots",
    "global_tokens": "global-across-documents",
    "rotary_dim": "pairs-at-half",
    "layout": "pairs-at-half",
    "scale": "softcap-before-scale",
    "softcap": "softcap-over-bias",
    "cosine": "cosine-over-bias",
    "sinks": "scaled-sinks",
    **dict.fromkeys(("temperature", "temperature_slope", "temperature_length"), "temperature-over-logits"),
    "norm_place": "both: the norms behind swapped",
    "residual": "shared: with one norm twice",
    "activation": "gated gelu: the other gated",
    "activation_limit": "clamped: behind the sigmoid",
    "experts": "experts: weights of others",
    "experts_chosen": "experts: normed before the choice",
    "router": "experts: softmax over the chosen",
    "router_normed": "experts: normed before the choice",
    "router_bias": "experts: the bias for the choice alone",
    "router_scales": "experts: weights on the output",
    "qkv_bias": "biases: of k for v",
    "ff_bias": "bias of the gate: of up",
    "head_bias": "bias of a tied head: behind the cap",
    "qk_norm_over": "norm of all heads: root of one head",
    "embed_factor": "factors: of the positions too",
    "embed_norm": "norm of the embedding: before positions",
    "residual_factor": "factors: before the norm behind",
    "logit_factor": "factors: cap before the factor",
    "logit_softcap": "factors: cap before the factor",
}
NO_ORDER = {
    "F": "a width",
    "norm_from_one": "done to the weight alone",
    "shared_expert": "a sum",
    "unit_heads": "turning keeps the root mean square of a head",
}


def test_every_setting_is_done_in_the_wrong_order():
    """Or it is said why it has none."""
    new = OF_FIELDS.keys() - set(OTHERS.split())
    assert {*ORDER, *NO_ORDER} == {*SETTINGS, *new}
    assert not ORDER.keys() & NO_ORDER.keys()
    assert set(ORDER.values()) <= {m.name for m in mutants()} | MISTAKES.keys()


def test_a_temperature_before_the_norm_of_queries_is_noticed(entries, monkeypatch):
    """Which divides by it."""
    usual, told = layers.norm, layers.settings_of_heads

    def norm(this, w, name, x, kind=""):
        if name == "qnorm":
            factor = this.tables[[own is w for own in this.weights].index(True)].factor
            x = x if factor is None else tempered(x, w.get("temperature"), factor=factor)
        return usual(this, w, name, x, kind)

    monkeypatch.setattr(layers, "norm", norm)
    cold = {"factor": None, "temperature": None}
    monkeypatch.setattr(layers, "settings_of_heads", lambda this, n: told(this, n) | cold)
    case = next(case for case in CASES if case.id == "none.model/cycle-global")
    assert notices(entries[case.id], case, inputs(case))


def test_by_nature_weights_alone_tell_how_wide_a_layer_is_and_how_many_experts_it_has(entries, monkeypatch):
    """No number changes: a layer has what its weights have, and golden/README.md says so."""
    case = next(case for case in CASES if case.id == "none.model/block-experts-input")
    a = inputs(case)
    for setting in FEEDING:
        for how in ("one more", "one less"):
            monkeypatch.setattr(config, "bound", planted(case, setting, WRONG[how]))
            found, entry = expected(replace(case), a), entries[case.id]
            monkeypatch.setattr(config, "bound", BOUND)
            assert not any(fails(entry, name, x) for name, x in found.items())
