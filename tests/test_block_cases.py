"""Settings of the model in golden cases: ignored, one more, in the first layer alone, or in the wrong order
with what stands beside them, the numbers are others.
"""

from dataclasses import replace

import pytest
from check import apart
from level_mutants import computed_with, other_config, usual_config
from recipes.settings import WHOLES
from test_block import MISTAKES

from peref import layers, model
from peref.config import OF_FIELDS
from peref.golden.compute import model as stack
from peref.golden.compute.reference import expected, inputs

CASES = [case for case in WHOLES if getattr(case, "block", None)]
GIVEN = [(case, name) for case in CASES for name in case.block]
TOLD = {"F", "experts"}  # by weights, as biases are
OTHERS = "pe L V C layers H G D F R layout norm eps tied causal cross window biases o_bias norm_bias qk_norm"
WHOLE = ("embed_factor", "embed_norm", "logit_factor", "logit_softcap")  # settings that no layer reads


def told(name):
    return name in TOLD or name.endswith("_bias")


def named(given):
    case, name = given
    return f"{case.slug}-{name}"


def noticed(case, want, got):
    """Whether the logits, or a gradient, are others; or weights and settings do not fit together."""
    try:
        found = got(case, inputs(case))
    except (KeyError, TypeError, ValueError, IndexError):
        return True
    return any(found[n].shape != x.shape or apart(found[n], x, 1e-6) for n, x in want.items())


def test_every_setting_is_in_a_case():
    """Of those that the shapes do not say."""
    new = OF_FIELDS.keys() - set(OTHERS.split()) | {"experts"}
    assert {name for _, name in GIVEN} | {"experts"} >= new
    assert any("experts" in given for case in CASES for _, given in case.cycle)


@pytest.mark.parametrize("given", [one for one in GIVEN if not told(one[1])], ids=named)
def test_ignored_or_one_more_is_noticed(given):
    """Where weights do not tell."""
    case, name = given
    others, value, want = [usual_config(case, name)], case.block[name], expected(case, inputs(case))
    if type(value) in (int, float):
        others.append(other_config(case, name, value + 1))
    for cfg in others:
        assert noticed(case, want, lambda case, a, cfg=cfg: computed_with(case, a, cfg))


@pytest.mark.parametrize("given", [one for one in GIVEN if one[1].endswith("_bias")], ids=named)
def test_biases_left_out_are_noticed(given):
    """Of which the weights tell that they are there."""
    case, name = given
    a, want = inputs(case), expected(case, inputs(case))
    idle = model.init(case.config).keys() - model.init(replace(case.config, **{name: False})).keys()
    assert idle
    got = stack.run_model(case, {n: x for n, x in a.items() if n.removeprefix("param.") not in idle})
    assert any(apart(x, want[n], 1e-6) for n, x in got.items())


@pytest.mark.parametrize(
    "given", [one for one in GIVEN if not told(one[1]) and one[1] not in WHOLE], ids=named
)
def test_on_the_wrong_layer_it_is_noticed(given, monkeypatch):
    """Some layer without it, while the others have it."""
    case, name = given
    usual, right, found = usual_config(case, name), layers.block, []
    want = expected(case, inputs(case))
    for without in range(case.layers):

        def block(this, layer, x, old, without=without):
            return right(replace(this, cfg=usual) if layer == without else this, layer, x, old)

        monkeypatch.setattr(model, "block", block)
        found.append(noticed(case, want, stack.model_outputs))
    assert any(found)


def wrong_functions():
    """Mistakes of test_block.py that are other functions in the text of a block."""
    return [name for name, (_, made) in MISTAKES.items() if made()[1]]


@pytest.mark.parametrize("mistake", wrong_functions())
def test_mistakes_in_the_text_are_noticed(mistake, monkeypatch):
    """Those of test_block.py, in at least one case."""
    want = [expected(case, inputs(case))["logits"] for case in CASES]
    for name, function in MISTAKES[mistake][1]()[1].items():
        for module in (layers, model):
            monkeypatch.setattr(module, name, function, raising=False)
    assert any(differs(case, x) for case, x in zip(CASES, want, strict=True))


def differs(case, want):
    try:
        return bool(apart(stack.run_model(case, inputs(case))["logits"], want, 1e-6))
    except (KeyError, ValueError, IndexError, TypeError, AttributeError):  # it is not for such a model
        return False
