"""What every encoding promises, generated from the registry: the file has a loop, the loop agrees,
gradients are right, laws of all hold.
"""

import re
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
from check import Differs, same
from generated import (
    EXACT,
    NAMES,
    config,
    every_choice,
    filling,
    layer_input,
    lists,
    logits,
    loop,
    subject,
    tokens,
    weights,
)
from registry import ops
from test_combination import Combination

from peref import backends, model
from peref.encodings import LAWS, claims_of, files, get, options
from peref.encodings.own_file import check_functions
from peref.errors import Misuse
from peref.laws import everywhere, loops
from peref.tape import Tape

OPS, TESTS = ops(), Path(__file__).parent


# ---------------------------------------------------------------- files


def test_names_are_the_files():
    """The folders are the hooks, the files are the encodings, and the hook of each is that of its folder."""
    assert {path.stem for path in Path(model.__file__).parent.glob("encodings/*/*.py")} - {"__init__"} | {
        "none"
    } == set(NAMES)
    for name, where in files().items():
        assert get(name).hook == ("" if name == "none" else where.split(".")[-2])


@pytest.mark.parametrize("name", NAMES)
def test_every_file_has_its_loop_and_says_what_it_is(name):
    """A witness of the same name, a docstring with the paper, a formula, known facts, options that agree,
    claims that exist.
    """
    assert (TESTS / "loops" / f"{name}.py").is_file(), (
        f"write tests/loops/{name}.py; CONTRIBUTING.md says how"
    )
    module = import_module(files()[name])
    encoding = module.ENCODING
    assert encoding.paper in module.__doc__, f"say {encoding.paper} in the docstring of {module.__file__}"
    assert encoding.formula, f"{name} has no formula; give Encoding(paper, formula, ...) one"
    unknown = claims_of(encoding) - set(LAWS)
    assert not unknown, f"{name} claims {unknown}; the laws are {', '.join(LAWS)}"
    check_functions(encoding, name)
    for line in Path(module.__file__).read_text().splitlines():
        assert not line.startswith(("from peref.encodings.", "import peref.encodings.")), (
            "encodings do not import one another"
        )


# as long as the width says: test_scalings.py, test_axes.py
LISTS = {"longrope.short_factor", "longrope.long_factor", "mrope.sections"}


@pytest.mark.parametrize("name", NAMES)
def test_every_option_is_tried_at_another_value(name):
    """And every word that it may be: every_choice leaves none out, so that loops, gradients and laws below
    are asked with each.
    """
    choices = every_choice(name)
    for option, (default, kind) in options(get(name)).items():
        tried = {given[option] for given in choices if option in given} | {default}
        assert len(tried) > 1 or f"{name}.{option}" in LISTS, option
        assert isinstance(default, bool) or tried >= set(
            get_args(kind) if get_origin(kind) is Literal else ()
        ), option


def test_nothing_branches_on_an_encoding_s_name():
    """Only an encoding's own file knows it; a comparison with its name elsewhere would be a defect."""
    branch = re.compile(rf"(==|!=|\bin\b|\bcase\b) *[(\[{{]? *['\"]({'|'.join(set(NAMES) - {'none'})})['\"]")
    for path in Path(model.__file__).parent.rglob("*.py"):
        assert not branch.search(path.read_text()), path


@pytest.mark.parametrize("name", filling("embed"))
def test_embed_is_the_loop(name):
    """Every option value, odd and even widths, positions in any order."""
    loops.loop(subject(name))


@pytest.mark.parametrize("name", filling("rotate"))
def test_rotate_is_the_loop(name):
    """Angles and gains in float64, for any positions, made for any length, widths below the head's too."""
    loops.loop(subject(name))
    assert all(4 in loops.widths(subject(name), given) for given in every_choice(name))


@pytest.mark.parametrize("name", filling("bias"))
def test_bias_is_the_loop(name):
    """Past and, where it is two-sided, future; every option value; heads that are no power of two."""
    loops.loop(subject(name))


@pytest.mark.parametrize("name", filling("score"))
def test_score_is_the_loop(name):
    """Term, row and column add up to what the loop has wherever a query looks."""
    loops.loop(subject(name))


@pytest.mark.parametrize("name", filling("attend"))
def test_attend_is_the_loop(name):
    """Features and attention together, from the layer's input on."""
    loops.loop(subject(name))


@pytest.mark.parametrize("name", filling("mix"))
def test_mix_is_the_loop(name):
    """The whole layer, every option."""
    loops.loop(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_scale_is_the_loop(name):
    """Every option; 1 / sqrt(D) where the loop says nothing of it."""
    loops.scale(subject(name))


def test_forgetting_with_a_constant_gate_is_a_linear_bias():
    """log f = -m gives -m d: what ALiBi adds."""
    pe = get("forgetting")
    _, row, column = pe.score(
        model.PLAIN, {}, None, None, {"log_f": np.full((1, 1, 7), -0.25)}, model.At.of(7)
    )
    d = np.arange(7)[:, None] - np.arange(7)
    same((row + column)[0, 0], -0.25 * d, 1e-15)


def test_path_without_reflections_is_plain_attention_and_with_one_twice_too(rng):
    """beta 0 leaves q k; beta 2 with one w reflects, so keys an even number of tokens away are as they
    were.
    """
    scores = import_module(files()["path"]).scores
    q, k = rng.standard_normal((1, 1, 70, 4)), rng.standard_normal((1, 1, 70, 4))
    w = np.broadcast_to(np.array([1.0, 0, 0, 0]), (1, 1, 70, 4))
    low = np.tril(np.ones((70, 70), bool))
    same(
        scores(q, k, w, np.zeros((1, 1, 70)), scale=1.0)[0, 0][low],
        (q @ k.swapaxes(-1, -2))[0, 0][low],
        1e-13,
    )
    even = low & ((np.arange(70)[:, None] - np.arange(70)) % 2 == 0)
    same(
        scores(q, k, w, np.full((1, 1, 70), 2.0), scale=1.0)[0, 0][even],
        (q @ k.swapaxes(-1, -2))[0, 0][even],
        1e-12,
    )


@pytest.mark.parametrize("form", ["parallel", "recurrent"])
@pytest.mark.parametrize("chunk", [1, 3, 64])
def test_retnet_is_both_forms_of_the_paper(form, chunk):
    """Whatever the number of tokens that are taken at once."""
    cfg = config("retnet", pe=(("retnet", {"chunk": chunk}),))
    p, (x, *_) = model.of_encoding(cfg, weights(cfg), 0), layer_input(cfg, 7)
    got, _ = cfg.encoding(0).mix(model.PLAIN, p, x, model.At.of(7), {}, {})
    same(got[1], np.array(loop(cfg, form=form)(lists(p), lists(x[1]), [*range(7)])), 1e-12)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_every_parameter(name):
    """To 1e-7 in float64, with a random cotangent on the logits."""
    everywhere.gradients(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_gradient_behind_a_cache(name):
    """Of those that the encoding reaches, when the first tokens are already in the cache."""
    everywhere.gradients_later(subject(name))


@pytest.mark.parametrize("name", [name for name in NAMES if len(every_choice(name)) > 1])
def test_gradient_of_every_choice(name):
    """Every option at each value it may have, one layer behind a cache: of what the encoding reaches."""
    everywhere.gradients_of_choices(subject(name))


@pytest.mark.parametrize(
    "name", [n for n in filling("embed", "rotate", "bias", "score") if get(n).score or subject(n).learns]
)
def test_gradient_of_every_table_and_part_of_a_score(name):
    """Each with a cotangent of its own: the softmax cannot see a number added to a whole row, and so hides
    its gradient.
    """
    everywhere.gradients_inside(subject(name))


@pytest.mark.parametrize("where", [where for where in OPS if where.startswith("encodings.")])
def test_a_spoilt_backward_of_an_encoding_is_found(where):
    """The tests above see every op that is an encoding's own: one whose gradients are wrong by a part in a
    thousand fails them.
    """
    op, right, name = OPS[where], OPS[where].backward, where.split(".")[-2]
    tests = [test_gradient_of_every_parameter]
    if name in filling("embed", "rotate", "bias", "score"):
        tests += [test_gradient_of_every_table_and_part_of_a_score]
    tests += [test_gradient_of_every_choice] if len(every_choice(name)) > 1 else []
    if get(name).score and "table" in signature(get(name).score).parameters:  # of a bias beside it
        bias = next(one for one in filling("bias") if subject(one).learns)
        tests += [lambda name: everywhere.gradients(Combination(f"{bias}+{name}"))]
    object.__setattr__(
        op, "backward", lambda *given: tuple(None if g is None else 1.001 * g for g in right(*given))
    )
    try:
        with pytest.raises(Differs, match="tolerance"):
            [test(name) for test in tests]
    finally:
        object.__setattr__(op, "backward", right)


# ---------------------------------------------------------------- laws


@pytest.mark.parametrize("name", NAMES)
def test_causal(name):
    """Tokens from t on change no bit of the rows before t."""
    everywhere.causal(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_decode(name):
    """Any split of the tokens over calls gives the rows of the whole, also from an offset and with rows at
    different places.
    """
    everywhere.decoding(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_padding_and_packing(name):
    """Left padding and packed documents equal the documents alone, whole and decoded in pieces; what
    stands in padding has no say.
    """
    everywhere.packing(subject(name))


@pytest.mark.parametrize("name", [name for name in NAMES if len(every_choice(name)) > 1])
def test_every_choice_packed_and_in_pieces(name):
    """What an option keeps of tokens is handed from call to call, and forgotten where a document ends."""
    everywhere.packing_of_choices(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_padding_in_backward(name):
    """The gradient of a padded row is that of the tokens alone; a row of padding only gives zeros, never
    NaN.
    """
    everywhere.padding_backward(subject(name))


@pytest.mark.parametrize("name", filling("score", "attend"))
def test_a_row_that_sees_nothing_is_zero(name):
    """Padding, whatever stands in it: exactly 0 out of attention, nothing back to q, k and v, and the rows
    beside are as they are alone.
    """
    everywhere.blind_rows(subject(name))


@pytest.mark.parametrize("name", [n for n in NAMES if not get(n).mix])
def test_grouped_heads_are_repeated_heads(name):
    """G heads of keys and values serve H queries as H repeated ones would."""
    everywhere.grouped_heads(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_no_dependence_on_history(name):
    """Another length, base or batch in between changes no bit."""
    everywhere.history(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_dtype_is_kept(name):
    """Float32 in, float32 out, in logits, cache and every gradient, and close to float64."""
    everywhere.dtype(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_positions_change_something(name):
    """An encoding that looks at none says axes=None, and gives the same wherever tokens are."""
    everywhere.positions(subject(name))


@pytest.mark.parametrize("name", NAMES)
def test_on_the_fake_cupy(name, cupy):
    """The same text runs where arrays are another library's, whole, padded and in pieces, forward and
    backward, to the same values.
    """
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
        same(
            {n: g_there[a] for n, a in leaves_there.items()},
            {n: cupy.asarray(g[a]) for n, a in leaves.items()},
            1e-12,
        )
    memory = model.decode(cfg, there, x[:, :4], model.cache(cfg, 16), be=be)[1]
    same(model.decode(cfg, there, x[:, 4:], memory, be=be)[0], cupy.asarray(logits(cfg, p, x)[:, 4:]), EXACT)


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        *(("xpos", option, -0.5) for option in ("base", "scale_base", "gamma")),
        *(
            ("mrope", "base", 0.0),
            ("axial", "base", -2.0),
            ("axial", "width", 0),
            ("axial", "max_freq", -3.0),
        ),
        *(
            ("rope", "base", -1.0),
            ("sinusoidal", "base", 0.0),
            ("retnet", "base", -2.0),
            ("retnet", "eps", 0.0),
            ("retnet", "chunk", 0),
        ),
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
        *(
            ("pi", "base", 0.0),
            ("pi", "factor", 0.0),
            ("ntk", "base", -1.0),
            ("ntk", "factor", -4.0),
            ("ntk", "mixed_b", 0.5),
        ),
        *(("dynamic_ntk", "base", 0.0), ("dynamic_ntk", "factor", 0.0), ("dynamic_ntk", "original", 0)),
        *(("ntk_by_parts", "base", 1.0), ("ntk_by_parts", "factor", 0.0), ("ntk_by_parts", "original", -5)),
        *(
            ("ntk_by_parts", "beta", (0.75, 1.25)),
            ("ntk_by_parts", "beta", (1.0, 0.0)),
            ("ntk_by_parts", "gamma", (16.0,)),
        ),
        *(
            ("yarn", "base", 1.0),
            ("yarn", "factor", -1.0),
            ("yarn", "original", 0),
            ("yarn", "beta_fast", 0.5),
            ("yarn", "beta_slow", 0.0),
        ),
        *(("yarn", "attention_factor", 0.0), ("yarn", "mscale", -1.0), ("yarn", "mscale_all_dim", -0.5)),
        *(
            ("longrope", "base", 0.5),
            ("longrope", "factor", 0.0),
            ("longrope", "original", 1),
            ("longrope", "start_tokens", -1),
        ),
        *(
            ("longrope", "attention_factor", 0.0),
            ("longrope", "short_mscale", -1.0),
            ("longrope", "long_mscale", 0.0),
        ),
        *(
            ("llama3", "base", 0.0),
            ("llama3", "factor", 0.0),
            ("llama3", "original", 0),
            ("llama3", "low_freq_factor", 0.0),
        ),
        *(("llama3", "low_freq_factor", 4.5), ("llama3", "high_freq_factor", 0.5)),
        *(
            ("p_rope", "base", 0.0),
            ("p_rope", "factor", 0.0),
            ("p_rope", "fraction", -0.25),
            ("p_rope", "fraction", 1.25),
        ),
        *(("rwkv6", "mix_rank", 0), ("rwkv6", "decay_rank", 0), ("rwkv6", "chunk", 0), ("rwkv6", "eps", 0.0)),
        *(("rwkv7", f"{what}_rank", 0) for what in ("decay", "a", "v", "gate")),
        *(("rwkv7", "chunk", 0), ("rwkv7", "chunk", 65), ("rwkv7", "eps", -1.0), ("rwkv7", "unit_eps", 0.0)),
        *(("s4d", option, 0) for option in ("chunk", "state_size", "dt_min", "dt_max")),
        *(("s4d", "state_size", 7), ("s4d", "dt_max", -0.5)),
        *(("s4d", "dt_min", 3.0), ("mamba", "dt_min", 3.0)),
        *(
            ("mamba", option, 0)
            for option in ("chunk", "state_size", "expand", "kernel", "rank", "dt_min", "dt_max")
        ),
        *(
            ("sandwich", "width", 7),
            ("sandwich", "width", 0),
            ("sandwich", "base", -1.0),
            ("dynamic_bias", "width", 0),
            ("dynamic_bias", "depth", 0),
        ),
        *(("learned_bias", "max_distance", 0), ("pi", "original", 0), ("yarn", "extrapolation_factor", -0.5)),
        *(("ntk_by_parts", "ntk_factor", -1.0), ("ntk_by_parts", "extrapolation_factor", -2.0)),
        *(("dape", "width", 0), ("fire", "width", 0), ("fire", "threshold", 0.0), ("fire", "eps", -1.0)),
    ],
)
def test_options_that_make_no_sense(name, option, value):
    """Refused in words that name the encoding and the number."""

    def use():
        cfg = config(name, pe=((name, {option: value}),))
        return logits(cfg, model.init(cfg), tokens(1, 3))

    with pytest.raises(Misuse, match=rf"^{name}: .*{re.escape(str(value))}"):
        use()


# what layers have of their own whatever across_layers says
EACH_LAYER = {"cope": {"k.weight"}, "transformer_xl": {"r.weight"}}


@pytest.mark.parametrize("name", [name for name in NAMES if "across_layers" in options(get(name))])
def test_layers_share_their_parameters_or_have_their_own(name):
    """As across_layers says, all of them, with every choice of the other options: by the names on disk."""
    more = {"slopes": "learned"} if "slopes" in options(get(name)) else {}
    for given in every_choice(name):
        for which in ("shared", "own"):
            cfg = config(name, pe=((name, {**more, **given, "across_layers": which}),))
            parts = [n for n in model.init(cfg) if "pe." in n]
            own = {n.partition(".pe.")[2] for n in parts if not n.startswith("pe.")}
            shared = any(n.startswith("pe.") for n in parts)
            assert shared == (which == "shared"), f"across_layers={which}, {given}: {name} shares {parts}"
            left = own - EACH_LAYER.get(name, set())
            assert not left if shared else own, (
                f"across_layers={which}, {given}: name {left} in shared of {name}"
            )


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
    same(logits(cfg, p, x[:, order]), logits(cfg, p, x)[:, order], EXACT)
