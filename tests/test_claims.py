"""Laws that an encoding claims hold, and those that it does not claim fail or are refused: generated from the registry."""

import numpy as np
import pytest
from check import gradient, same
from generated import EXACT, NAMES, chunked, config, every_choice, filling, layer_input, of, run, tokens, weights, without

from peref import model
from peref.encodings import get
from peref.errors import Misuse
from peref.tape import Tape


def claimed(name, given):
    """The laws that it claims with these options."""
    return config(name, pe=((name, given),)).encoding(0).claims


def choices(name):
    """Every choice of its options, and what it claims with them."""
    return [(given, claimed(name, given)) for given in every_choice(name)]


def test_options_may_change_what_is_claimed():
    """Those that do, found by asking each choice of each option."""
    found = {(name, *given) for name in NAMES for given, laws in choices(name) if laws != get(name).claims}
    assert found == {
        ("dape", "over"),
        ("longrope", "start_tokens", "original"),
        ("longrope", "start_tokens", "attention_factor", "original"),
        ("learned_bias", "max_distance"),
    }
    assert get("learned_bias").claims ^ claimed("learned_bias", {"max_distance": 3}) == {"any_length"}
    assert get("longrope").claims ^ claimed("longrope", {"start_tokens": 4}) == {"shift"}


@pytest.mark.parametrize("name", NAMES)
def test_shift_holds_where_it_is_claimed_and_fails_elsewhere(name):
    """With every choice of its options: positions 1000 further on give the same logits. Not claiming it would hide a law that holds.

    Where it is not claimed positions go far away if there is such a place, for some hide it up to there.
    """
    for given, laws in choices(name):
        cfg = config(name, pe=((name, given),), L=64)
        p, x = weights(cfg), tokens(2, 7)
        by = 1000 if "shift" in laws else 1021 if "any_length" in laws else 13
        here, there = run(cfg, p, x), run(cfg, p, x, positions=by + np.arange(7))
        if "shift" in laws:
            same(there, here, EXACT)
        else:
            assert abs(there - here).max() > 1e-6


@pytest.mark.parametrize("name", of("two_sided"))
def test_two_sided_is_claimed_and_holds(name):
    """The last token reaches the first row; the gradients are right."""
    cfg, x = config(name, causal=False), tokens(2, 7)
    p, other = weights(cfg), x.copy()
    other[:, -1] = (other[:, -1] + 3) % 11
    assert abs(run(cfg, p, other)[:, 0] - run(cfg, p, x)[:, 0]).max() > 1e-9
    gradient(lambda *a: run(cfg, dict(zip(p, a, strict=True)), x), list(p.values()))
    seg = np.array([[0, 1, 1, 1, 2, 2, 2]])
    same(run(cfg, p, x[:1], seg=seg)[:, 1:4], run(cfg, p, x[:1, 1:4]), EXACT)


@pytest.mark.parametrize("name", [name for name in of("two_sided") if get(name).hook in ("bias", "score", "attend")])
def test_gradient_of_every_choice_both_ways(name):
    """What it learns of the future too: its own parameters, with every choice of its options."""
    for given, _ in choices(name)[1:]:
        cfg, x = config(name, pe=((name, given),), causal=False, layers=1), tokens(2, 7)
        p = weights(cfg)
        own = [n for n, key in enumerate(p) if "pe." in key]
        if own:
            gradient(lambda *a, p=p, cfg=cfg, x=x: run(cfg, dict(zip(p, a, strict=True)), x), list(p.values()), wrt=own)


@pytest.mark.parametrize("name", without("two_sided"))
def test_two_sided_is_not_claimed_and_refused(name):
    """Config says so."""
    with pytest.raises(Misuse, match=f"{name} reads only the past"):
        config(name, causal=False)


@pytest.mark.parametrize("name", NAMES)
def test_any_length_works_where_it_is_claimed_and_is_refused_elsewhere(name):
    """With every choice of its options: four times the length trained for gives finite logits.

    Where it is not claimed all is well up to where it ends, whole and in decoding; one further is refused, and Config knows where that is.
    """
    for given, laws in choices(name):
        cfg = config(name, pe=((name, given),))
        p, x, (end, who) = weights(cfg), tokens(1, 2), cfg.ends(np.float64)
        if "any_length" in laws:
            assert (end, who) == (np.inf, "")
            assert np.isfinite(model.logits(cfg, p, tokens(1, 64))).all()
            continue
        assert (end < np.inf, who) == (True, name)
        assert np.isfinite(run(cfg, p, x, positions=np.array([0, end - 1]))).all()
        with pytest.raises(Misuse, match=f"^{name}: .*{end - 1} and ends there"):
            run(cfg, p, x, positions=np.array([0, end]))
        memory = model.decode(cfg, p, x[:, :1], model.cache(cfg))[1]
        with pytest.raises(Misuse, match=f"^{name}: .*{end - 1} and ends there"):
            model.decode(cfg, p, x[:, 1:], memory, positions=np.array([end]))


@pytest.mark.parametrize("name", of("window"))
def test_window_is_claimed_and_holds(name):
    """In one layer a query with window 3 reads itself and two before, no more; decoding and padding agree with the whole."""
    cfg, x = config(name, window=3, layers=1), tokens(2, 9)
    p, other = weights(cfg), tokens(2, 9)
    features = 2 if cfg.encoding(0).features else 0  # features may look back themselves
    other[:, 0] = (other[:, 0] + 3) % 11
    change = abs(run(cfg, p, other) - run(cfg, p, x)).max((0, 2))
    assert (change[:3] > 1e-9).all()
    assert (change[3 + features :] < 1e-13).all()
    same(chunked(cfg, p, x, (2, 5, 6)), run(cfg, p, x), EXACT)
    gradient(lambda *a: run(cfg, dict(zip(p, a, strict=True)), x), list(p.values()))


@pytest.mark.parametrize("name", filling("score", "attend"))
def test_a_row_that_sees_nothing_is_zero(name):
    """Padding, whatever stands in it: exactly 0 out of attention, nothing back to q, k and v, and the rows beside are as they are alone."""
    for given, _ in choices(name):
        cfg = config(name, pe=((name, given),))
        p, pe, (x, q, k, v) = model.of_encoding(cfg, weights(cfg), 0), cfg.encoding(0), layer_input(cfg, 7)

        def attended(at, x, q, k, v, cfg=cfg, p=p, pe=pe):
            f = pe.features(model.PLAIN, p, x, at, {})[0] if pe.features else {}
            if pe.attend:
                return pe.attend(model.PLAIN, p, q, k, v, f, at)
            return model.PLAIN.attention(q, k, v, None, *pe.score(model.PLAIN, p, q, k, f, at), at=at, scale=pe.scale(cfg.D))

        tape, seg = Tape(), np.array([[0, 0, 1, 1, 1, 1, 1], [0] * 7])
        leaves = [tape.watch(a) for a in (q, k, v)]
        y = attended(model.At.of(7, seg=seg), x, *leaves)
        same(y.value[0, :, 2:], attended(model.At.of(5), x[:1, 2:], *(a[:1, :, 2:] for a in (q, k, v)))[0], EXACT)
        found = tape.gradients(y, np.random.default_rng(0).standard_normal(y.shape))
        for a in (y.value, *(found[leaf] for leaf in leaves)):
            assert not a[1].any()
            assert not a[0, :, :2].any()
            assert np.isfinite(a).all()


@pytest.mark.parametrize("name", without("window"))
def test_window_is_not_claimed_and_refused(name):
    """Config says so."""
    with pytest.raises(Misuse, match=f"{name} has no attention that a window could limit"):
        config(name, window=3)
