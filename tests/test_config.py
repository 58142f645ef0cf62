"""Config: what it fills in, what it keeps, and what it refuses in words; choose and shaped, which make the
fields of one.
"""

import json
import math
from dataclasses import FrozenInstanceError, replace
from typing import Literal, get_args, get_origin

import pytest

from peref import config, model
from peref.config import OF_FIELDS, SHAPES, Config, shaped
from peref.encodings import claims_of, get, names, options
from peref.errors import Misuse
from peref.settings import choose, value_of

ONE = {name: ((name, {}),) for name in names()}
MIXED = (("rope", {}), ("retnet", {}))


def refused(*words, **given):
    """Config(**given) raises Misuse, and its message has the words."""
    with pytest.raises(Misuse) as caught:
        Config(**given)
    for word in words:
        assert word in str(caught.value), f"no {word!r} in: {caught.value}"


# ---------------------------------------------------------------- what is filled in


def test_the_default_is_a_small_llama_with_alibi():
    """Config() alone: 4 layers of width 128, 4 query heads over 2 key-value heads, swiglu 352 wide, every
    option in place.
    """
    cfg = Config()
    assert (cfg.L, cfg.V, cfg.C, cfg.layers, cfg.H, cfg.G, cfg.D, cfg.F, cfg.R) == (
        512,
        256,
        128,
        4,
        4,
        2,
        32,
        352,
        None,
    )
    assert cfg.pe == (
        ("alibi", {"max_bias": 8.0, "slopes": "fixed", "directions": "both", "across_layers": "own"}),
    )
    assert cfg == shaped("llama")


@pytest.mark.parametrize(("H", "G"), [(1, 1), (2, 1), (3, 3), (4, 2), (6, 3), (9, 9), (12, 6)])
def test_key_value_heads_are_half_the_query_heads(H, G):
    """H/2, and H where H is odd."""
    assert Config(C=36, H=H, D=4).G == G


def test_mixing_layers_have_no_key_value_heads():
    """Left unset they stay unset for mixing layers alone; a cycle with one attention layer has them."""
    assert Config(pe=ONE["retnet"]).G is None
    assert Config(pe=MIXED).G == 2
    assert Config(pe=MIXED, G=4).G == 4


@pytest.mark.parametrize(("C", "F"), [(128, 352), (96, 256), (97, 288), (12, 32), (13, 64)])
def test_feed_forward_width_of_swiglu(C, F):
    """The smallest multiple of 32 that is at least 8C/3."""
    assert Config(C=C, H=1).F == F


def test_feed_forward_width_of_gelu():
    """4C, and whatever is given outranks it."""
    assert Config(C=9, H=3, activation="gelu").F == 36
    assert Config(C=9, H=3, activation="gelu", F=7).F == 7
    assert Config(F=7).F == 7


def test_rotary_width_is_the_head_width_where_something_turns():
    """D for rope, what is given where it is given, None where nothing turns."""
    assert Config(pe=ONE["rope"], C=24, H=3).R == 8
    assert Config(pe=ONE["rope"], C=24, H=3, R=6).R == 6
    assert Config(pe=MIXED, C=24, H=3).R == 8
    assert Config(pe=ONE["retnet"], C=24, H=3).R is None


def test_head_width_need_not_be_width_over_heads():
    """Given, it makes a width legal that the heads do not divide."""
    assert Config(C=24, H=3).D == 8
    assert Config(C=25, H=3, D=5).D == 5


def test_qkv_bias_goes_with_the_biases_unless_said():
    """All four combinations can be had."""
    assert [Config(biases=b, qkv_bias=q).qkv_bias for b in (False, True) for q in (None, False, True)] == [
        False,
        False,
        True,
        True,
        False,
        True,
    ]


def test_options_are_stored_resolved():
    """Every option of every member of the cycle stands in pe, those not given at their defaults."""
    for name in names():
        assert dict(Config(pe=ONE[name]).pe[0][1]) == {
            key: default for key, (default, _) in options(get(name)).items()
        }
    cfg = Config(pe=(("ntk", {"base": 500.0}), ("t5", {"buckets": 8})))
    ntk = {"base": 500.0, "factor": 4.0, "form": "bloc97", "mixed_b": None}
    assert cfg.pe == (("ntk", ntk), ("t5", {"buckets": 8, "max_distance": 128, "divided": "not"}))


def test_options_given_are_copied():
    """A dict that its owner changes afterwards changes no Config."""
    given = {"base": 500.0}
    cfg = Config(pe=(("rope", given),))
    given["base"] = 7.0
    assert cfg.pe[0][1]["base"] == 500.0


def test_a_config_cannot_be_changed():
    """It is frozen; dataclasses.replace checks again."""
    cfg = Config()
    with pytest.raises(FrozenInstanceError):
        cfg.H = 3
    with pytest.raises(Misuse, match="cannot share"):
        replace(cfg, H=3)


def test_the_cycle_goes_round():
    """Layer l has member l mod the length of the cycle, with its own number and options as facts."""
    cfg = Config(pe=(("rope", {}), ("t5", {}), ("alibi", {})), layers=5)
    assert [cfg.encoding(layer).paper for layer in range(5)] == [
        get(n).paper for n in ("rope", "t5", "alibi", "rope", "t5")
    ]
    assert cfg.encoding(0).rotate.keywords == {"R": 32, "base": 10000.0, "learned": False}
    assert cfg.encoding(4).bias.keywords == {"causal": True, "buckets": 32, "max_distance": 128}


def test_a_member_that_no_layer_takes_is_refused():
    """A cycle longer than the layers would be named after encodings that are not in the model."""
    cycle = (*ONE["alibi"], *ONE["retnet"], *ONE["rope"])
    refused(
        "the cycle alibi,retnet,rope is longer than the model (layers 1)",
        "no layer would take retnet,rope",
        pe=cycle,
        layers=1,
    )
    refused("no layer would take rope", pe=cycle, layers=2)
    assert Config(pe=cycle, layers=3).named == "alibi,retnet,rope"
    refused("unknown encoding 'alibbi'", pe=(("alibi", {}), ("alibbi", {})), layers=1)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ["L", "V", "C", "layers", "H", "G", "D", "F", "window"])
def test_sizes_are_at_least_one(name):
    """Every size names itself and the value it had."""
    for wrong in (0, -3):
        refused(f"{name} is {wrong}", "expected at least 1", **{name: wrong})


@pytest.mark.parametrize("eps", [0.0, -1e-5, math.nan, math.inf])
def test_eps_is_small_and_positive(eps):
    """Zero, negative, infinite and no number at all are refused."""
    refused(f"the norms' eps is {eps}", "above 0", eps=eps)


@pytest.mark.parametrize(
    ("field", "wrong", "expected"),
    [
        ("L", 512.0, "int"),
        ("H", True, "int"),
        ("H", "4", "int"),
        ("G", 2.0, "int or none"),
        ("tied", 1, "bool"),
        ("biases", "yes", "bool"),
        ("eps", "small", "float"),
        ("eps", True, "float"),
        ("window", 2.5, "int or none"),
        ("layout", "halves", "one of: half, interleaved"),
        ("norm", "batch", "one of: rms, layer"),
        (
            "activation",
            "silu",
            "one of: swiglu, geglu, swiglu_clamped, gelu, gelu_exact, relu, relu2, channel_mix",
        ),
        ("norm_place", "pre", "one of: before, after, both"),
        ("residual", "serial", "one of: sequential, parallel, shared"),
        ("head_bias", "no", "bool"),
        ("embed_factor", "2", "float"),
        ("logit_softcap", "30", "float or none"),
    ],
)
def test_fields_have_their_kind(field, wrong, expected):
    """A value of another kind is named with what was expected; a whole number is not a bool and a bool is
    no number.
    """
    refused(
        field,
        repr(wrong),
        expected.removesuffix(" or none") if field in "GDFR" else expected,
        **{field: wrong},
    )


@pytest.mark.parametrize(
    "field",
    [
        "L",
        "V",
        "C",
        "layers",
        "H",
        "layout",
        "norm",
        "activation",
        "norm_place",
        "norm_from_one",
        "residual",
        "router",
        "router_normed",
        "router_bias",
        "router_scales",
        "shared_expert",
        "unit_heads",
        "biases",
        "head_bias",
        "qk_norm",
        "qk_norm_over",
        "embed_factor",
        "embed_norm",
        "residual_factor",
        "logit_factor",
        "eps",
        "tied",
        "causal",
    ],
)
def test_only_what_can_be_filled_in_may_be_none(field):
    """None for a field that no other decides is refused."""
    refused(field, "None", "expected", **{field: None})


def test_a_whole_number_serves_as_a_real_one():
    """eps=1 is kept as 1.0, and base=500 of rope as 500.0."""
    assert type(Config(eps=1).eps) is float
    assert type(Config(pe=(("rope", {"base": 500}),)).pe[0][1]["base"]) is float


@pytest.mark.parametrize("pe", [(), [], None, ""])
def test_no_encoding_at_all(pe):
    """An empty cycle is refused with the name of the encoding that adds nothing."""
    refused("at least one encoding", "'none' adds nothing", pe=pe)


@pytest.mark.parametrize(
    "pe", ["rope", ("rope",), ("rope", {}), (("rope",),), (("rope", None),), ((7, {}),), {"rope": {}}, 3]
)
def test_pe_is_a_cycle_of_pairs(pe):
    """A bare name, a bare pair and the like are refused with an example of what is expected."""
    refused(f"pe is {pe!r}", "pairs of a name and its options", pe=pe)


def test_heads_that_do_not_divide():
    """Width by heads, and query heads by key-value heads."""
    refused("width 25", "3 heads", "set the head width", C=25, H=3)
    refused("4 query heads", "3 key-value heads", "divisor of 4", G=3)
    refused("4 query heads", "8 key-value heads", G=8)


def test_key_value_heads_for_mixing_layers_only():
    """Set by hand they are refused with the name of the encoding."""
    refused("key-value heads are 2", "retnet has no attention layer", "leave it unset", pe=ONE["retnet"], G=2)


def test_rotary_width_where_nothing_turns():
    """R set for an encoding that turns nothing is refused."""
    refused("rotary width is 4", "alibi turns nothing", R=4)
    refused("rotary width is 4", "none,alibi turns nothing", pe=(*ONE["none"], *ONE["alibi"]), R=4)


@pytest.mark.parametrize("R", [0, -2, 3, 10])
def test_rotary_width_is_even_and_within_the_head(R):
    """Odd, zero, negative and wider than the head are refused."""
    refused(f"rotary width is {R}", "even number from 2 to the head width 8", pe=ONE["rope"], C=24, H=3, R=R)


def test_an_odd_head_width_does_not_turn():
    """Left to the head width, an odd one is refused; an even rotary width within it is not."""
    refused("rotary width is 5", "even", pe=ONE["rope"], C=15, H=3)
    assert Config(pe=ONE["rope"], C=15, H=3, R=4).R == 4


@pytest.mark.parametrize("name", [n for n in names() if get(n).embed])
def test_an_embed_stands_first(name):
    """It is added once, so it is refused behind the first member of a cycle."""
    for pe in (ONE["rope"], ONE[name]):
        refused(name, "in the first member of a cycle, and in no other", pe=(*pe, *ONE[name]))


def test_of_a_long_cycle_only_members_that_differ_are_settled(monkeypatch):
    """A public config.json may have 100,000 layers in no order. 1, 1.0 and True are not the same."""
    counts = dict.fromkeys(["settled", "bound"], 0)

    def counting(name, inner):
        def call(*given):
            counts[name] += 1
            return inner(*given)

        return call

    for name in counts:
        monkeypatch.setattr(f"peref.config.{name}", counting(name, getattr(config, name)))
    pe = tuple(("rope", {"base": 1e4 + n % 3}) if n % 7 else ("alibi", {}) for n in range(100))
    cfg = Config(pe=pe, layers=100)
    assert counts == dict.fromkeys(counts, len({repr(member) for member in pe}))
    assert [(name, given.get("base")) for name, given in cfg.pe] == [(n, o.get("base")) for n, o in pe]
    refused("sinks is 1; expected bool", pe=(("alibi", {"sinks": True}), ("alibi", {"sinks": 1})))


@pytest.mark.parametrize("name", names())
def test_laws_that_are_not_claimed_are_refused(name):
    """causal=False and a window are for those that claim two_sided and window."""
    claims = claims_of(get(name))
    if "two_sided" in claims:
        assert not Config(pe=ONE[name], causal=False).causal
    else:
        refused(f"{name} reads only the past", "causal=False", pe=ONE[name], causal=False)
    if "window" in claims:
        assert Config(pe=ONE[name], window=3).window == 3
    else:
        refused(name, "window", "leave window unset", pe=ONE[name], window=3)


def test_some_encodings_do_not_claim_every_law():
    """So that both branches of the test above are taken."""
    assert {law for name in names() for law in {"two_sided", "window"} - claims_of(get(name))} == {
        "two_sided",
        "window",
    }


def test_unknown_encodings_and_options():
    """Each says what is near, and what there is."""
    refused(
        "unknown encoding 'alibbi'", "; did you mean 'alibi'? see: python cli.py list", pe=(("alibbi", {}),)
    )
    refused("encoding 'rope' has no option 'bse'", "did you mean 'base'", pe=(("rope", {"bse": 2.0}),))
    refused("encoding 'none' has no option 'base'", "no options", pe=(("none", {"base": 2.0}),))


@pytest.mark.parametrize(
    ("name", "option", "wrong", "expected"),
    [
        ("rope", "base", "big", "expected float"),
        ("rope", "base", True, "expected float"),
        ("rope", "base", None, "expected float"),
        ("rope", "base", math.nan, "expected a finite number"),
        ("alibi", "max_bias", -math.inf, "expected a finite number"),
        ("t5", "buckets", 8.0, "expected int"),
        ("t5", "buckets", True, "expected int"),
        ("sinusoidal", "ladder", "rope", "expected one of: paper, endpoint"),
        ("retnet", "norm", 1, "expected one of: group, rms"),
        *(("mrope", "sections", wrong, "expected a list of int or none") for wrong in (4, "2,3,3", [], True)),
        *(("mrope", "sections", [1, wrong, 1], "expected int") for wrong in (0.5, "1", True, None)),
    ],
)
def test_options_have_their_kind(name, option, wrong, expected):
    """A value of another kind, one outside a list of choices, and a number that is not finite."""
    named = wrong[1] if isinstance(wrong, list) and wrong else wrong
    refused(f"is {named!r}", expected, pe=((name, {option: wrong}),))


@pytest.mark.parametrize("given", [[1, 1.5], (1, 1.5)])
def test_a_list_is_kept_as_a_tuple_and_stored_as_a_list(given):
    """Whole numbers in it become real; equal after JSON; the default none is kept as it is."""
    cfg = Config(pe=(("longrope", {"long_factor": given}),), D=4)
    assert cfg.pe[0][1]["long_factor"] == (1.0, 1.5)
    assert [type(number) for number in cfg.pe[0][1]["long_factor"]] == [float, float]
    assert cfg.pe[0][1]["short_factor"] is None
    assert cfg.to_json()["pe"][0][1]["long_factor"] == [1.0, 1.5]
    assert Config.from_json(json.loads(json.dumps(cfg.to_json()))) == cfg == Config.from_json(cfg.to_json())
    assert cfg.encoding(0).rotate.keywords["long_factor"] == (1.0, 1.5)


@pytest.mark.parametrize(
    ("option", "wrong", "words"),
    [
        ("long_factor", 1.5, "option long_factor is 1.5; expected a list of float or none"),
        ("long_factor", "1;2", "option long_factor is '1;2'; expected a list of float or none"),
        ("long_factor", [1, "a"], "option long_factor is 'a'; expected float"),
        ("long_factor", [1, True], "option long_factor is True; expected float"),
        ("long_factor", [1, [2]], "option long_factor is [2]; expected float"),
        ("long_factor", [1, math.inf], "option long_factor of longrope is inf; expected a finite number"),
        ("attention_factor", [1.0], "option attention_factor is [1.0]; expected float or none"),
        ("start_tokens", 1.5, "option start_tokens is 1.5; expected int"),
    ],
)
def test_a_list_has_numbers(option, wrong, words):
    """One number is no list, and a list is no number; every one in it is of the kind and finite."""
    refused(words, pe=(("longrope", {option: wrong}),))


def test_choose_sets_a_list():
    """Numbers between commas; the last setting counts; on one member by its index."""
    assert choose("longrope", ["long_factor=1,1.2,1.5"])["pe"] == (
        ("longrope", {"long_factor": [1, 1.2, 1.5]}),
    )
    cfg = Config(**choose("longrope,rope,longrope", ["short_factor=1,2", "2.short_factor=1,3"]), D=4)
    assert [given.get("short_factor") for _, given in cfg.pe] == [(1.0, 2.0), None, (1.0, 3.0)]


# ---------------------------------------------------------------- plain data


EVERYTHING = {
    "L": 9,
    "V": 7,
    "C": 25,
    "layers": 3,
    "H": 6,
    "G": 3,
    "D": 8,
    "F": 11,
    "norm": "layer",
    "activation": "swiglu_clamped",
    "biases": True,
}
EVERYTHING |= {
    "R": 6,
    "layout": "interleaved",
    "qkv_bias": False,
    "qk_norm": True,
    "eps": 1e-3,
    "tied": False,
    "window": 4,
    "norm_place": "both",
    "norm_from_one": True,
    "residual": "parallel",
    "o_bias": False,
    "ff_bias": False,
    "norm_bias": False,
    "head_bias": True,
    "qk_norm_over": "width",
    "embed_factor": 5.0,
    "embed_norm": True,
    "residual_factor": 0.5,
    "logit_factor": 0.25,
    "logit_softcap": 30.0,
    "activation_limit": 5.0,
    "experts": 6,
    "experts_chosen": 3,
    "router": "sigmoid",
    "router_normed": False,
    "router_bias": True,
    "router_scales": "input",
    "shared_expert": True,
    "unit_heads": True,
}


def test_json_keeps_a_config():
    """Through text and back it is equal, for each encoding and with every field away from its default."""
    whole = Config(pe=(("rope", {"base": 500}), ("shaw", {"max_distance": 3})), causal=True, **EVERYTHING)
    own = {"qkv_bias", "o_bias", "ff_bias", "norm_bias"}
    assert all(getattr(whole, name) != getattr(Config(), name) for name in EVERYTHING.keys() - own)
    assert not any(getattr(whole, name) for name in own)
    assert EVERYTHING.keys() == OF_FIELDS.keys() - {"causal", "cross"}
    two = Config(cross=True, encoder=Config(causal=False))
    for cfg in (
        whole,
        Config(causal=False),
        Config(cross=True),
        two,
        *(Config(pe=pe) for pe in ONE.values()),
    ):
        text = json.dumps(cfg.to_json(), allow_nan=False)
        assert Config.from_json(json.loads(text)) == cfg


# as run.json had it before layers could differ and blocks had settings
OLD = {"C": 32, "D": 16, "F": 96, "G": 1, "H": 2, "L": 64, "R": 16, "V": 256, "activation": "swiglu"}
OLD |= {"biases": False, "causal": True, "eps": 1e-05, "layers": 2, "layout": "half", "norm": "rms"}
OLD |= {"qk_norm": False, "qkv_bias": False, "tied": True, "window": None}
OLD |= {"pe": [["rope", {"base": 10000.0, "learned": False}], ["alibi", {"max_bias": 8.0}]]}
OLD_SHAPES = {"q": (32, 32), "k": (16, 32), "v": (16, 32), "o": (32, 32)}
OLD_SHAPES |= {"gate": (96, 32), "up": (96, 32), "down": (32, 96)}


def test_a_config_of_before_is_the_model_that_it_was():
    """What it does not say is off, and its weights have the names and shapes that they have on disk."""
    cfg = Config.from_json(OLD)
    assert cfg == Config(pe=(("rope", {}), ("alibi", {})), C=32, H=2, L=64, layers=2)
    assert cfg.unusual == {}
    assert not any(
        layer.sees != (None, None, None, False) or layer.sinks for layer in map(cfg.layer, range(2))
    )
    shapes = {f"{n}.{name}.weight": shape for n in range(2) for name, shape in OLD_SHAPES.items()}
    shapes |= {f"{n}.{name}.weight": (32,) for n in range(2) for name in ("norm1", "norm2")}
    found = {name: a.shape for name, a in model.init(cfg).items()}
    assert found == shapes | {"embed.weight": (256, 32), "norm.weight": (32,)}


def test_what_is_no_model_is_refused_in_words():
    with pytest.raises(Misuse, match="a model is None; expected its fields by name"):
        Config.from_json(None)
    with pytest.raises(Misuse, match="the encoder of a model is None; expected its fields by name"):
        Config.from_json(Config().to_json() | {"encoder": None})
    with pytest.raises(Misuse, match="expected pairs of a name and its options"):
        Config(pe=(("rope", {1: 2}),))


def test_a_list_of_numbers_is_a_tuple_and_comes_back_from_json():
    """However it was given; on the command line with commas, for one member of a cycle too."""
    wanted = Config(pe=(("mrope", {"sections": (4, 6, 6)}),))
    assert wanted.pe[0][1]["sections"] == (4, 6, 6)
    assert Config(pe=(("mrope", {"sections": [4, 6, 6]}),)) == wanted
    assert Config(**choose("mrope", ["sections=4,6,6"])) == wanted
    assert Config.from_json(json.loads(json.dumps(wanted.to_json()))) == wanted
    two = Config(**choose("mrope,mrope", ["1.sections=16,0,0", "order=interleaved", "1.order=chunked"]))
    assert [given["sections"] for _, given in two.pe] == [None, (16, 0, 0)]


def test_axes_of_a_cycle():
    """As many as its encodings agree on; one that looks at no position has no say; two that differ leave
    one number for each token.
    """
    for pe, axes, text in (
        ("mrope,none", 3, True),
        ("none,axial", 2, False),
        ("none,path", None, True),
        ("mrope,rope", 1, False),
        ("mrope,axial", 1, False),
    ):
        cfg = Config(**choose(pe))
        assert (cfg.axes, cfg.text or axes == 1) == (axes, text or axes == 1)


def test_where_a_cycle_ends():
    """At the shortest reach of its encodings, which for one of them depends on the dtype."""
    assert Config().ends("float32") == (math.inf, "")
    assert Config(**choose("rope,learned_bias")).ends("float64") == (512, "learned_bias")
    assert Config(**choose("xpos,none")).ends("float32") == (29179, "xpos")
    assert Config(**choose("xpos,learned_bias")).ends("float64") == (512, "learned_bias")
    assert Config(**choose("xpos,xpos", ["1.scale_base=51.2"])).ends("float32") == (2918, "xpos")


def test_json_has_everything_resolved():
    """What was filled in and every option stand in it, so that a default that changes later changes no
    saved model.
    """
    data = shaped("gpt2", pe=(("rope", {}), ("retnet", {"chunk": 3}))).to_json()
    assert (data["G"], data["D"], data["F"], data["R"], data["qkv_bias"]) == (2, 32, 512, 32, True)
    assert data["pe"][0] == ["rope", {"base": 10000.0, "learned": False}]
    assert data["pe"][1] == [
        "retnet",
        {**{key: default for key, (default, _) in options(get("retnet")).items()}, "chunk": 3},
    ]


def test_json_is_a_copy():
    """Changing the data changes no Config."""
    cfg = Config()
    cfg.to_json()["pe"][0][1]["max_bias"] = 3.0
    assert cfg.pe[0][1]["max_bias"] == 8.0


def test_json_of_another_hand():
    """Unknown fields are named; a missing cycle and values that do not fit are refused."""
    data = Config().to_json()
    with pytest.raises(
        Misuse, match=r"unknown fields of a model: heads, width; was this written by a newer peref"
    ):
        Config.from_json(data | {"width": 3, "heads": 4})
    with pytest.raises(Misuse, match="without pe"):
        Config.from_json({name: value for name, value in data.items() if name != "pe"})
    with pytest.raises(Misuse, match=r"pe is 'alibi'; expected pairs"):
        Config.from_json(data | {"pe": "alibi"})
    with pytest.raises(Misuse, match="H is '4'; expected int"):
        Config.from_json(data | {"H": "4"})


# ---------------------------------------------------------------- shapes


def test_shapes_are_names_for_settings():
    """gpt2 is layer norm, gelu, biases and a head of its own; llama is the default; everything given
    outranks them.
    """
    cfg = shaped("gpt2", C=12, H=3)
    assert (cfg.norm, cfg.activation, cfg.biases, cfg.qkv_bias, cfg.tied, cfg.F) == (
        "layer",
        "gelu",
        True,
        True,
        False,
        48,
    )
    cfg = shaped("gpt2", norm="rms", tied=True, qkv_bias=False)
    assert (cfg.norm, cfg.activation, cfg.biases, cfg.qkv_bias, cfg.tied) == (
        "rms",
        "gelu",
        True,
        False,
        True,
    )
    assert set(SHAPES) == {"llama", "gpt2"}


def test_unknown_shapes_and_fields():
    """Each is named, with what there is."""
    with pytest.raises(
        Misuse, match=r"unknown shape 'gpt-2'; did you mean 'gpt2'\? expected one of: llama, gpt2"
    ):
        shaped("gpt-2")
    with pytest.raises(Misuse, match=r"a model has no field width; its fields are: .*\bC\b.*\bwindow\b"):
        shaped("llama", width=3)


# ---------------------------------------------------------------- the command line's --pe and --set


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", 4),
        ("-4", -4),
        ("0.5", 0.5),
        ("1e4", 10000.0),
        ("true", True),
        ("False", False),
        ("none", None),
        ("None", None),
        ("null", None),
        ("paper", "paper"),
        ('"4"', "4"),
        ("", ""),
        ("a=b", "a=b"),
        ("0x10", "0x10"),
        ("2,3,3", [2, 3, 3]),
        ("1, 1.2,1.5", [1, 1.2, 1.5]),
        ("[4]", [4]),
        ("a,b", "a,b"),
        (",", ","),
        ("9" * 5000, "9" * 5000),
        ("1,1.2,1.5", [1, 1.2, 1.5]),
        ("[1, 1.5]", [1, 1.5]),
        ("1, 2", [1, 2]),
        ("1,true", [1, True]),
        ("1,", "1,"),
        ("1,a", "1,a"),
    ],
)
def test_value_of(text, expected):
    """JSON where it is JSON, true, false and none in any case, lists where commas stand between JSON, else
    the text itself.
    """
    assert value_of(text) == expected
    assert type(value_of(text)) is type(expected)


def test_choose_a_cycle():
    """Names between commas, spaces around them do not matter; nothing else is set."""
    assert choose("alibi") == {"pe": (("alibi", {}),)}
    assert choose("rope, t5 ,rope") == {"pe": (("rope", {}), ("t5", {}), ("rope", {}))}


def test_every_word_of_every_option_can_be_chosen():
    """As it stands in the list, "none" too; none is no word where an option may also be nothing."""
    for name in names():
        for option, (_, kind) in options(get(name)).items():
            for word in get_args(kind) if get_origin(kind) is Literal else ():
                assert choose(name, [f"{option}={word}"])["pe"] == ((name, {option: word}),)
    assert choose("path", ["rank=none", "gate=none"])["pe"] == (("path", {"rank": None, "gate": "none"}),)


def test_choose_sets_every_member_that_has_the_option():
    """And no other; the last of two settings of one option counts."""
    assert choose("rope,alibi,rope", ["base=500", "max_bias=4"])["pe"] == (
        ("rope", {"base": 500}),
        ("alibi", {"max_bias": 4}),
        ("rope", {"base": 500}),
    )
    assert choose("rope", ["base=500", "base=7"])["pe"] == (("rope", {"base": 7}),)
    assert choose("sinusoidal", ["ladder=endpoint"])["pe"] == (("sinusoidal", {"ladder": "endpoint"}),)


def test_choose_sets_one_member_by_its_index():
    """INDEX.NAME=VALUE is for that member alone, counted from 0."""
    assert choose("rope,rope,alibi", ["1.base=500"])["pe"] == (
        ("rope", {}),
        ("rope", {"base": 500}),
        ("alibi", {}),
    )
    assert choose("rope,rope", ["base=3", "0.base=500"])["pe"] == (
        ("rope", {"base": 500}),
        ("rope", {"base": 3}),
    )


@pytest.mark.parametrize("pe", ["rope", "alibi,rope", "retnet,rope"])
def test_choose_gives_layout_and_rotary_width_to_the_model(pe):
    """They are fields of Config for any encoding that turns, because the weights depend on them."""
    chosen = choose(pe, ["rotary_dim=4", "layout=interleaved"])
    assert chosen == {"R": 4, "layout": "interleaved", "pe": tuple((name, {}) for name in pe.split(","))}
    cfg = Config(**chosen)
    assert (cfg.R, cfg.layout) == (4, "interleaved")
    assert choose(pe, [f"{pe.count(',')}.rotary_dim=4"])["R"] == 4


def test_choose_refuses_rotary_options_where_nothing_turns():
    """In words for an encoding without them, also by index; an encoding with a layout of its own keeps it."""
    for item, pe in (
        ("rotary_dim=4", "alibi"),
        ("layout=half", "alibi"),
        ("0.rotary_dim=4", "alibi,rope"),
        ("layout=half", "mamba"),
    ):
        with pytest.raises(
            Misuse, match=f"has no option '{item.partition('=')[0].removeprefix('0.')}'.*options are: "
        ):
            choose(pe, [item])
    assert choose("sinusoidal", ["layout=concatenated"]) == {
        "pe": (("sinusoidal", {"layout": "concatenated"}),)
    }


@pytest.mark.parametrize(
    ("pe", "item", "message"),
    [
        (
            "rope",
            "bse=2",
            (
                r"encoding 'rope' has no option 'bse'; did you mean 'base'\? its options are: base, "
                r"learned, window, chunk, global_tokens, temperature, temperature_length, temperature_slope, "
                r"rotary_dim, "
                r"layout, scale, softcap, cosine, sinks, experts, F$"
            ),
        ),
        ("rope", "rotary_dm=2", r"has no option 'rotary_dm'; did you mean 'rotary_dim'\?"),
        (
            "alibi,rope",
            "bse=2",
            (
                r"'alibi,rope' has no option 'bse'; did you mean 'base'\? their options are: max_bias, "
                r"slopes, directions, across_layers, window, chunk, global_tokens, temperature, "
                r"temperature_length, "
                r"temperature_slope, scale, softcap, cosine, sinks, experts, F, base"
            ),
        ),
        (
            "alibi,rope",
            "0.base=2",
            (
                r"'alibi' has no option 'base'; its options are: max_bias, slopes, directions, "
                r"across_layers, window, chunk, .*, scale, softcap, cosine, sinks, experts, F$"
            ),
        ),
        ("none", "base=2", r"'none' has no option 'base'; its options are: window, chunk, .*, experts, F$"),
        ("rwkv4", "window=2", r"'rwkv4' has no option 'window'; its options are: experts, F$"),
        ("rope", "a.base=2", r"has no option 'a.base'"),
        ("rope", "².base=2", r"has no option '².base'"),
        ("rope", "base", r"--set base: expected NAME=VALUE, or INDEX.NAME=VALUE"),
        ("rope", "=4", r"--set =4: expected NAME=VALUE"),
        ("rope", "0.=4", r"--set 0.=4: expected NAME=VALUE"),
        ("rope,t5", "2.base=2", r"--set 2.base=2: the cycle rope,t5 has members 0 to 1"),
        ("alibbi", "", r"unknown encoding 'alibbi'; did you mean 'alibi'\?"),
        ("alibi,", "", r"unknown encoding ''; see: "),
        ("rope", "rotary_dim=abc", r"option rotary_dim is 'abc'; expected int$"),
        ("rope", "layout=halves", r"option layout is 'halves'; expected one of: half, interleaved$"),
    ],
)
def test_choose_refuses(pe, item, message):
    """Unknown names and options, an index past the end, text without an equals sign: each says what there
    is.
    """
    with pytest.raises(Misuse, match=message):
        choose(pe, [item] if item else [])


def test_choose_leaves_values_to_config():
    """A value that does not fit is refused when the model is made."""
    for item, words in (
        ("base=none", "base is None; expected float"),
        ("base=NaN", "finite"),
        ("layout=diagonal", "half, interleaved"),
    ):
        with pytest.raises(Misuse, match=words):
            Config(**choose("rope", [item]))
    with pytest.raises(Misuse, match="rotary width is 5; expected an even number"):
        Config(**choose("rope", ["rotary_dim=5"]))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"pe": (("retnet", {}),), "qk_norm": True}, "qk_norm is True, but retnet has no attention layer"),
        ({"pe": (("retnet", {}),), "qkv_bias": True}, "qkv_bias is True, but retnet has no attention layer"),
        ({"pe": (("alibi", {}),), "layout": "interleaved"}, "layout is interleaved, but alibi turns nothing"),
    ],
)
def test_a_setting_that_would_play_no_part_is_refused(given, words):
    """An option that is accepted and ignored would be a lie."""
    with pytest.raises(Misuse, match=words):
        Config(**given)


def test_a_mixing_model_with_biases_reads_back():
    """qkv_bias stays unset where there are no q, k, v."""
    cfg = Config(pe=(("retnet", {}),), biases=True)
    assert Config.from_json(cfg.to_json()) == cfg


def test_a_config_holds_nothing_that_somebody_else_can_change():
    """A recorded step knows a frozen record by its identity: what it holds must stay what it was."""
    sections, pairs = [1, 1, 2], [["mrope", {}]]
    pairs[0][1]["sections"] = sections
    cfg = Config(pairs, H=1, C=8, layers=2)
    sections[0], pairs[0][0] = 7, "none"
    pairs[0][1].clear()
    assert cfg == Config((("mrope", {"sections": (1, 1, 2)}),), H=1, C=8, layers=2)
    ((_, chosen),) = cfg.pe
    for value in (*chosen.values(), *(getattr(cfg, name) for name in OF_FIELDS)):
        for one in value if isinstance(value, tuple) else (value,):
            assert isinstance(one, (bool, int, float, str, type(None))), value


def test_each_layer_knows_itself_and_the_layers_of_its_encoding_before_it():
    """In a cycle that has one encoding twice, and ends in its middle; a model of any depth is described at
    once.
    """
    cycle = ("rwkv7", "none", "rwkv7")
    cfg = Config(pe=tuple((name, {}) for name in cycle), H=2, C=8, layers=8, G=2)
    names = [cycle[layer % 3] for layer in range(8)]
    for layer, name in enumerate(names):
        if name == "rwkv7":
            facts = cfg.encoding(layer).init.keywords
            assert (facts["layer"], facts["earlier"], facts["layers"]) == (
                layer,
                names[:layer].count(name),
                8,
            )
    assert Config(layers=2**53).layers == 2**53


@pytest.mark.parametrize("name", ["L", "V", "C", "layers", "H", "F", "window"])
def test_sizes_end_where_whole_numbers_of_64_bits_do(name):
    refused(f"{name} is {2**53 + 1}; expected at most {2**53}", **{name: 2**53 + 1})
