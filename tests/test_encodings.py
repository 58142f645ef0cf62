"""What every encoding promises, generated from the registry: the file has a loop, the loop agrees, gradients are right, laws of all hold."""

import re
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from check import Differs, frozen, gradient, same
from generated import (
    EXACT,
    LONG,
    NAMES,
    REAL,
    TESTS,
    chunked,
    config,
    every_choice,
    every_way,
    everywhere,
    everywhere_long,
    filling,
    layer_input,
    lists,
    loop,
    of,
    place_of,
    run,
    tokens,
    weights,
    widths,
    without,
)
from loops import witness
from registry import ops

from peref import backends, model
from peref.encodings import FACTS, FUNCTIONS, LAWS, files, fitting, get, options, settings
from peref.errors import Misuse
from peref.tape import Tape, Var

OPS = ops()
FAR = np.array([131071, 1048575])


# ---------------------------------------------------------------- files


def test_names_are_the_files():
    """The folders are the hooks, the files are the encodings, and the hook of each is that of its folder."""
    assert {path.stem for path in Path(model.__file__).parent.glob("encodings/*/*.py")} - {"__init__"} | {"none"} == set(NAMES)
    for name, where in files().items():
        assert get(name).hook == ("" if name == "none" else where.split(".")[-2])


@pytest.mark.parametrize("name", NAMES)
def test_every_file_has_its_loop_and_says_what_it_is(name):
    """A witness of the same name, a docstring with the paper, a formula, known facts, options that agree, claims that exist."""
    assert (TESTS / "loops" / f"{name}.py").is_file()
    module = import_module(files()[name])
    encoding = module.ENCODING
    assert encoding.paper in module.__doc__
    assert encoding.formula
    assert encoding.claims <= set(LAWS)
    found = {}
    for function in filter(None, (getattr(encoding, f) for f in FUNCTIONS)):
        for setting, a in settings(function).items():
            if a.default is a.empty:
                assert setting in FACTS, f"{setting} is neither a fact nor an option"
            else:
                assert found.setdefault(setting, a.default) == a.default, f"{setting} has two defaults"
    for option, (default, kind) in options(encoding).items():
        assert fitting(option, default, kind) == default
    for line in Path(module.__file__).read_text().splitlines():
        assert not line.startswith(("from peref.encodings.", "import peref.encodings.")), "encodings do not import one another"


LISTS = {"longrope.short_factor", "longrope.long_factor", "mrope.sections"}  # as long as the width says: test_scalings.py, test_axes.py


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_tried_at_another_value(name):
    """And every word that it may be: every_choice leaves none out, so that loops, gradients and laws below are asked with each."""
    choices = every_choice(name)
    for option, (default, kind) in options(get(name)).items():
        tried = {given[option] for given in choices if option in given} | {default}
        assert len(tried) > 1 or f"{name}.{option}" in LISTS, option
        assert isinstance(default, bool) or tried >= set(get_args(kind) if get_origin(kind) is Literal else ()), option


def test_nothing_branches_on_an_encoding_s_name():
    """Only an encoding's own file knows it; a comparison with its name elsewhere would be a defect."""
    branch = re.compile(rf"(==|!=|\bin\b|\bcase\b) *[(\[{{]? *['\"]({'|'.join(set(NAMES) - {'none'})})['\"]")
    for path in Path(model.__file__).parent.rglob("*.py"):
        assert not branch.search(path.read_text()), path


@pytest.mark.parametrize("name", filling("embed"))
def test_embed_is_the_loop(name):
    """Every option value, odd and even widths, positions in any order."""
    for C in (1, 2, 7, 8):
        for given in every_choice(name):
            cfg = config(name, pe=((name, given),), C=C, D=4)
            p = model.of_encoding(cfg, weights(cfg), 0)
            for i in everywhere(name):
                want = np.array(loop(cfg)(lists(p), lists(i)))
                same(cfg.encoding(0).embed(p, i), want, 1e-13)
                both = cfg.encoding(0).embed(p, np.stack([i, i[::-1]]))
                same(both[1], want[::-1], 1e-13)
            if name in of("any_length"):
                same(cfg.encoding(0).embed(p, FAR), np.array(loop(cfg)(lists(p), lists(FAR))), 1e-9)  # a frequency's last digit, a million times


@pytest.mark.parametrize("name", filling("rotate"))
def test_rotate_is_the_loop(name):
    """Angles and gains in float64, for any positions, made for any length, widths below the head's too."""
    for given in every_choice(name):
        for R, n in product(widths(name, given), (16, 17, 50)):
            cfg = config(name, pe=((name, given),), D=8, R=R)
            p = model.of_encoding(cfg, weights(cfg), 0)
            for i in everywhere(name, *([FAR] if name in of("any_length") else [])):
                want = loop(cfg)(lists(p), lists(i), n)
                same(cfg.encoding(0).rotate(p, i, n), tuple(None if a is None else np.array(a) for a in want), 1e-14)


@pytest.mark.parametrize("name", filling("bias"))
def test_bias_is_the_loop(name):
    """Past and, where it is two-sided, future; every option value; heads that are no power of two."""
    for given, causal in every_way(name):
        for H in (1, 6, 7):
            cfg = config(name, pe=((name, given),), H=H, causal=causal, L=300)
            p = model.of_encoding(cfg, weights(cfg), 0)
            distances = [np.arange(0 if causal else -299, 300), *([abs(REAL)] if name in of("real_positions") else [])]
            for d in distances:
                same(cfg.encoding(0).bias(model.PLAIN, p, d), np.array(loop(cfg)(lists(p), lists(d))), 1e-13)
            if name in of("any_length"):
                far = np.array(loop(cfg)(lists(p), lists(FAR)))
                scale = np.where(np.isfinite(far), 1 + abs(far), 1)  # of kerple_power they are of 1e11
                same(cfg.encoding(0).bias(model.PLAIN, p, FAR) / scale, far / scale, 1e-9)


@pytest.mark.parametrize("name", filling("score"))
def test_score_is_the_loop(name):
    """Term, row and column add up to what the loop has wherever a query looks."""
    for given, causal in every_way(name):
        cfg = config(name, pe=((name, given),), causal=causal, L=64)
        p, pe, (x, q, k, _) = model.of_encoding(cfg, weights(cfg), 0), cfg.encoding(0), layer_input(cfg, LONG)
        for i in everywhere_long(name):
            at = place_of(cfg, i)
            f = pe.features(model.PLAIN, p, x, at, {})[0] if pe.features else {}
            got = sum(a for a in pe.score(model.PLAIN, p, q, k, f, at) if a is not None)
            want = np.array(loop(cfg)(lists(p), *(lists(a[1]) for a in (q, k, x)), lists(i)), dtype=float)
            same(np.broadcast_to(got, (2, cfg.H, LONG, LONG))[1][:, at.see], want[:, at.see], 1e-13)


@pytest.mark.parametrize("name", filling("attend"))
def test_attend_is_the_loop(name):
    """Features and attention together, from the layer's input on."""
    for given, causal in every_way(name):
        cfg = config(name, pe=((name, given),), causal=causal, L=64)
        p, pe, (x, q, k, v) = model.of_encoding(cfg, weights(cfg), 0), cfg.encoding(0), layer_input(cfg, LONG)
        for i in everywhere_long(name):
            at = place_of(cfg, i)
            f = pe.features(model.PLAIN, p, x, at, {})[0] if pe.features else {}
            want = loop(cfg)(lists(p), *(lists(a[1]) for a in (q, k, v, x)), lists(i))
            same(pe.attend(model.PLAIN, p, q, k, v, f, at)[1], np.array(want), 1e-12)


@pytest.mark.parametrize("name", filling("mix"))
def test_mix_is_the_loop(name):
    """The whole layer, every option."""
    for given, causal in every_way(name):
        cfg = config(name, pe=((name, given),), causal=causal, L=64)
        p, (x, *_) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, LONG)
        for i in everywhere_long(name):
            got, _ = cfg.encoding(0).mix(model.PLAIN, p, x, place_of(cfg, i), {}, {})
            same(got[1], np.array(loop(cfg)(lists(p), lists(x[1]), lists(i))), 1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_scale_is_the_loop(name):
    """Every option; 1 / sqrt(D) where the loop says nothing of it."""
    for given in every_choice(name):
        cfg = config(name, pe=((name, given),))
        says = hasattr(import_module(f"loops.{name}"), "scale")
        want = witness(name, "scale", D=8, **cfg.pe[0][1])() if says else 8**-0.5
        same(np.float64(cfg.encoding(0).scale(8)), np.float64(want), 1e-15)


def test_forgetting_with_a_constant_gate_is_a_linear_bias():
    """log f = -m gives -m d: what ALiBi adds."""
    pe = get("forgetting")
    _, row, column = pe.score(model.PLAIN, {}, None, None, {"log_f": np.full((1, 1, 7), -0.25)}, model.At.of(7))
    d = np.arange(7)[:, None] - np.arange(7)
    same((row + column)[0, 0], -0.25 * d, 1e-15)


def test_path_without_reflections_is_plain_attention_and_with_one_twice_too(rng):
    """beta 0 leaves q k; beta 2 with one w reflects, so keys an even number of tokens away are as they were."""
    scores = import_module(files()["path"]).scores
    q, k = rng.standard_normal((1, 1, 70, 4)), rng.standard_normal((1, 1, 70, 4))
    w = np.broadcast_to(np.array([1.0, 0, 0, 0]), (1, 1, 70, 4))
    low = np.tril(np.ones((70, 70), bool))
    same(scores(q, k, w, np.zeros((1, 1, 70)), scale=1.0)[0, 0][low], (q @ k.swapaxes(-1, -2))[0, 0][low], 1e-13)
    even = low & ((np.arange(70)[:, None] - np.arange(70)) % 2 == 0)
    same(scores(q, k, w, np.full((1, 1, 70), 2.0), scale=1.0)[0, 0][even], (q @ k.swapaxes(-1, -2))[0, 0][even], 1e-12)


@pytest.mark.parametrize("form", ["parallel", "recurrent"])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_retnet_is_both_forms_of_the_paper(form, chunk):
    """Whatever the number of tokens that are taken at once."""
    cfg = config("retnet", pe=(("retnet", {"chunk": chunk}),))
    p, (x, *_) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, 7)
    got, _ = cfg.encoding(0).mix(model.PLAIN, p, x, model.At.of(7), {}, {})
    same(got[1], np.array(loop(cfg, form=form)(lists(p), lists(x[1]), [*range(7)])), 1e-12)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_every_parameter(name, first):
    """To 1e-7 in float64, with a random cotangent on the logits; also when the first tokens are already in the cache."""
    cfg = config(name)
    p, x = weights(cfg), tokens(2, 7)
    memory = model.decode(cfg, p, x[:, :first], model.cache(cfg, 16))[1] if first else model.cache(cfg, 16)
    order = list(p)

    def function(*arrays):
        return model.decode(cfg, dict(zip(order, arrays, strict=True)), x[:, first:], memory)[0]

    gradient(function, [p[n] for n in order])


@pytest.mark.parametrize("name", [name for name in NAMES if len(every_choice(name)) > 1])
def test_gradient_of_every_choice(name):
    """Every parameter and every option at each value it may have, one layer behind a cache."""
    for given in every_choice(name)[1:]:
        cfg = config(name, pe=((name, given),), layers=1)
        p, x = weights(cfg), tokens(2, 7)
        memory = model.decode(cfg, p, x[:, :3], model.cache(cfg, 16))[1]
        gradient(lambda *a, p=p, c=cfg, x=x, m=memory: model.decode(c, dict(zip(p, a, strict=True)), x[:, 3:], m)[0], list(p.values()))


@pytest.mark.parametrize("name", filling("score"))
def test_gradient_of_every_part_of_a_score(name):
    """Term, row and column each with a cotangent of its own: the softmax cannot see a number added to a whole row, and so hides its gradient."""
    cfg = config(name)
    p, pe, (x, q, k, _) = model.of_encoding(cfg, weights(cfg), 0), cfg.encoding(0), layer_input(cfg, 7)

    def parts(x, q, k, *arrays):
        own = dict(zip(p, arrays, strict=True))
        f = pe.features(model.PLAIN, own, x, model.At.of(7), {})[0] if pe.features else {}
        return pe.score(model.PLAIN, own, q, k, f, model.At.of(7))

    arrays, tape = [x, q, k, *p.values()], Tape()
    for n, part in enumerate(parts(*map(tape.watch, arrays))):
        if isinstance(part, Var):
            wrt = [m for m in range(len(arrays)) if isinstance(parts(*(Tape().watch(a) if m == o else a for o, a in enumerate(arrays)))[n], Var)]
            gradient(lambda *a, n=n: parts(*a)[n], arrays, wrt=wrt)


@pytest.mark.parametrize("where", [where for where in OPS if where.startswith("encodings.")])
def test_a_spoilt_backward_of_an_encoding_is_found(where):
    """The tests above see every op that is an encoding's own: one whose gradients are wrong by a part in a thousand fails them."""
    op, right, name = OPS[where], OPS[where].backward, where.split(".")[-2]
    tests = [partial(test_gradient_of_every_parameter, first=0), *([test_gradient_of_every_part_of_a_score] if get(name).score else [])]
    tests += [test_gradient_of_every_choice] if len(every_choice(name)) > 1 else []
    object.__setattr__(op, "backward", lambda *given: tuple(None if g is None else 1.001 * g for g in right(*given)))
    try:
        with pytest.raises(Differs, match="tolerance"):
            [test(name) for test in tests]
    finally:
        object.__setattr__(op, "backward", right)


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("name", NAMES)
def test_causal(name):
    """Tokens from t on change no bit of the rows before t."""
    cfg, x = config(name), tokens(2, 9)
    p, full = weights(cfg), None
    full = run(cfg, p, x)
    for t in (1, 4, 8):
        other = x.copy()
        other[:, t:] = (other[:, t:] + 3) % 11
        same(run(cfg, p, other)[:, :t], full[:, :t], 0)
        assert abs(run(cfg, p, other)[:, t:] - full[:, t:]).max() > 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cuts", [(1,), (8,), (3, 4), tuple(range(1, 9))])
def test_decode(name, cuts):
    """Any split of the tokens over calls gives the rows of the whole, also from an offset and with rows at different places."""
    cfg, x = config(name), tokens(2, 9)
    p = weights(cfg)
    same(chunked(cfg, p, x, cuts), run(cfg, p, x), EXACT)
    rows = np.array([[0, 1, 2, 3, 4, 5, 6, 7, 8], [4, 5, 6, 7, 8, 9, 10, 11, 12]])
    for positions in (5 + np.arange(9), rows[None] if get(name).axes == 2 else rows):
        same(chunked(cfg, p, x, cuts, positions), run(cfg, p, x, positions=positions), EXACT)
    later = model.decode(cfg, p, x[:, :4], model.cache(cfg, 16), positions=3 + np.arange(4))[1]
    same(model.decode(cfg, p, x[:, 4:], later)[0], run(cfg, p, x, positions=3 + np.arange(9))[:, 4:], EXACT)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cuts", [(), (2, 5), (6,)])
def test_padding_and_packing(name, cuts):
    """Left padding and packed documents equal the documents alone, whole and decoded in pieces; what stands in padding has no say."""
    cfg = config(name)
    p, x = weights(cfg), tokens(2, 9)
    seg = np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
    got = chunked(cfg, p, x, cuts, seg=seg)
    same(got[:1, 3:], run(cfg, p, x[:1, 3:]), EXACT)
    for a, b in ((0, 2), (2, 7), (7, 9)):
        same(got[1:, a:b], run(cfg, p, x[1:, a:b]), EXACT)
    other = x.copy()
    other[0, :3] = 0
    same(run(cfg, p, other, seg=seg)[0, 3:], run(cfg, p, x, seg=seg)[0, 3:], EXACT)


@pytest.mark.parametrize("name", [name for name in NAMES if len(every_choice(name)) > 1])
def test_every_choice_packed_and_in_pieces(name):
    """What an option keeps of tokens is handed from call to call, and forgotten where a document ends."""
    x, seg = tokens(2, 9), np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
    for given in every_choice(name)[1:]:
        cfg = config(name, pe=((name, given),))
        p = weights(cfg)
        got = chunked(cfg, p, x, (2, 5, 6), seg=seg)
        same(got[:1, 3:], run(cfg, p, x[:1, 3:]), EXACT)
        for a, b in ((0, 2), (2, 7), (7, 9)):
            same(got[1:, a:b], run(cfg, p, x[1:, a:b]), EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_padding_in_backward(name):
    """The gradient of a padded row is that of the tokens alone; a row of padding only gives zeros, never NaN."""
    cfg, x = config(name), tokens(2, 7)
    p = weights(cfg)
    targets = tokens(2, 7, seed=1)

    def gradients(x, targets, **place):
        tape = Tape()
        leaves = tape.watch(p)
        y, _ = model.loss(cfg, leaves, x, targets, n=16, **place)
        found = tape.gradients(y, np.float64(0.7))
        most = max(abs(g).max() for g in found.values())  # beside it, what a softmax cannot see is rounding: a number added to a whole row
        return {n: np.where(abs(found[a]) < 1e-14 * most, 0, found[a]) for n, a in leaves.items()}

    seg = np.array([[0, 0, 3, 3, 3, 3, 3], [0] * 7])
    padded = gradients(x, np.where(seg == 0, -1, targets), seg=seg)
    same(padded, gradients(x[:1, 2:], targets[:1, 2:]), EXACT)
    nothing = gradients(x, np.full((2, 7), -1), seg=np.zeros((2, 7), int))
    same(nothing, {n: np.zeros_like(a) for n, a in p.items()}, 0)


@pytest.mark.parametrize("name", [n for n in NAMES if not get(n).mix])
def test_grouped_heads_are_repeated_heads(name):
    """G heads of keys and values serve H queries as H repeated ones would."""
    few, many = config(name, G=2, layers=1), config(name, G=6, layers=1)
    p, x = dict(weights(few)), tokens(2, 7)
    full = weights(many)
    for n, a in full.items():
        if p[n].shape != a.shape:
            heads = p[n].reshape(2, -1, *p[n].shape[1:]) if p[n].shape[0] != 2 else p[n].reshape(2, 1, *p[n].shape[1:])
            p[n] = np.repeat(heads, 3, 0).reshape(a.shape)
    same(run(many, p, x), run(few, dict(weights(few)), x), EXACT)


@pytest.mark.parametrize("name", NAMES)
def test_no_dependence_on_history(name):
    """Another length, base or batch in between changes no bit."""
    cfg, p, x = config(name), weights(config(name)), tokens(2, 9)
    before = run(cfg, p, x)
    for given in every_choice(name):
        other = config(name, pe=((name, given),), H=2, D=8, L=11)
        model.logits(other, weights(other, 1), tokens(3, 11))
    same(run(cfg, p, x), before, 0)


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_kept(name):
    """Float32 in, float32 out, in logits, cache and every gradient, and close to float64."""
    cfg, x = config(name), tokens(2, 7)
    wide = weights(cfg)
    p = frozen(wide, np.float32)
    y, memory = model.decode(cfg, p, x, model.cache(cfg, 16))
    same(y, run(cfg, wide, x).astype(np.float32), 2e-5)
    for layer in memory.layers:
        for a in [*(kept.rows for key, kept in layer.items() if key != "state"), *layer["state"].values()]:
            assert a.dtype == np.float32
    tape = Tape()
    leaves = tape.watch(p)
    loss, _ = model.loss(cfg, leaves, x, x)
    for leaf, g in tape.gradients(loss, np.float32(1)).items():
        assert g.dtype == np.float32
        assert g.shape == leaf.shape


@pytest.mark.parametrize("name", NAMES)
def test_on_the_fake_cupy(name, cupy):
    """The same text runs where arrays are another library's, whole, padded and in pieces, forward and backward, to the same values."""
    cfg, x = config(name), tokens(2, 7)
    p = weights(cfg)
    be = backends.get("cupy")
    there = {n: cupy.asarray(a) for n, a in p.items()}
    for seg in (None, np.array([[0, 0, 1, 1, 1, 1, 1], [1, 1, 1, 2, 2, 2, 2]])):
        tape, tape_there = Tape(), Tape()
        leaves, leaves_there = tape.watch(p), tape_there.watch(there)
        y, _ = model.loss(cfg, leaves, x, x, seg=seg)
        y_there, _ = model.loss(cfg, leaves_there, x, x, be=be, seg=seg)
        same(y_there.value, cupy.asarray(y.value), 1e-12)
        g, g_there = tape.gradients(y, np.float64(0.7)), tape_there.gradients(y_there, cupy.asarray(0.7))
        same({n: g_there[a] for n, a in leaves_there.items()}, {n: cupy.asarray(g[a]) for n, a in leaves.items()}, 1e-12)
    memory = model.decode(cfg, there, x[:, :4], model.cache(cfg, 16), be=be)[1]
    same(model.decode(cfg, there, x[:, 4:], memory, be=be)[0], cupy.asarray(run(cfg, p, x)[:, 4:]), EXACT)


@pytest.mark.parametrize("name", of("real_positions"))
def test_real_positions_are_claimed_and_work(name):
    """Half steps are places like any other, and whole numbers given as reals are the whole numbers."""
    cfg, p, x = config(name), weights(config(name)), tokens(2, 7)
    same(run(cfg, p, x, positions=np.arange(7.0)), run(cfg, p, x), EXACT)
    same(chunked(cfg, p, x, (3,), REAL), run(cfg, p, x, positions=REAL), EXACT)


@pytest.mark.parametrize("name", without("real_positions"))
def test_real_positions_are_not_claimed_and_refused(name):
    """In words."""
    cfg, p, x = config(name), weights(config(name)), tokens(2, 7)
    with pytest.raises(Misuse, match=f"{name}: positions must be whole numbers"):
        run(cfg, p, x, positions=REAL)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        *(("xpos", option, -0.5) for option in ("base", "scale_base", "gamma")),
        *(("mrope", "base", 0.0), ("axial", "base", -2.0), ("axial", "width", 0), ("axial", "max_freq", -3.0)),
        *(("rope", "base", -1.0), ("sinusoidal", "base", 0.0), ("retnet", "base", -2.0), ("retnet", "eps", 0.0), ("retnet", "chunk", 0)),
        *(
            ("retnet", "value_factor", 0),
            ("t5", "buckets", -4),
            ("t5", "buckets", 31),
            ("t5", "max_distance", 16),
            ("t5", "max_distance", 10**30),
            ("shaw", "max_distance", 0),
        ),
        *(("path", "rank", 0), ("path", "kernel", 0)),
        *(("pyramid", "local", 0), ("pyramid", "base", -1.0)),
        *(("transformer_xl", "clamp_len", 0), ("transformer_xl", "base", -1.0), ("cope", "npos", 0)),
        *(("pi", "base", 0.0), ("pi", "factor", 0.0), ("ntk", "base", -1.0), ("ntk", "factor", -4.0), ("ntk", "mixed_b", 0.5)),
        *(("dynamic_ntk", "base", 0.0), ("dynamic_ntk", "factor", 0.0), ("dynamic_ntk", "original", 0)),
        *(("ntk_by_parts", "base", 1.0), ("ntk_by_parts", "factor", 0.0), ("ntk_by_parts", "original", -5)),
        *(("ntk_by_parts", "beta", (0.75, 1.25)), ("ntk_by_parts", "beta", (1.0, 0.0)), ("ntk_by_parts", "gamma", (16.0,))),
        *(("yarn", "base", 1.0), ("yarn", "factor", -1.0), ("yarn", "original", 0), ("yarn", "beta_fast", 0.5), ("yarn", "beta_slow", 0.0)),
        *(("yarn", "attention_factor", 0.0), ("yarn", "mscale", -1.0), ("yarn", "mscale_all_dim", -0.5)),
        *(("longrope", "base", 0.5), ("longrope", "factor", 0.0), ("longrope", "original", 1), ("longrope", "start_tokens", -1)),
        *(("longrope", "attention_factor", 0.0), ("longrope", "short_mscale", -1.0), ("longrope", "long_mscale", 0.0)),
        *(("llama3", "base", 0.0), ("llama3", "factor", 0.0), ("llama3", "original", 0), ("llama3", "low_freq_factor", 0.0)),
        *(("llama3", "low_freq_factor", 4.5), ("llama3", "high_freq_factor", 0.5)),
        *(("p_rope", "base", 0.0), ("p_rope", "factor", 0.0), ("p_rope", "fraction", -0.25), ("p_rope", "fraction", 1.25)),
        *(("rwkv6", "mix_rank", 0), ("rwkv6", "decay_rank", 0), ("rwkv6", "chunk", 0), ("rwkv6", "eps", 0.0)),
        *(("rwkv7", f"{what}_rank", 0) for what in ("decay", "a", "v", "gate")),
        *(("rwkv7", "chunk", 0), ("rwkv7", "chunk", 65), ("rwkv7", "eps", -1.0), ("rwkv7", "unit_eps", 0.0)),
        *(("s4d", option, 0) for option in ("chunk", "state_size", "dt_min", "dt_max")),
        *(("s4d", "state_size", 7), ("s4d", "dt_max", -0.5)),
        *(("s4d", "dt_min", 3.0), ("mamba", "dt_min", 3.0)),
        *(("mamba", option, 0) for option in ("chunk", "state_size", "expand", "kernel", "rank", "dt_min", "dt_max")),
        *(("sandwich", "width", 7), ("sandwich", "width", 0), ("sandwich", "base", -1.0), ("dynamic_bias", "width", 0), ("dynamic_bias", "depth", 0)),
        *(("learned_bias", "max_distance", 0), ("pi", "original", 0), ("yarn", "extrapolation_factor", -0.5)),
        *(("ntk_by_parts", "ntk_factor", -1.0), ("ntk_by_parts", "extrapolation_factor", -2.0)),
        *(("dape", "width", 0), ("fire", "width", 0), ("fire", "threshold", 0.0), ("fire", "eps", -1.0)),
    ],
)
def test_options_that_make_no_sense(name, option, value):
    """Refused in words that name the encoding and the number."""

    def use():
        cfg = config(name, pe=((name, {option: value}),))
        return run(cfg, model.init(cfg), tokens(1, 3))

    with pytest.raises(Misuse, match=rf"^{name}: .*{re.escape(str(value))}"):
        use()


EACH_LAYER = {"cope": {"k.weight"}, "transformer_xl": {"r.weight"}}  # what layers have of their own whatever across_layers says


@pytest.mark.parametrize("name", [name for name in NAMES if "across_layers" in options(get(name))])
def test_layers_share_their_parameters_or_have_their_own(name):
    """As across_layers says, all of them, with every choice of the other options: by the names on disk."""
    more = {"slopes": "learned"} if "slopes" in options(get(name)) else {}
    for given in every_choice(name):
        for which in ("shared", "own"):
            cfg = config(name, pe=((name, {**more, **given, "across_layers": which}),))
            parts = [n for n in model.init(cfg) if "pe." in n]
            own = {n.partition(".pe.")[2] for n in parts if not n.startswith("pe.")}
            assert any(n.startswith("pe.") for n in parts) == (which == "shared")
            assert own <= EACH_LAYER.get(name, set()) if which == "shared" else own


def test_unit_rows_do_not_go_by_their_length(rng):
    """learned, unit: each is 1 long, whatever stands in the table, which gets no gradient along its rows."""
    cfg, i = config("learned", pe=(("learned", {"unit": True}),)), np.array([0, 3, 3, 15])
    table = 5 * rng.standard_normal((16, 30))
    rows = cfg.encoding(0).embed({"table": table}, i)
    same((rows**2).sum(-1), np.ones(4), 1e-14)
    same(cfg.encoding(0).embed({"table": 1e-5 * table}, i), rows, 1e-12)
    assert not cfg.encoding(0).embed({"table": 0 * table}, i).any()
    tape = Tape()
    leaf = tape.watch(table)
    y = cfg.encoding(0).embed({"table": leaf}, i)
    along = (tape.gradients(y, rng.standard_normal(y.shape))[leaf] * table).sum(-1)
    assert abs(along).max() < 1e-13


def test_without_position_and_mask_tokens_are_a_set():
    """A two-sided model without position gives permuted rows for permuted tokens."""
    cfg, x, order = config("none", causal=False), tokens(1, 7), np.array([3, 0, 6, 1, 2, 5, 4])
    p = weights(cfg)
    same(run(cfg, p, x[:, order]), run(cfg, p, x)[:, order], EXACT)
