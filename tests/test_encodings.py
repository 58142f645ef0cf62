"""What every encoding promises, generated from the registry: the file has a loop, the loop agrees, and the laws hold or really fail."""

import re
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from check import Differs, frozen, gradient, same
from loops import witness
from registry import ops

from peref import model
from peref.config import Config
from peref.encodings import FACTS, FUNCTIONS, LAWS, files, fitting, get, names, options, settings
from peref.errors import Misuse
from peref.ops.wkv import wkv6, wkv7
from peref.tape import Tape, Var

NAMES, OPS = names(), ops()
TESTS = Path(__file__).parent
EXACT = 1e-10


def of(law):
    return [name for name in NAMES if law in get(name).claims]


def without(law):
    return [name for name in NAMES if law not in get(name).claims]


def config(name, **given):
    """A small model whose sizes are all different; an attention layer groups two heads over each key."""
    sizes = {"H": 6, "C": 30, "D": 4, "F": 14, "V": 11, "L": 16, "layers": 2}
    return Config(**{"pe": ((name, {}),), **sizes, **given})


def weights(cfg, seed=0):
    """Parameters with every table, bias and scale away from where it starts, so that none hides: read-only."""
    rng = np.random.default_rng(seed)
    p = model.init(cfg, seed, np.float64)
    return frozen({name: a + 0.3 * rng.standard_normal(a.shape) for name, a in p.items()})


def tokens(B, T, seed=0):
    return np.random.default_rng([seed, B, T]).integers(0, 11, (B, T))


def run(cfg, p, x, **place):
    return model.logits(cfg, p, x, n=16, **place)


def chunked(cfg, p, x, cuts, positions=None, seg=None):
    """The logits of x, decoded in pieces that end at `cuts`."""
    memory, rows, start = model.cache(cfg, 16), [], 0
    for stop in (*cuts, x.shape[1]):
        cut = slice(start, stop)
        here = None if positions is None else positions[..., cut]
        y, memory = model.decode(cfg, p, x[:, cut], memory, positions=here, seg=None if seg is None else seg[:, cut])
        rows.append(y)
        start = stop
    return np.concatenate(rows, 1)


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


def test_nothing_branches_on_an_encoding_s_name():
    """Only an encoding's own file knows it; a comparison with its name elsewhere would be a defect."""
    branch = re.compile(rf"(==|!=|\bin\b|\bcase\b) *[(\[{{]? *['\"]({'|'.join(set(NAMES) - {'none'})})['\"]")
    for path in Path(model.__file__).parent.rglob("*.py"):
        assert not branch.search(path.read_text()), path


# ---------------------------------------------------------------- witnesses

LONG = 37  # longer than the distance at which shaw clips
POSITIONS = [np.arange(7), np.array([5, 0, 3, 3, 11, 2, 15])]
REAL = np.array([0.0, 0.5, -1.25, 3.0, 3.0, 14.5, 7.0])


def filling(*hooks):
    """Each encoding that fills one of these hooks."""
    return [name for name in NAMES if get(name).hook in hooks]


TOGETHER = {  # settings of options that have no value to start from, or none that means anything alone
    "dynamic_ntk": [{"factor": 2.0, "form": "static"}, {"original": 5, "factor": 3.0}],
    "llama3": [{"original": 64, "base": 100.0}],
    "longrope": [
        *({"original": 8}, {"original": 8, "base": 2.0}, {"factor": 0.5}, {"start_tokens": 4, "original": 8}, {"start_tokens": 4, "factor": 1.0}),
        *({"attention_factor": 1.5}, {"short_mscale": 1.5, "attention_factor": 0.5}, {"long_mscale": 1.5, "attention_factor": 0.5, "original": 8}),
    ],
    "ntk": [{"form": "mixed", "mixed_b": b} for b in (0.0, 1.0, 0.25)],
    "ntk_by_parts": [{"original": 64, "base": 100.0}, {"beta": (3.0, 0.5), "gamma": (8.0, 1.5)}],
    "yarn": [
        *({"original": 64, "base": 10.0}, {"original": 64, "base": 10.0, "ramp": "paper"}, {"original": 64, "base": 10.0, "truncate": False}),
        *(
            {"factor": 0.5},
            {"factor": 1.0},
            {"original": 1048576},
            {"original": 4},
            {"attention_factor": 1.0},
            {"attention_factor": 1.5, "mscale": 2.0},
        ),
        *({"mscale": 0.707, "mscale_all_dim": m, "reading": r} for m in (1.0, 0.0, None) for r in ("huggingface", "deepseek")),
        {"mscale_all_dim": 0.5, "reading": "deepseek"},
    ],
}


def every_choice(name):
    """Each option at its default and at each other value it may have, and those of TOGETHER."""
    alone = [{option: value} for option, (default, kind) in options(get(name)).items() for value in beside(default, kind)]
    return [{}, *alone, *TOGETHER.get(name, [])]


def beside(default, kind):
    """Values that an option may have: all of a choice, twice a number, half of a share, which ends at 1."""
    if isinstance(default, bool):
        return (not default,)
    if isinstance(default, str):
        return getattr(kind, "__args__", ())
    if type(default) in (int, float):
        return (default / 2 if 0.5 < default < 1 else 2 * default,)
    return ()


def every_way(name):
    """Each choice of the options, causal and, where that is claimed, two-sided."""
    return [(given, causal) for given in every_choice(name) for causal in ((True, False) if name in of("two_sided") else (True,))]


def everywhere(name, *more):
    """Positions in order, out of order, and real ones where they are claimed."""
    return [*POSITIONS, *more, *([REAL] if name in of("real_positions") else [])]


def everywhere_long(name):
    """As everywhere(), for LONG tokens."""
    out_of_order = np.random.default_rng(0).integers(0, 60, LONG)
    return [np.arange(LONG), out_of_order, *([out_of_order / 4 - 5] if name in of("real_positions") else [])]


def loop(cfg, **more):
    """The scalar loop of the encoding of `cfg`, with the facts of the model and the options that it asks for."""
    name, given = cfg.pe[0]
    facts = {letter: getattr(cfg, letter) for letter in ("H", "G", "D", "R", "C", "L", "causal")}
    return witness(name, get(name).hook, **facts, **given, **more)


def lists(x):
    """Arrays, also in a dict, as lists of plain numbers."""
    return {n: a.tolist() for n, a in x.items()} if isinstance(x, dict) else x.tolist()


def place_of(cfg, i):
    return model.At.of(len(i), positions=i, causal=cfg.causal)


def layer_input(cfg, T, B=2):
    """x, q, k and v of a layer."""
    rng = np.random.default_rng([B, T])
    heads = [rng.standard_normal((B, h, T, cfg.D)) for h in (cfg.H, cfg.G or cfg.H, cfg.G or cfg.H)]
    return rng.standard_normal((B, T, cfg.C)), *heads


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


def widths(name, given):
    """The rotary widths up to 8 that it takes; any other it refuses in words that name the width."""
    found = []
    for R in (2, 4, 6, 8):
        try:
            cfg = config(name, pe=((name, given),), D=8, R=R)
            cfg.encoding(0).rotate(model.of_encoding(cfg, weights(cfg), 0), np.arange(3), 16)
            found.append(R)
        except Misuse as refusal:
            if not re.match(rf"{name}: (the )?rotary width is {R}; expected", str(refusal)):
                raise
    assert 4 in found
    return found


@pytest.mark.parametrize("name", filling("rotate"))
def test_rotate_is_the_loop(name):
    """Angles and gains in float64, for any positions, made for any length, widths below the head's too."""
    for given in every_choice(name):
        for R, n in product(widths(name, given), (16, 17, 50)):
            cfg = config(name, pe=((name, given),), D=8, R=R)
            p = model.of_encoding(cfg, weights(cfg), 0)
            for i in everywhere(name, *([np.array([131071, 1048575])] if name in of("any_length") else [])):
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
    """The first layer of its own, wherever that stands in a cycle, leaves them and has no gate for them; the later ones are the loop with them."""
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
    same(got[1], np.array(witness("rwkv7", "mix", **facts, v_first=lists(given[1]))(lists(of_layer[4]), lists(x[1]), [])), 1e-12)


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
    be = replace(model.PLAIN, place=lambda thing: thing.moved(cupy.asarray) if isinstance(thing, model.At) else cupy.asarray(thing))
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


# ---------------------------------------------------------------- laws that are claimed


@pytest.mark.parametrize("name", of("shift"))
def test_shift_is_claimed_and_holds(name):
    """Positions 1000 further on give the same logits."""
    cfg, p, x = config(name), weights(config(name)), tokens(2, 7)
    same(run(cfg, p, x, positions=1000 + np.arange(7)), run(cfg, p, x), EXACT)


@pytest.mark.parametrize("name", without("shift"))
def test_shift_is_not_claimed_and_fails(name):
    """An encoding that does not claim it would be hiding a law if it held. Far away, where there is a place, for some hide it up to there."""
    cfg = config(name, L=64)
    p, x = weights(cfg), tokens(2, 7)
    by = 1003 if name in of("any_length") else 13
    assert abs(run(cfg, p, x, positions=by + np.arange(7)) - run(cfg, p, x)).max() > 1e-6


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


@pytest.mark.parametrize("name", without("two_sided"))
def test_two_sided_is_not_claimed_and_refused(name):
    """Config says so."""
    with pytest.raises(Misuse, match=f"{name} reads only the past"):
        config(name, causal=False)


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


@pytest.mark.parametrize("name", of("any_length"))
def test_any_length_is_claimed_and_works(name):
    """Four times the length trained for gives finite logits."""
    cfg, x = config(name), tokens(1, 64)
    assert np.isfinite(model.logits(cfg, weights(cfg), x)).all()


@pytest.mark.parametrize("name", without("any_length"))
def test_any_length_is_not_claimed_and_refused(name):
    """Up to where it ends all is well, whole and in decoding; one further is refused, and Config knows where that is."""
    cfg, x = config(name), tokens(1, 2)
    p, (end, who) = weights(cfg), cfg.ends(np.float64)
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
    features = 2 if get(name).features else 0  # features may look back themselves
    other[:, 0] = (other[:, 0] + 3) % 11
    change = abs(run(cfg, p, other) - run(cfg, p, x)).max((0, 2))
    assert (change[:3] > 1e-9).all()
    assert (change[3 + features :] < 1e-13).all()
    same(chunked(cfg, p, x, (2, 5, 6)), run(cfg, p, x), EXACT)
    gradient(lambda *a: run(cfg, dict(zip(p, a, strict=True)), x), list(p.values()))


@pytest.mark.parametrize("name", without("window"))
def test_window_is_not_claimed_and_refused(name):
    """Config says so."""
    with pytest.raises(Misuse, match=f"{name} has no attention that a window could limit"):
        config(name, window=3)


# ---------------------------------------------------------------- positions of several axes


def of_axes(several):
    """Each encoding that tells several axes apart, or that does not."""
    return [name for name in NAMES if (get(name).axes not in (None, 1)) == several]


def image(A, B=2, T=9):
    """Positions [A,B,T] as a prompt with an image has them: text, patches that share numbers and go on, text again; each row elsewhere."""
    i = np.broadcast_to(np.arange(T), (A, B, T)).copy()
    for a in range(A):
        i[a, :, 2:7] = 2 + (np.arange(5) // (a + 1)) % (a + 2)
    i[:, :, 7:] += 3
    i[:, 1] += 4
    return i


@pytest.mark.parametrize("name", of_axes(True))
def test_axes_turn_as_in_the_loop(name):
    """Angles at whole and real places of all axes, the same for every sequence and each its own; every option value."""
    A = get(name).axes
    for given in every_choice(name):
        for R in (4, 12):
            cfg = config(name, pe=((name, given),), D=12, R=R)
            for i in (image(A), image(A) * 1.25 - 3):
                got, *gains = cfg.encoding(0).rotate({}, i, 16)
                want = [loop(cfg)({}, i[:, b].tolist(), 16)[0] for b in range(2)]
                same(got, np.array(want), 1e-14)
                assert gains == [None, None]


@pytest.mark.parametrize("name", of_axes(True))
@pytest.mark.parametrize("cuts", [(2,), (4,), (2, 7), tuple(range(1, 9))])
def test_axes_in_pieces(name, cuts):
    """Decoding in any pieces, also inside the image, gives the rows of the whole; [A,T] and [A,1,T] are the same for every sequence."""
    cfg, x = config(name), tokens(3, 9)
    p, i = weights(cfg), image(get(name).axes, 3)
    whole = run(cfg, p, x, positions=i)
    same(chunked(cfg, p, x, cuts, i), whole, EXACT)
    assert abs(whole - run(cfg, p, x)).max() > 1e-3
    one, A = image(4, 4)[: get(name).axes, :1], get(name).axes
    for form in (one[:, 0], np.arange(9) + np.arange(A)[:, None]):
        with pytest.raises(Misuse, match=rf"of {A} sequences or of {A} axes; give \[1, {A}, 9\] or \[{A}, 1, 9\]"):
            run(cfg, p, tokens(A, 9), positions=form)
    same(run(cfg, p, tokens(4, 9), positions=one[:, 0]), run(cfg, p, tokens(4, 9), positions=np.repeat(one, 4, 1)), 0)
    same(run(cfg, p, x, positions=one), run(cfg, p, x, positions=np.repeat(one, 3, 1)), 0)


@pytest.mark.parametrize("name", [n for n in of_axes(True) if n in of("text")])
def test_text_is_claimed_and_holds(name):
    """One number is that number on every axis: whole, before an image and after it, where it goes on from a place whose axes agree."""
    cfg, x, A = config(name), tokens(2, 9), get(name).axes
    p, i = weights(cfg), image(A)
    i[..., :2], i[..., 7:] = np.arange(2), [20, 21]
    same(run(cfg, p, x, positions=np.tile(np.arange(9), (A, 1, 1))), run(cfg, p, x), EXACT)
    whole, memory = run(cfg, p, x, positions=i), model.decode(cfg, p, x[:, :2], model.cache(cfg, 16))[1]
    memory = model.decode(cfg, p, x[:, 2:7], memory, positions=i[..., 2:7])[1]
    with pytest.raises(Misuse, match=r"axes differ, as in an image; give the positions .* one beyond the largest"):
        model.decode(cfg, p, x[:, 7:], memory)
    y, memory = model.decode(cfg, p, x[:, 7:8], memory, positions=np.array([20]))
    same(y, whole[:, 7:8], EXACT)
    same(model.decode(cfg, p, x[:, 8:], memory)[0], whole[:, 8:], EXACT)
    fresh = model.decode(cfg, p, x[:, 7:], memory, seg=np.full((2, 2), 5))[0]
    same(fresh, run(cfg, p, x[:, 7:]), EXACT)


@pytest.mark.parametrize("name", [n for n in of_axes(True) if n not in of("text")])
def test_text_is_not_claimed_and_fails(name):
    """One number is another place than that number on every axis; a cache refuses a mixture."""
    cfg, x, A = config(name), tokens(2, 9), get(name).axes
    p, i = weights(cfg), image(A)
    assert abs(run(cfg, p, x, positions=np.tile(np.arange(9), (A, 1, 1))) - run(cfg, p, x)).max() > 1e-3
    memory = model.decode(cfg, p, x[:, :4], model.cache(cfg, 16), positions=i[..., :4])[1]
    text = model.decode(cfg, p, x[:, :4], model.cache(cfg, 16))[1]
    for cache, positions in ((memory, None), (memory, np.arange(5)), (text, i[..., 4:])):
        with pytest.raises(Misuse, match=f"with {name} give positions of as many axes throughout"):
            model.decode(cfg, p, x[:, 4:], cache, positions=positions)


@pytest.mark.parametrize("name", of_axes(True))
def test_axes_padded_and_packed(name):
    """Padding and documents with places of several axes equal the documents alone; the gradient is right."""
    cfg, x, seg = config(name), tokens(2, 9), np.array([[0, 0, 0, 1, 1, 1, 1, 1, 1], [4, 4, 2, 2, 2, 2, 2, 7, 7]])
    p, i = weights(cfg), image(get(name).axes)
    for cuts in ((), (2, 5)):
        got = chunked(cfg, p, x, cuts, i, seg)
        same(got[:1, 3:], run(cfg, p, x[:1, 3:], positions=i[:, :1, 3:]), EXACT)
        for a, b in ((0, 2), (2, 7), (7, 9)):
            same(got[1:, a:b], run(cfg, p, x[1:, a:b], positions=i[:, 1:, a:b]), EXACT)
    gradient(lambda *a: run(cfg, dict(zip(p, a, strict=True)), x, positions=i, seg=seg), list(p.values()))


@pytest.mark.parametrize("name", of_axes(True))
def test_axes_on_the_fake_cupy(name, cupy):
    """Positions of several axes go to the device with the rest."""
    cfg, x = config(name), tokens(2, 9)
    p, i = weights(cfg), image(get(name).axes)
    be = replace(model.PLAIN, place=lambda thing: thing.moved(cupy.asarray) if isinstance(thing, model.At) else cupy.asarray(thing))
    there = {n: cupy.asarray(a) for n, a in p.items()}
    memory = model.decode(cfg, there, x[:, :4], model.cache(cfg, 16), be=be, positions=i[..., :4])[1]
    same(model.decode(cfg, there, x[:, 4:], memory, be=be, positions=i[..., 4:])[0], cupy.asarray(run(cfg, p, x, positions=i)[:, 4:]), EXACT)


@pytest.mark.parametrize("name", of_axes(False))
def test_axes_that_cannot_be_told_apart(name):
    """An encoding that wants one number for each token refuses three in words; one that looks at none gives the same wherever tokens are."""
    cfg, x = config(name), tokens(2, 9)
    p = weights(cfg)
    if get(name).axes is None:
        for i in (image(3), image(5), np.arange(9)[::-1] / 3):
            same(run(cfg, p, x, positions=i), run(cfg, p, x), 0)
        return
    with pytest.raises(Misuse, match=rf"positions are int64\[3, 2, 9\]; expected numbers \[9\] or \[2, 9\], .*; {name} cannot tell 3 axes apart"):
        run(cfg, p, x, positions=image(3))
    changes = []
    for given in every_choice(name):
        cfg = config(name, pe=((name, given),))
        p = weights(cfg)
        elsewhere = run(cfg, p, x, positions=np.array([0, 1, 3, 4, 6, 8, 9, 12, 15]))
        changes.append(abs(elsewhere - run(cfg, p, x)).max())
    assert max(changes) > 1e-6, f"{name} looks at no position, whatever its options; its file should say axes=None"


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
        *(("yarn", "base", 1.0), ("yarn", "factor", -1.0), ("yarn", "original", 0), ("yarn", "beta_fast", 1.0), ("yarn", "beta_slow", 0.0)),
        *(("yarn", "attention_factor", 0.0), ("yarn", "mscale", -1.0), ("yarn", "mscale_all_dim", -0.5)),
        *(("longrope", "base", 0.5), ("longrope", "factor", 0.0), ("longrope", "original", 1), ("longrope", "start_tokens", -1)),
        *(("longrope", "attention_factor", 0.0), ("longrope", "short_mscale", -1.0), ("longrope", "long_mscale", 0.0)),
        *(("llama3", "base", 0.0), ("llama3", "factor", 0.0), ("llama3", "original", 0), ("llama3", "low_freq_factor", 0.0)),
        *(("llama3", "low_freq_factor", 4.0), ("llama3", "high_freq_factor", 1.0)),
        *(("p_rope", "base", 0.0), ("p_rope", "factor", 0.0), ("p_rope", "fraction", -0.25), ("p_rope", "fraction", 1.25)),
        *(("rwkv6", "mix_rank", 0), ("rwkv6", "decay_rank", 0), ("rwkv6", "chunk", 0), ("rwkv6", "eps", 0.0)),
        *(("rwkv7", f"{what}_rank", 0) for what in ("decay", "a", "v", "gate")),
        *(("rwkv7", "chunk", 0), ("rwkv7", "chunk", 65), ("rwkv7", "eps", -1.0), ("rwkv7", "unit_eps", 0.0)),
        *(("s4d", option, 0) for option in ("chunk", "state_size", "dt_min", "dt_max")),
        *(("s4d", "state_size", 7), ("s4d", "dt_max", -0.5)),
        *(("s4d", "dt_min", 3.0), ("mamba", "dt_min", 3.0)),
        *(("mamba", option, 0) for option in ("chunk", "state_size", "expand", "kernel", "rank", "dt_min", "dt_max")),
        *(("sandwich", "width", 7), ("sandwich", "width", 0), ("sandwich", "base", -1.0), ("dynamic_bias", "width", 0), ("dynamic_bias", "depth", 0)),
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


def test_t5_edges_of_an_enormous_reach():
    """Found by bisection, not by counting."""
    assert import_module(files()["t5"]).edges(32, 2**30)[-1] < 2**30


def test_without_position_and_mask_tokens_are_a_set():
    """A two-sided model without position gives permuted rows for permuted tokens."""
    cfg, x, order = config("none", causal=False), tokens(1, 7), np.array([3, 0, 6, 1, 2, 5, 4])
    p = weights(cfg)
    same(run(cfg, p, x[:, order]), run(cfg, p, x)[:, order], EXACT)


# ---------------------------------------------------------------- numbers from the papers and from public code


def test_alibi_slopes_of_12_heads():
    """The authors' rule: 1/2 ... 1/256, then every second slope of sixteen, unsorted."""
    from peref.ops.bias import slopes as of_heads

    slopes = of_heads(12)
    same(np.array(slopes), np.array([2.0 ** -(k + 1) for k in range(8)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]), 1e-15)


@pytest.mark.parametrize(
    ("causal", "first"),
    [
        (False, [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91]),
        (True, [*range(16), 16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113]),
    ],
)
def test_t5_bucket_edges(causal, first):
    """The first distance of each bucket with 32 buckets and max_distance 128."""
    d = np.arange(200)
    bucket = import_module(files()["t5"]).bucket(d, causal=causal, buckets=32, max_distance=128)
    same(np.flatnonzero(np.diff(bucket, prepend=-1)), np.array(first), 0)
    future = import_module(files()["t5"]).bucket(-d[1:], causal=causal, buckets=32, max_distance=128)
    same(future, np.zeros(199, int) if causal else bucket[1:] + 16, 0)


def test_t5_edges_that_a_logarithm_gets_wrong():
    """Distances at which float16 or log2 in float32 land one bucket off."""
    bucket = import_module(files()["t5"]).bucket
    for causal, buckets, far, n, want in ((True, 32, 100, 40, 24), (True, 64, 256, 110, 51), (True, 32, 512, 267, 28), (False, 128, 200, 80, 48)):
        assert int(bucket(np.array([n]), causal=causal, buckets=buckets, max_distance=far)[0]) == want


def test_sinusoid_frequencies_of_width_8():
    """1, .1, .01, .001 in the paper; the endpoint ladder ends at 1/10000."""
    embed = get("sinusoidal").embed
    one = np.arcsin(embed({}, np.array([1]), C=8, layout="concatenated")[0, :4])
    same(np.sin(one), np.sin(10.0 ** -np.arange(4)), 1e-13)
    one = embed({}, np.array([1]), C=8, layout="concatenated", ladder="endpoint")[0, :4]
    same(one, np.sin(10000.0 ** (-np.arange(4) / 3)), 1e-13)


def test_xpos_zetas_of_width_8():
    """torchscale's (arange(0, d, 2) + 0.4 d) / (1.4 d): what a query 512 tokens after the centre is multiplied with, and a key divided by."""
    angle, gain_q, gain_k = get("xpos").rotate({}, np.array([512]), 0, R=8)
    same(gain_q[0], (np.arange(0, 8, 2) + 0.4 * 8) / (1.4 * 8), 1e-15)
    same(gain_q[0].round(6), np.array([0.285714, 0.464286, 0.642857, 0.821429]), 0)
    same(gain_q * gain_k, np.ones((1, 4)), 1e-15)
    same(angle, 512 * 10.0 ** -np.arange(4)[None], 1e-15)


def test_xpos_centres_of_public_code():
    """Of 7 tokens torchscale has the centre 4, flash-attention and fla 3: other gains, one function. Two centres at once are an error of
    z_n^((c_k - c_q)/512) in every product: keys of a prefill of 7 under a query whose table was made anew for 9."""
    rng, rotate = np.random.default_rng(0), get("xpos").rotate
    q, k = rng.standard_normal((2, 1, 1, 9, 8))
    turned = {c: tuple(model.PLAIN.turn(x, a, g, layout="half") for x, (a, g) in zip((q, k), gains(rotate, c), strict=True)) for c in (0, 3, 4, -200)}
    logits = {c: q @ k.swapaxes(-1, -2) for c, (q, k) in turned.items()}
    for c in (3, 4, -200):
        same(logits[c], logits[0], 1e-13)
        assert abs(turned[c][0] - turned[0][0]).max() > 1e-3
    z = (np.arange(0, 8, 2) + 0.4 * 8) / (1.4 * 8)
    mixed = turned[4][0] @ turned[3][1].swapaxes(-1, -2)
    by_pair = [np.einsum("...tc,...sc->...ts", turned[0][0][..., n::4], turned[0][1][..., n::4]) for n in range(4)]
    same(mixed, sum(z[n] ** ((3 - 4) / 512) * by_pair[n] for n in range(4)), 1e-13)
    assert abs(mixed - logits[0]).max() > 1e-3


def gains(rotate, c):
    """(angle, gain) of q and of k for the centre c."""
    angle, gain_q, gain_k = rotate({}, np.arange(9), 0, R=8, centre=float(c))
    return (angle, gain_q), (angle, gain_k)


@pytest.mark.parametrize(("dtype", "last"), [(np.float32, 29178), (np.float64, 274788)])
def test_xpos_ends_where_its_gains_leave_the_dtype(dtype, last):
    """The dtype that the model computes in decides, not that of the gains; a centre amid the positions helps, also near 1,048,575; at the last
    position everything is finite, in the cache and in the gradients."""
    cfg, x = config("xpos"), tokens(1, 2)
    p = frozen(weights(cfg), dtype)
    assert cfg.ends(dtype) == (last + 1, "xpos")
    for i in (np.array([0, last + 1]), np.array([-last - 1, 0]), np.array([0, 1048575])):
        with pytest.raises(Misuse, match=f"^xpos: positions .* in {np.dtype(dtype)} it begins at -{last}, goes to {last} and ends there"):
            run(cfg, p, x, positions=i)
    wide = model.decode(cfg, p, x[:, :1], model.cache(cfg), positions=np.array([-last]))[1]
    assert np.isfinite(model.decode(cfg, p, x[:, 1:], wide, positions=np.array([last]))[0]).all()
    with pytest.raises(Misuse, match=f"positions -{last} to 1 were asked for at once; in {np.dtype(dtype)} they may be {last} apart; decode them in"):
        run(cfg, p, x, positions=np.array([-last, 1]))
    for centre, i in ((0.0, [-last, 0]), (0.0, [0, last]), (1.04e6, [1048574, 1048575])):
        cfg = config("xpos", pe=(("xpos", {"centre": centre}),))
        tape = Tape()
        leaves = tape.watch(p)
        y, memory = model.decode(cfg, leaves, x, model.cache(cfg), positions=np.array(i))
        assert all(np.isfinite(a).all() for layer in memory.layers for a in (layer["k"].rows, layer["v"].rows))
        found = tape.gradients(y, np.ones(y.shape, dtype))
        assert all(np.isfinite(g).all() for g in found.values())
    assert config("xpos", pe=(("xpos", {"centre": 1.04e6}),)).ends(dtype) == (0, "xpos")


def test_xpos_in_float32_is_as_good_as_its_logits():
    """Near a million, with the centre there: what float64 has, to a few roundings."""
    pe = (("xpos", {"centre": 1048575.0}),)
    cfg, x, i = config("xpos", pe=pe), tokens(2, 9), 1048575 - 1000 * np.arange(9)[::-1]
    p = frozen(weights(cfg), np.float32)
    same(run(cfg, p, x, positions=i), run(cfg, frozen(p, np.float64), x, positions=i).astype(np.float32), 2e-5)


AXES = {
    (128, "chunked", None): "t" * 16 + "h" * 24 + "w" * 24,  # Qwen2-VL: mrope_section 16, 24, 24
    (128, "interleaved", None): "thw" * 20 + "tttt",  # Qwen3-VL: 24, 20, 20
    (64, "interleaved", (11, 11, 10)): "thw" * 10 + "th",  # Qwen3.5: height has 1, 4, ..., 31 and width 2, 5, ..., 29
    (8, "chunked", (2, 1, 1)): "tthw",
    (8, "interleaved", (2, 1, 1)): "thwt",
    (4, "interleaved", (1, 1, 0)): "th",
}


@pytest.mark.parametrize(("R", "order", "sections"), AXES)
def test_mrope_sections_of_public_models(R, order, sections):
    """Which axis each pair turns by; each keeps the frequency of its own number. As the loop has it."""
    i, w = np.array([[2], [3], [5]])[:, None], 10000.0 ** (-2 * np.arange(R // 2) / R)
    angle, *_ = get("mrope").rotate({}, i, 0, R=R, order=order, sections=sections)
    same(angle, (np.array([dict(t=2, h=3, w=5)[a] for a in AXES[R, order, sections]]) * w)[None, None], 1e-15)
    of = witness("mrope", "rotate", R=R, order=order, sections=sections)
    same(angle, np.array([of({}, [[2], [3], [5]], 0)[0]]), 1e-15)
    same(get("mrope").rotate({}, np.array([7]), 0, R=R, order=order, sections=sections)[0], 7 * w[None], 1e-15)


def test_mrope_sections_unless_said():
    """In the ratio 2:3:3, and 6:5:5 interleaved, rounded so that they add up, for any width; interleaved they can always be had."""
    of = import_module(files()["mrope"])
    assert [of.shares(n, (2, 3, 3)) for n in (1, 2, 3, 4, 8, 16, 32, 64)] == [
        *((0, 1, 0), (0, 1, 1), (1, 1, 1), (1, 2, 1), (2, 3, 3), (4, 6, 6), (8, 12, 12), (16, 24, 24))
    ]
    for pairs in range(1, 300):
        for order, ratio in of.RATIOS.items():
            s = of.shares(pairs, ratio)
            assert tuple(of.axis_of(pairs, order, None).count(a) for a in range(3)) == s
            assert max(abs(n - pairs * r / sum(ratio)) for n, r in zip(s, ratio, strict=True)) < 1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"sections": (2, 3, 3)}, "sections are 2,3,3; expected three numbers from 0 on that add up to 2"),
        ({"sections": (1, 1)}, "sections are 1,1; expected three numbers"),
        ({"sections": (3, -1, 0)}, "sections are 3,-1,0; expected three numbers from 0 on"),
        ({"sections": (0, 1, 1), "order": "interleaved"}, "sections are 0,1,1; interleaved that means 1,1,0, h and w have every third pair at most"),
    ],
)
def test_mrope_sections_that_cannot_be(given, words):
    """They add up to the pairs; interleaved no axis gets more than it can, where public code says nothing."""
    cfg = config("mrope", pe=(("mrope", given),))
    with pytest.raises(Misuse, match=f"^mrope: {words}"):
        run(cfg, weights(cfg), tokens(1, 3))


def test_mrope_text_after_an_image_of_2_by_3():
    """It starts at s; its patches have t = s, h = s, s+1 and w = s, s+1, s+2, so text goes on at s + 3: not at the slot, which is s + 6."""
    s = 4
    patches = np.array([[s] * 6, np.repeat([s, s + 1], 3), np.tile([s, s + 1, s + 2], 2)])
    assert patches.max() + 1 == s + 3
    cfg, x = config("mrope"), tokens(1, s + 8)
    p = weights(cfg)
    i = np.concatenate([np.tile(np.arange(s), (3, 1)), patches, np.tile([s + 3, s + 4], (3, 1))], 1)
    memory = model.cache(cfg, 16)
    rows = []
    for cut, positions in ((slice(0, s), None), (slice(s, s + 6), patches), (slice(s + 6, s + 7), np.array([s + 3])), (slice(s + 7, s + 8), None)):
        y, memory = model.decode(cfg, p, x[:, cut], memory, positions=positions)
        rows.append(y)
    same(np.concatenate(rows, 1), run(cfg, p, x, positions=i), EXACT)
    assert abs(rows[-1] - run(cfg, p, x)[:, -1:]).max() > 1e-4


@pytest.mark.parametrize(
    ("ladder", "rows", "columns"),
    [
        ("restart", [1, 0.01], [1, 0.01]),
        ("global", [1, 0.1], [0.01, 0.001]),
        ("alternate", [1, 0.01], [0.1, 0.001]),
        ("pixel", [np.pi, 5 * np.pi], [np.pi, 5 * np.pi]),
    ],
)
def test_axial_ladders_of_width_8(ladder, rows, columns):
    """Two pairs for rows, two for columns. Pixels of an image of 16 x 16 lie from -1 to 1, as linspace(-1, 1, 16) has them."""
    rotate = get("axial").rotate
    place = np.linspace(-1, 1, 16)[[3, 10]] if ladder == "pixel" else [3, 10]
    want = np.concatenate([place[0] * np.array(rows), place[1] * np.array(columns)])
    same(rotate({}, np.array([[3], [10]])[:, None], 0, R=8, ladder=ladder)[0][0, 0], want, 1e-14)
    same(rotate({}, np.array([3 * 16 + 10]), 0, R=8, ladder=ladder)[0][0], want, 1e-14)


def test_axial_moves_with_rows_and_columns():
    """A number added to all rows and another to all columns changes nothing: of two axes the shift is a law, with every ladder."""
    for given in every_choice("axial"):
        cfg, x = config("axial", pe=(("axial", given),), D=8), tokens(2, 9)
        p, i = weights(cfg), image(2)
        same(run(cfg, p, x, positions=i + np.array([100, 37])[:, None, None]), run(cfg, p, x, positions=i), EXACT)


def test_longformer_counts_its_window_otherwise():
    """Its attention_window 4 is two keys on each side and the query, 5 keys: window 3, two-sided. Causal, window 3 is 3 keys."""
    for causal, seen in ((False, 5), (True, 3)):
        cfg, x = config("none", window=4 // 2 + 1, causal=causal, layers=1), tokens(1, 9)
        p, middle = weights(cfg), []
        for t in range(9):
            other = x.copy()
            other[:, t] = (other[:, t] + 3) % 11
            middle.append(abs(run(cfg, p, other) - run(cfg, p, x))[0, 4].max() > 1e-9)
        assert np.flatnonzero(middle).tolist() == [*range(2, 2 + seen)]


def cycle_of(name, layers, **given):
    """What the layers of a model of that encoding start with, under their bare names."""
    cfg = config(name, layers=layers, **given)
    p = model.init(cfg, 0, np.float64)
    return [model.of_encoding(cfg, p, layer) for layer in range(layers)]


def test_rwkv_starts_as_released():
    """Decays, bonuses and mixes of the first and the last of three layers, by the rules of RWKV-LM (v4neo, v6, v7) put into numbers."""
    first, _, last = cycle_of("rwkv4", 3)
    got = [*first["decay"][[0, -1]], last["decay"][15], *first["bonus"][:3], first["mix.k"][6], last["mix.v"][6], first["mix.r"][6]]
    third = 0.2 ** (1 / 3)
    same(np.array(got), np.array([-5, 3, -5 + 8 * (15 / 29) ** 2, *(np.log(0.3) + np.array([0, 0.5, -0.5])), 0.2, third + 0.3, 0.2**0.5]), 1e-14)
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
    got = [*first["decay.bias"][[0, 3]], last["decay.bias"][-1], first["a.bias"][0], last["v.bias"][-1], first["xi"][-1], first["mix.k"][6]]
    same(np.array(got), np.array([-8, -3 + 18 / 23, 3, -0.69, 0.53, 0.66, 1 - 0.2**0.7]), 1e-14)
    wide = [{n.removesuffix(".up.weight"): a.shape[1] for n, a in p.items() if "up" in n} for p in cycle_of("rwkv7", 2, C=768, H=12, D=64)]
    assert wide == [{"decay": 64, "a": 64, "gate": 128}, {"decay": 64, "a": 64, "v": 32, "gate": 128}]


@pytest.mark.parametrize("name", ["rwkv4", "rwkv6", "rwkv7"])
def test_rwkv_has_no_decay_on_decays_mixes_and_bonuses(name):
    """AdamW shrinks what is named .weight and has two axes: the linear maps, all of them with an input or output of the model's."""
    for p in cycle_of(name, 2, C=31):
        shrunk = {n for n, a in p.items() if n.endswith(".weight") and a.ndim == 2}
        assert {n.removesuffix(".weight").removesuffix(".down").removesuffix(".up").split(".")[-1] for n in shrunk} <= {*"rkvgwoa", "decay", "gate"}
        assert all(np.ndim(p[n]) == 1 or n == "bonus" for n in set(p) - shrunk)


def test_rwkv_reads_before_or_after_it_writes():
    """With one token RWKV-6 gives the bonus alone, (r u k) v, RWKV-7 what was just written, (r k) v."""
    r, k, v, u = (np.random.default_rng(n).standard_normal((1, 1, 1, 4)) for n in range(4))
    log_w, one = -np.ones_like(r), np.full_like(r, 0.5)
    same(wkv6(r, log_w, k, v, u[0, 0], None, None, chunk=1)[0], (r * u * k).sum() * v, 1e-15)
    same(wkv7(r, log_w, k, v, one, one, None, None, chunk=1)[0], (r * k).sum() * v, 1e-14)
