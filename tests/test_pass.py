"""A forward pass: what layers share is made once, training knows no cache, tokens are looked at once."""

import ast
from dataclasses import FrozenInstanceError
from pathlib import Path

import numpy as np
import pytest
from check import same
from generated import config, weights

from peref import backends, model, train
from peref.backends import Backend
from peref.cache import Cache
from peref.encodings import names
from peref.ops.kept import Kept
from peref.passes import start_pass
from peref.recipe import Recipe

PEREF = Path(backends.__file__).parent.parent
TOKENS = np.array([[1, 5, 2, 2, 7], [3, 0, 4, 9, 1]])
OWN = {"across_layers": "own"}
RECIPE = Recipe(dtype="float64", steps=4)


def begun(pe, layers, **change):
    cfg = config(pe[0][0], pe=pe, layers=layers)
    return start_pass(Backend(), cfg, weights(cfg) | change, model.At.of(5))


def alike(this, what):
    """For each layer the first that has the very same table."""
    tables = [getattr(one, what) for one in this.tables]
    return [next(n for n, other in enumerate(tables) if other is one) for one in tables]


def test_layers_that_are_alike_share_their_tables():
    """The same settings and no parameters, or shared ones: one table. Else another."""
    cycle = (("rope", {}), ("t5", {}), ("rope", {"base": 100.0}), ("rope", {}))
    assert alike(begun(cycle, 8), "rotation") == [0, 1, 2, 0, 0, 1, 2, 0]
    assert alike(begun(cycle, 8), "distances") == [0, 1, 0, 0, 0, 1, 0, 0]
    assert alike(begun((("t5", {}), ("t5", {})), 4), "distances") == [0, 1, 0, 1]
    assert alike(begun((("kerple_log", OWN),), 3), "distances") == [0, 1, 2]
    assert alike(begun((("rope", {"learned": True}),), 3), "rotation") == [0, 1, 2]


def test_tables_go_by_names_and_not_by_arrays():
    """Two layers whose own parameters happen to be the same arrays are still two."""
    one = np.ones(6)
    given = {f"{layer}.pe.{name}": one for layer in range(2) for name in ("r1", "r2")}
    this = begun((("kerple_log", OWN),), 2, **given)
    assert this.inside[0]["r1"] is this.inside[1]["r1"]
    assert alike(this, "distances") == [0, 1]


@pytest.mark.parametrize(
    "file", ["hooks", "layers", "model", "parameters", "passes", "backends/numba/ops/token"]
)
def test_nothing_goes_by_the_address_of_an_array(file):
    """No id() on the way of a pass."""
    tree = ast.parse((PEREF / f"{file}.py").read_text())
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert len(names) > 5
    assert "id" not in names


def test_the_file_with_the_block_stays_short():
    assert len((PEREF / "layers.py").read_text().splitlines()) <= 300


def test_a_pass_is_frozen():
    """What was said at its start holds to its end."""
    this = begun((("rope", {}),), 2)
    for name in vars(this):
        with pytest.raises(FrozenInstanceError):
            setattr(this, name, None)


class Built(Exception):
    pass


@pytest.mark.parametrize("name", names())
def test_training_builds_no_cache(name, monkeypatch):
    """Neither do logits and loss; decode does."""

    def refuse(*given, **more):
        raise Built

    cfg = config(name)
    p, memory = weights(cfg), model.cache(cfg)
    for thing in (Cache, Kept):
        monkeypatch.setattr(thing, "__init__", refuse)
    new = {n: a.copy() for n, a in p.items()}
    m, v = ({n: np.zeros_like(a) for n, a in p.items()} for _ in "mv")
    train.stepped(Backend(), cfg, RECIPE.rule, new, m, v, [(TOKENS, TOKENS)], RECIPE.numbers(1), np.zeros(3))
    assert any((new[n] != p[n]).any() for n in p), (
        f"a step of {name} changes no weight; look at its gradients"
    )
    model.logits(cfg, p, TOKENS)
    with pytest.raises(Built):
        model.decode(cfg, p, TOKENS, memory)


def test_tokens_are_looked_at_once(monkeypatch):
    """In a training step, and in each call of logits, loss and decode."""
    cfg, seen = config("rope"), []
    p, check = weights(cfg), model.check_tokens
    for module in (model, train):
        spy = lambda cfg, tokens: (seen.append(tokens), check(cfg, tokens))[1]
        monkeypatch.setattr(module, "check_tokens", spy)
    new = {n: a.copy() for n, a in p.items()}
    m, v = ({n: np.zeros_like(a) for n, a in p.items()} for _ in "mv")
    batches = [(TOKENS, TOKENS), (TOKENS + 1, TOKENS)]
    given = (new, m, v, batches, RECIPE.numbers(1), np.zeros(3))
    step = lambda: train.stepped(Backend(), cfg, RECIPE.rule, *given)
    for call, wanted in (
        (step, [TOKENS, TOKENS + 1]),
        (lambda: model.logits(cfg, p, TOKENS), [TOKENS]),
        (lambda: model.loss(cfg, p, TOKENS, TOKENS), [TOKENS]),
        (lambda: model.decode(cfg, p, TOKENS, model.cache(cfg)), [TOKENS]),
    ):
        seen.clear()
        call()
        same(seen, wanted, 0)
