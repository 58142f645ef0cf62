"""show --config A --config B: from which layer on two models differ, and in what."""

import json
from pathlib import Path

import pytest

from peref.cli import run
from peref.cli.signals import Signals

CONFIGS = Path(__file__).resolve().parent / "configs"
SIZES = {"vocab_size": 31, "hidden_size": 24, "num_hidden_layers": 5, "num_attention_heads": 6}
SIZES |= {"intermediate_size": 40, "max_position_embeddings": 64, "num_key_value_heads": 2}
LLAMA = {"model_type": "llama", **SIZES}
SMOL = {"model_type": "smollm3", **SIZES}  # whose class turns with the base 2e6
MISTRAL = {"model_type": "mistral", **SIZES, "sliding_window": None}
OLMO = {"model_type": "olmo3", **SIZES, "sliding_window": 3}
GEMMA = {"model_type": "gemma2", **SIZES, "query_pre_attn_scalar": 16, "head_dim": 8, "sliding_window": 3}
GPT2 = {"model_type": "gpt2", "vocab_size": 31, "n_embd": 24, "n_layer": 5, "n_head": 6, "n_positions": 64}
T5 = {
    "model_type": "t5",
    "vocab_size": 31,
    "d_model": 24,
    "d_kv": 4,
    "d_ff": 40,
    "num_heads": 6,
    "num_layers": 2,
}
PLAIN = {"rope_type": "default", "rope_theta": 1e4}
MINISTRAL = {"model_type": "ministral3", **SIZES, "head_dim": 4, "rope_parameters": PLAIN}
TEMPERED = PLAIN | {"llama_4_scaling_beta": 0.2, "original_max_position_embeddings": 16}
TYPES = ["full_attention"] * 3 + ["sliding_attention"] * 2


@pytest.fixture
def compared(tmp_path, monkeypatch, capsys):
    """What is printed of two models, and the same as data."""
    monkeypatch.chdir(tmp_path)

    def call(a, b):
        for name, data in (("a.json", a), ("b.json", b)):
            Path(name).write_text(json.dumps(data))
        line = ["show", "--config", "a.json", "--config", "b.json"]
        assert run(line, Signals()) == 0
        said = capsys.readouterr().out
        assert run([*line, "--json"], Signals()) == 0
        return said, json.loads(capsys.readouterr().out)

    return call


def layers_of(data):
    return [(group["layers"], group["differ"]) for group in data["differ"]]


ALL = [0, 1, 2, 3, 4]
NOPE = {"encoding": ["rope", "none"], "base": [2e6, None], "rotary_dim": [4, None]}
NOPE |= {"layout": ["half", None]}
APART = {
    "windows in the last layers": (
        OLMO | {"layer_types": ["full_attention"] * 5},
        OLMO | {"layer_types": TYPES},
        [([3, 4], {"window": [None, 3]})],
    ),
    "one layer without positions": (SMOL | {"no_rope_layers": [1] * 5}, SMOL, [([3], NOPE)]),
    "base": (LLAMA, LLAMA | {"rope_theta": 5e5}, [(ALL, {"base": [1e4, 5e5]})]),
    "eps": (LLAMA, MISTRAL | {"rms_norm_eps": 1e-5}, [(ALL, {"eps": [1e-6, 1e-5]})]),
    "biases": (
        LLAMA,
        LLAMA | {"attention_bias": True},
        [(ALL, {"qkv_bias": [False, True], "o_bias": [False, True]})],
    ),
    "scale": (GEMMA, GEMMA | {"query_pre_attn_scalar": 64}, [(ALL, {"scale": [0.25, 0.125]})]),
    "softcap": (GEMMA, GEMMA | {"attn_logit_softcapping": None}, [(ALL, {"softcap": [50.0, None]})]),
    "temperature": (
        MINISTRAL,
        MINISTRAL | {"rope_parameters": TEMPERED},
        [
            (
                ALL,
                {
                    "temperature": ["none", "ministral3"],
                    "temperature_slope": [None, 0.2],
                    "temperature_length": [None, 16],
                },
            )
        ],
    ),
    "channels that turn": (
        {"model_type": "phi3", **SIZES},
        {"model_type": "phi3", **SIZES, "partial_rotary_factor": 0.5},
        [(ALL, {"rotary_dim": [4, 2]})],
    ),
    "norms": (
        LLAMA | {"rms_norm_eps": 1e-5},
        OLMO | {"sliding_window": None, "layer_types": ["full_attention"] * 5, "model_type": "olmo2"},
        [
            (
                ALL,
                {
                    "norm_place": ["before", "after"],
                    "qk_norm": [False, True],
                    "qk_norm_over": ["head", "width"],
                },
            )
        ],
    ),
}


@pytest.mark.parametrize("what", APART)
def test_what_differs_is_said_with_its_layers(compared, what):
    """That and nothing else, and the first of these layers; the other way round with the values swapped."""
    a, b, wanted = APART[what]
    said, data = compared(a, b)
    assert layers_of(data) == wanted
    assert data["from_layer"] == wanted[0][0][0]
    assert f"they differ from layer {wanted[0][0][0]} on" in said
    for name, (x, y) in wanted[0][1].items():
        assert f"{name} A {'none' if x is None else x} B {'none' if y is None else y}" in " ".join(
            said.split()
        )
    _, turned = compared(b, a)
    assert [(n, {k: x[::-1] for k, x in one.items()}) for n, one in layers_of(turned)] == wanted
    assert data["not_compared"] == {}


def test_equal_models_say_so(compared):
    """Though one of them spells out what the other leaves to its class, or has another model_type."""
    for other in (LLAMA, LLAMA | {"rope_theta": 1e4, "attention_bias": False}, MISTRAL):
        said, data = compared(LLAMA, other)
        assert (data["from_layer"], data["differ"], data["around"], data["sizes"]) == (None, [], {}, {})
        assert "layers        the same in 5 layers" in said
        assert "differ" not in said


def test_sizes_and_what_is_around_are_told_apart_from_layers(compared):
    """They do not make a layer another."""
    tied = {"tie_word_embeddings": True, "vocab_size": 40, "num_key_value_heads": 3}
    said, data = compared(LLAMA, LLAMA | tied)
    assert (data["from_layer"], data["differ"]) == (None, [])
    assert data["around"] == {"tied": [False, True]}
    assert data["sizes"] == {"V": [31, 40], "G": [2, 3]}
    assert "around them" in said
    assert "sizes" in said
    said, data = compared(LLAMA, LLAMA | {"num_hidden_layers": 7})
    assert (data["from_layer"], data["layers"], data["compared"]) == (5, [5, 7], 5)
    assert "only one has  layers 5 to 6: B" in said


def test_what_is_not_compared_is_said(compared):
    """A model that is read in part is compared by its encodings alone, with the reason."""
    latent = json.loads((CONFIGS / "deepseek-v3.json").read_text())
    said, data = compared(LLAMA, latent)
    assert data["not_compared"].keys() == {"b.json"}
    assert "latent attention" in data["not_compared"]["b.json"]
    assert layers_of(data)[0][0] == ALL
    assert layers_of(data)[0][1]["encoding"] == ["rope", "yarn"]
    assert "activation" not in layers_of(data)[0][1]
    assert "not compared  b.json: all but the rotations" in said
    said, data = compared(latent, latent)
    assert (data["from_layer"], data["differ"]) == (None, [])
    assert "encodings are the same in 61 layers" in said
    _, data = compared(GPT2, latent)  # what does not turn has its own encoding all the same
    assert layers_of(data)[0][1]["encoding"] == ["learned", "yarn"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["--config", "a.json"] * 3, "--config is given 3 times; one is described, two are compared"),
        ([*["--config", "a.json"] * 2, "-o", "x.png"], "-o draws one model; leave it out"),
        ([*["--config", "a.json"] * 2, "--len", "8"], "leave out --len"),
        (["--config", "a.json", "--config", "none.json"], "none.json: cannot read"),
    ],
)
def test_what_does_not_go_together(compared, capsys, line, words):
    """In one line, with what to do."""
    compared(LLAMA, LLAMA)
    assert run(["show", *line], Signals()) in (1, 2)
    assert words in capsys.readouterr().err


def test_encoders_with_decoders_are_compared_by_halves(compared, capsys):
    """T5 and 1.1; with one model neither can be."""
    newer = {"num_decoder_layers": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    said, data = compared(T5, T5 | newer)
    for half, layers in (("encoder", [2, 2]), ("decoder", [2, 3])):
        assert data[half]["layers"] == layers
        assert layers_of(data[half]) == [([0, 1], {"activation": ["relu", "geglu"]})]
    assert data["decoder"]["around"]["tied"] == [True, False]
    assert "\nencoder\nA  " in said
    assert said.index("decoder\nA  ") < said.index("only one has  layers 2 to 2: B")
    for path, public in (("a.json", T5), ("b.json", LLAMA)):
        Path(path).write_text(json.dumps(public))
    assert run(["show", "--config", "a.json", "--config", "b.json"], Signals()) == 2
    assert "a.json is of an encoder and a decoder; it can be compared with another" in capsys.readouterr().err
