"""A trace is the model's own pass: its tensors follow from one another as they should, their gradients are
derivatives, and the file beside them says what each is.
"""

import json
import math
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from check import same
from golden_files import cli, dumped

import peref
from peref import model, runs
from peref import trace as traced
from peref.config import Config
from peref.environment import environment
from peref.errors import Misuse
from peref.imported import import_run
from peref.model import PLAIN
from peref.parameter_axes import LEGEND
from peref.porting import config_of, unload
from peref.recipe import Recipe
from peref.runs import open_run
from peref.store import to_bfloat16
from peref.trace import byte_count, described, noted_in, trace, trace_layer

SIZES = {"C": 12, "layers": 3, "H": 3, "G": 1, "D": 4, "V": 29, "L": 8, "F": 10}
TOKENS = np.array([[3, 1, 28, 7, 7, 0, 15]])
KINDS = {  # each kind of layer, block and sublayer that a model may have
    "windows, sinks, softcaps, chunks": {
        "pe": [("rope", {"window": 3, "sinks": True}), ("alibi", {"softcap": 2.0}), ("none", {"chunk": 2})]
    },
    "cosines, temperature, terms, tables": {
        "pe": [("t5", {"cosine": True}), ("rope", {"temperature": "ssmax"}), ("forgetting", {})]
    },
    "mixers and other attention": {"pe": [("rwkv7", {}), ("path", {}), ("rwkv7", {})]},
    "a mixer's own last map": {"pe": [("mamba", {})], "G": None},
    "several in one layer": {"pe": [("rope+alibi", {})], "qk_norm": True},
    "experts": {"pe": [("rope", {"experts": 3})], "experts_chosen": 2, "shared_expert": True},
    "parallel": {"pe": [("rope", {})], "residual": "parallel", "norm_place": "both"},
    "shared": {"pe": [("learned", {})], "residual": "shared", "norm": "layer", "activation": "gelu"},
    "norms after": {"pe": [("rope", {})], "norm_place": "after", "qk_norm": True, "qk_norm_over": "width"},
    "factors": {"pe": [("rope", {})], "logit_softcap": 1.5, "embed_factor": 2.0, "residual_factor": 0.5},
    "a mixer's feed-forward": {"pe": [("rwkv4", {})], "activation": "channel_mix", "G": None},
    "no feed-forward": {"pe": [("mamba", {})], "activation": "none", "G": None, "F": None},
}


def tiny(kind):
    cfg = Config(**(SIZES | KINDS[kind]))
    rng = np.random.default_rng(2)
    return cfg, {n: a + 0.1 * rng.standard_normal(a.shape) for n, a in model.init(cfg, 1, np.float64).items()}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_the_pass_of_the_model(kind):
    """To the last bit; with or without gradients; as large as was said; named and ordered as is said."""
    cfg, params = tiny(kind)
    found = trace(cfg, params, TOKENS, gradients=True)
    same(found["logits"], model.logits(cfg, params, TOKENS), 0)
    targets = np.append(TOKENS[:, 1:], [[-1]], 1)
    same(found["loss"], model.loss(cfg, params, TOKENS, targets)[0], 0)
    assert byte_count(cfg, 7, range(3), np.float64, True) == sum(a.nbytes for a in found.values())
    names = [f"layers.{n}.{name}" for n in range(3) for name in noted_in(cfg, n)]
    names = ["embedded", *names, "final", "logits", "loss"]
    assert list(found)[: len(names)] == names
    of = {f"gradient.{name}" for name in [*names, *(f"parameter.{name}" for name in params)]}
    assert set(list(found)[len(names) :]) == of
    sizes = {**SIZES, "G": cfg.G, "B": 1, "T": 7, "E": cfg.layer(0).experts}
    for said, (name, a) in zip(described(found, cfg.qk_norm_over == "width"), found.items(), strict=True):
        assert said["name"] == name
        if ".pe." in name or ".parameter.pe." in name:
            assert (len(said["axes"]), "own" in said["says"]) == (a.ndim, True)
            continue
        assert [math.prod(sizes[letter] for letter in axis) for axis in said["axes"]] == list(a.shape), name
        assert {*said["axes"]} <= {*LEGEND}
    plain = trace(cfg, params, TOKENS, layers=[1])
    assert list(plain) == [n for n in names if not n.startswith(("layers.0.", "layers.2."))]
    for name, a in plain.items():
        same(a, found[name], 0)


def test_gradients_of_parameters_are_those_of_the_layers_asked_from_the_loss_backwards():
    cfg, params = tiny("norms after")
    found = trace(cfg, params, TOKENS, layers=[1], gradients=True)
    front = "gradient.parameter."
    names = [name.removeprefix(front) for name in found if name.startswith(front)]
    assert names == [
        *("norm.weight", "1.after2.weight", "1.down.weight", "1.up.weight", "1.gate.weight"),
        *("1.after1.weight", "1.o.weight", "1.knorm.weight", "1.qnorm.weight"),
        *("1.v.weight", "1.k.weight", "1.q.weight", "embed.weight"),
    ]
    whole = trace(cfg, params, TOKENS, gradients=True)
    for name, a in found.items():
        same(a, whole[name], 0)
    assert byte_count(cfg, 7, [1], np.float64, True) == sum(a.nbytes for a in found.values())
    says = {one["name"]: one["says"].partition(": ")[2] for one in described(found, wide=True)}
    assert says[f"{front}1.q.weight"] == "the map to queries of layer 1"


def test_each_tensor_follows_from_those_before_it():
    """Written out: what the names mean."""
    cfg, p = tiny("windows, sinks, softcaps, chunks")
    t = trace(cfg, p, TOKENS)
    i = np.arange(7)
    d = i[:, None] - i
    same(t["embedded"], p["embed.weight"][TOKENS], 0)
    for n, seen in enumerate([(d >= 0) & (d < 3), d >= 0, (d >= 0) & (i[:, None] // 2 == i // 2)]):
        of = {name: t[f"layers.{n}.{name}"] for name in noted_in(cfg, n)}
        q, k = of.get("q_turned", of["q"]), of.get("k_turned", of["k"])
        same(of["q"], (of["normed"] @ p[f"{n}.q.weight"].T).reshape(1, 7, 3, 4).swapaxes(1, 2), 1e-12)
        s = q @ k.swapaxes(-1, -2) / 2
        if n == 1:
            s = 2 * np.tanh(s / 2) + of["bias"]
            same(np.where(seen, of["bias"][0], 0), peref.bias("alibi", heads=3, tokens=7), 1e-12)
        same(of["scores"], s, 1e-12)
        e = np.where(seen, np.exp(s), 0)
        sink = np.exp(p["0.sinks"])[:, None, None] if n == 0 else 0
        same(of["probabilities"], e / (e.sum(-1, keepdims=True) + sink), 1e-12)
        same(of["heads"], of["probabilities"] @ of["v"], 1e-12)
        same(of["output"], of["heads"].swapaxes(1, 2).reshape(1, 7, 12) @ p[f"{n}.o.weight"].T, 1e-12)
        same(of["residual"], of["input"] + of["output"], 1e-12)
        gate, up = (of["ffn_normed"] @ p[f"{n}.{name}.weight"].T for name in ("gate", "up"))
        same(of["ffn"], gate / (1 + np.exp(-gate)) * up @ p[f"{n}.down.weight"].T, 1e-12)
        same(of["leaving"], of["residual"] + of["ffn"], 1e-12)
        same(of["input"], t["embedded" if n == 0 else f"layers.{n - 1}.leaving"], 0)
    same(t["logits"], t["final"] @ p["embed.weight" if cfg.tied else "head.weight"].T, 1e-12)


@pytest.mark.parametrize(
    "kind", ["windows, sinks, softcaps, chunks", "parallel", "mixers and other attention"]
)
def test_gradients_are_derivatives_of_the_loss(kind, monkeypatch):
    """Of every tensor, by pushing it both ways in the middle of a pass."""
    cfg, params = tiny(kind)
    found = trace(cfg, params, TOKENS, gradients=True)
    rng, step = np.random.default_rng(5), 3e-5

    class Pushed(traced.Notes):
        def note(self, name, x):
            return super().note(name, x + push if name == target else x)

    monkeypatch.setattr(traced, "Notes", Pushed)
    for target in [name for name in found if not name.startswith("gradient.")]:
        if target.endswith(".bias"):
            same(found[f"gradient.{target}"], found[f"gradient.{target.replace('bias', 'scores')}"], 0)
            continue
        u, ends = rng.standard_normal(found[target].shape), []
        for times in (-2, -1, 1, 2):
            push = times * step * u
            ends.append(float(trace(cfg, params, TOKENS, layers=traced_in(target))["loss"]))
        slope = np.dot(ends, [1, -8, 8, -1]) / (12 * step)
        same(np.asarray((found[f"gradient.{target}"] * u).sum()), slope, 1e-5, target)


def traced_in(name):
    return [int(name.split(".")[1])] if name.startswith("layers.") else []


@pytest.mark.parametrize("kind", ["windows, sinks, softcaps, chunks", "norms after", "no feed-forward"])
def test_one_layer_alone_gives_the_same(kind):
    cfg, params = tiny(kind)
    whole = trace(cfg, params, TOKENS)
    mine = {name: a for name, a in params.items() if name.startswith("2.")}
    alone = trace_layer(cfg, mine, 2, whole["layers.2.input"])
    assert list(alone) == [f"layers.2.{name}" for name in noted_in(cfg, 2)]
    assert byte_count(cfg, 7, [2], np.float64, alone=True) == sum(a.nbytes for a in alone.values())
    for name, a in alone.items():
        same(a, whole[name], 0)


def test_what_cannot_be_traced_is_said(monkeypatch):
    cfg, params = tiny("mixers and other attention")
    for words, asked in {
        "no layer 3; expected 0 to 2": {"layers": [3]},
        "one token has no next token": {"tokens": TOKENS[:, :1], "gradients": True},
        "expected 0 to 28": {"tokens": TOKENS + 1},
    }.items():
        with pytest.raises(Misuse, match=words):
            trace(cfg, params, **({"tokens": TOKENS} | asked))
    with pytest.raises(Misuse, match=r"hands on \(rwkv7.v\)"):
        trace_layer(cfg, params, 2, np.zeros((1, 3, 12)))
    with pytest.raises(Misuse, match="attends to an encoder"):
        traced.check_trace(Config(**SIZES, pe=[("rope", {})], cross=True), 7, [0], np.float64)
    needed = byte_count(cfg, 7, range(3), np.float64)
    monkeypatch.setattr("peref.memory.free", lambda: needed)
    trace(cfg, params, TOKENS)
    monkeypatch.setattr("peref.memory.free", lambda: needed - 1)
    with pytest.raises(Misuse, match="fewer layers"):
        trace(cfg, params, TOKENS)


LLAMA = {
    "model_type": "llama",
    "vocab_size": 256,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A published model in bfloat16, and a run of it."""
    here = tmp_path_factory.mktemp("made")
    (here / "theirs").mkdir()
    tensors = unload(model.init(config_of(LLAMA), 3), config_of(LLAMA))
    halves = {name: ("BF16", to_bfloat16(a)["bfloat16"]) for name, a in tensors.items()}
    dumped(here / "theirs" / "model.safetensors", halves)
    (here / "theirs" / "config.json").write_text(json.dumps(LLAMA))
    import_run(here / "theirs", here, [], name="mine")
    return here


def test_the_command_writes_tensors_and_what_they_are(made, capsys, tmp_path):
    out = tmp_path / "ref.safetensors"
    code, said = cli(capsys, "trace", made / "mine", "--prompt", "hello", "-o", out, "--gradients", "--json")
    assert code == 0, said
    found = safetensors.numpy.load_file(out)
    about = json.loads((tmp_path / "ref.json").read_text())
    assert {key: about[key] for key in ("format", "peref", "dtype", "tokens", "positions", "seg", "n")} == {
        **{"format": "peref trace 1", "peref": peref.__version__, "dtype": "float64", "seg": None},
        **{"tokens": [[*b"hello"]], "positions": [0, 1, 2, 3, 4], "n": 5},
    }
    assert about["config"] == open_run(made / "mine").record["config"]
    assert about["source"] == str(made / "mine")
    assert about["letters"]["GD"].startswith("channels of all key-value heads")
    names = [f"layers.{n}.{name}" for n in range(2) for name in noted_in(config_of(LLAMA), n)]
    names = ["embedded", *names, "final", "logits", "loss", "gradient.loss", "gradient.logits"]
    assert [one["name"] for one in about["tensors"]][: len(names)] == names
    assert {one["name"]: len(one["axes"]) for one in about["tensors"]} == {
        n: a.ndim for n, a in found.items()
    }
    (tmp_path / "tokens.json").write_text(json.dumps([*b"hello"]))
    (tmp_path / "tokens.txt").write_text(" ".join(map(str, b"hello\n"[:5])))
    for file in ("tokens.json", "tokens.txt"):
        again = tmp_path / "again.safetensors"
        line = ["trace", made / "mine", "--tokens", tmp_path / file, "-o", again, "--layers", "1"]
        code, said = cli(capsys, *line, "--dtype", "float32")
        assert code == 0, said
        other = safetensors.numpy.load_file(again)
        assert "1 layer" in said
        assert {a.dtype.name for a in other.values()} == {"float32"}
        assert {name for name in other if name.startswith("layers.")} == {
            name for name in found if name.startswith("layers.1.")
        }
        same(other["logits"].astype(np.float64), found["logits"], 1e-5)


def test_one_layer_of_a_published_model_on_somebodys_states(made, capsys, tmp_path):
    """In bfloat16, from the folder of the model or from its run; only that layer's tensors are read."""
    rng = np.random.default_rng(0)
    states = to_bfloat16(rng.standard_normal((5, 16)).astype(np.float32))
    dumped(tmp_path / "x.safetensors", {"hidden": ("BF16", states["bfloat16"])})
    for folder in ("theirs", "mine"):
        out = tmp_path / f"{folder}.safetensors"
        line = ["trace", made / folder, "--layer", "1", "--input", tmp_path / "x.safetensors", "-o", out]
        code, said = cli(capsys, *line)
        assert code == 0, said
    (one, other) = (safetensors.numpy.load_file(tmp_path / f"{n}.safetensors") for n in ("theirs", "mine"))
    same(one, other, 0)
    assert "layers.1.scores" in one
    assert not [name for name in one if not name.startswith("layers.1.")]
    assert json.loads((tmp_path / "theirs.json").read_text())["tokens"] is None
    bits = (states["bfloat16"].astype(np.uint32) << 16).view(np.float32)
    same(one["layers.1.input"][0], bits.astype(np.float64), 0)


REFUSED = {
    "error: the prompt is empty; give it at least one token\n": ["--prompt", "", "-o", "r.safetensors"],
    "NAME.safetensors": ["--prompt", "a", "-o", "ref.npz"],
    "expected one of: --prompt": ["--prompt", "a", "--tokens", "t.txt", "-o", "r.safetensors"],
    "--layer N with --input": ["--layer", "1", "-o", "r.safetensors"],
    "one layer has no loss": [
        "--layer",
        "1",
        "--input",
        "x.safetensors",
        "--gradients",
        "-o",
        "r.safetensors",
    ],
    "numbers of layers": ["--prompt", "ab", "--layers", "all", "-o", "r.safetensors"],
    "expected positions, [2] or [axes,1,2]": ["--prompt", "ab", "--place", "odd.json", "-o", "r.safetensors"],
    "seg is [2]; expected [1, 2]": ["--prompt", "ab", "--place", "flat.json", "-o", "r.safetensors"],
    "no layer 7": ["--prompt", "ab", "--layers", "7", "-o", "r.safetensors"],
    "words.txt: 'one' is none; expected numbers of tokens": ["--tokens", "words.txt", "-o", "r.safetensors"],
    "w.txt: Error while deserializing header": [*("--layer", "1", "--input", "w.txt", "-o", "r.safetensors")],
    "w.txt: not JSON": ["--prompt", "ab", "--place", "w.txt", "-o", "r.safetensors"],
    "expected layers.1.input, [T,16] or [1,T,16]": [
        *("--layer", "1", "--input", "x.safetensors", "-o", "r.safetensors")
    ],
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_is_wrong_is_one_line_and_leaves_nothing(words, made, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.txt").write_text("one two")
    (tmp_path / "w.txt").write_text("one two")
    (tmp_path / "odd.json").write_text('{"positions": [[0], [1, 2]]}')
    (tmp_path / "flat.json").write_text('{"seg": [1, 2]}')
    safetensors.numpy.save_file({"x": np.zeros((2, 3, 16))}, tmp_path / "x.safetensors")
    code, said = cli(capsys, "trace", made / "mine", *REFUSED[words])
    assert code == 2
    assert words in said
    assert said.count("\n") == 1
    assert not list(tmp_path.glob("r.*"))


@pytest.fixture
def made_here(tmp_path, monkeypatch):
    """What makes the folder of a run of a config and weights, in a folder of its own."""

    def make(cfg, params):
        monkeypatch.chdir(tmp_path)
        record = {"config": cfg.to_json(), "recipe": asdict(Recipe(dtype="float32")), "steps": 0, "argv": []}
        record |= {"data": {"name": "", "spec": "", "sha256": ""}, "environment": environment(PLAIN)}
        record |= {"imported": {"folder": "", "model": "", "files": {}}}
        run = runs.create("runs", ["x"], record, first={f"p/{name}": a for name, a in params.items()})
        return run.folder

    return make


def test_sections_of_mrope_are_told_apart_on_positions_of_several_axes(made_here, capsys, tmp_path):
    """The planted bug "sections swapped": text with a picture of 2 x 3 patches inside, by the commands."""
    cfg = Config(**SIZES | {"D": 8, "G": 3}, pe=[("mrope", {"sections": [1, 2, 1]})])
    params = model.init(cfg, 3)
    folder = made_here(cfg, params)
    place = {
        "positions": [[[0, 1, 1, 1, 1, 1, 1, 4]], [[0, 1, 1, 1, 2, 2, 2, 4]], [[0, 1, 2, 3, 1, 2, 3, 4]]]
    }
    (tmp_path / "place.json").write_text(json.dumps(place))
    (tmp_path / "tokens.txt").write_text("3 1 28 7 7 0 15 2")
    line = ["trace", folder, "--tokens", "tokens.txt", "-o", "ref.safetensors", "--place"]
    code, said = cli(capsys, *line, "place.json")
    assert code == 0, said
    assert json.loads((tmp_path / "ref.json").read_text())["positions"] == place["positions"]
    assert cli(capsys, *line, "ref.json")[0] == 0
    other = Config.from_json(cfg.to_json() | {"pe": [["mrope", {"sections": [2, 1, 1]}]]})
    at, tokens = other.place(1, 8, **place), np.array([[3, 1, 28, 7, 7, 0, 15, 2]])
    theirs = trace(other, params, tokens, at=at)
    safetensors.numpy.save_file({n: np.ascontiguousarray(a) for n, a in theirs.items()}, "theirs.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    assert code == 1
    assert said.startswith("FAIL layers.0.q_turned"), said
    assert "layer 0 has sections 2,1,1; it has sections 1,2,1" in said
    for order, words in (
        ([0, 2, 1], "in the order 0,2,1; they"),
        ([0, 0, 0], "the positions is the first; they"),
    ):
        theirs = trace(cfg, params, tokens, at=cfg.place(1, 8, [place["positions"][n] for n in order]))
        came = {n: np.ascontiguousarray(a) for n, a in theirs.items()}
        safetensors.numpy.save_file(came, "theirs.safetensors")
        code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
        assert (code, words in said) == (1, True), said


def test_mrope_of_qwen2_vl_is_what_its_dump_says(capsys, tmp_path, monkeypatch):
    """Its text, imported as a qwen2 with sections; a picture of 2 x 2 patches inside, and every gradient."""
    torch = pytest.importorskip("torch", reason="PyTorch and transformers are no dependencies of the tests")
    hf = pytest.importorskip("transformers", reason="transformers is no dependency of the tests")
    monkeypatch.chdir(tmp_path)
    text = {"vocab_size": 40, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "intermediate_size": 24, "max_position_embeddings": 64}
    text |= {"rms_norm_eps": 1e-5, "tie_word_embeddings": False}
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
    text["rope_parameters"] = rope
    seeing = {"depth": 1, "embed_dim": 8, "hidden_size": 32, "num_heads": 2}
    torch.manual_seed(0)
    net = hf.Qwen2VLForConditionalGeneration(hf.Qwen2VLConfig(text_config=text, vision_config=seeing))
    net.save_pretrained("whole")
    assert "pictures among the tokens" in cli(capsys, "import", "whole")[1]
    weights = {n.replace("language_model.", ""): x.numpy() for n, x in net.state_dict().items()}
    Path("theirs").mkdir()
    of_text = {n: a for n, a in weights.items() if "visual" not in n}
    safetensors.numpy.save_file(of_text, "theirs/model.safetensors")
    Path("theirs/config.json").write_text(json.dumps(text | {"model_type": "qwen2"}))
    assert cli(capsys, "import", "theirs", "-o", "mine")[0] == 0
    place = [[[0, 1, 2, 2, 2, 2, 4]], [[0, 1, 2, 2, 3, 3, 4]], [[0, 1, 2, 3, 2, 3, 4]]]
    Path("place.json").write_text(json.dumps({"positions": place}))
    line = ["trace", "mine", "--prompt", "3 1 28 7 7 0 15", "--place", "place.json", "--gradients"]
    assert cli(capsys, *line, "-o", "ref.safetensors")[0] == 0
    dump = [
        sys.executable,
        PAGE_AT.parent / "dump_transformers.py",
        "whole",
        "ref.json",
        "theirs.safetensors",
    ]
    done = subprocess.run([*dump, "--gradients"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    assert (code, "95 tensors agree" in said, "not in" in said) == (0, True, False), said


def test_packed_documents_are_the_documents_alone():
    """Their logits, and the loss of the next tokens of both."""
    cfg, params = tiny("windows, sinks, softcaps, chunks")
    packed = trace(cfg, params, TOKENS, at=cfg.place(1, 7, seg=[[1, 1, 1, 2, 2, 2, 2]]))
    parts = [trace(cfg, params, part) for part in (TOKENS[:, :3], TOKENS[:, 3:])]
    same(packed["logits"], np.concatenate([one["logits"] for one in parts], 1), 1e-12)
    same(packed["loss"], np.asarray((2 * parts[0]["loss"] + 3 * parts[1]["loss"]) / 5), 1e-12)


PAGE_AT = Path(__file__).resolve().parent.parent / "docs" / "porting.md"
PAGE = PAGE_AT.read_text()


def test_the_page_has_every_name():
    """With its axes and what it is, in the order of computation."""
    whole = dict(traced.OUTSIDE)
    names = {"embedded": whole.pop("embedded")}
    names |= {f"layers.N.{name}": about for name, about in traced.OF_LAYER.items()} | whole
    rows = [f"| `{name}` | [{','.join(axes)}] | {says} |" for name, (axes, says) in names.items()]
    assert "\n".join(rows) in PAGE


def test_traces_are_what_transformers_dumps():
    """Of every family of the page's table, each tensor and gradient to 1e-9; as many as it says."""
    for library in ("torch", "transformers"):
        pytest.importorskip(library, reason=f"{library} is no dependency of the tests")
    root = Path(__file__).resolve().parent.parent
    line = [sys.executable, root / "benchmarks" / "trace_against_transformers.py"]
    env = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(line, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    counts = [row.split("|")[1:5] for row in done.stdout.splitlines()]
    assert counts == [row.split("|")[1:5] for row in PAGE.splitlines() if row.count("|") == 8]


OF_THEIRS = {  # what their classes are called and given
    "Llama": {"intermediate_size": 20, "num_key_value_heads": 1, "max_position_embeddings": 16},
    "Cohere2": {"intermediate_size": 20, "sliding_window": 3, "pad_token_id": None, "num_key_value_heads": 1},
    "Falcon": {"alibi": False, "multi_query": True},
}


@pytest.mark.parametrize("kind", OF_THEIRS)
def test_the_dumper_puts_tokens_where_the_trace_says(kind, capsys, tmp_path, monkeypatch):
    """Padding on the left and two documents: every tensor and gradient agrees, the loss too."""
    torch = pytest.importorskip("torch", reason="PyTorch and transformers are no dependencies of the tests")
    hf = pytest.importorskip("transformers", reason="transformers is no dependency of the tests")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(PAGE_AT.parent)
    dumper = pytest.importorskip("dump_transformers")
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2}
    torch.manual_seed(0)
    net = getattr(hf, f"{kind}ForCausalLM")(getattr(hf, f"{kind}Config")(**sizes, **OF_THEIRS[kind]))
    net.save_pretrained("theirs")
    code, said = cli(capsys, "import", "theirs", "-o", "mine")
    assert code == 0, said
    Path("place.json").write_text('{"seg": [[0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2]]}')
    line = ["trace", "mine", "--prompt", "3 1 28 7 7 0 15 2 9 9 30", "--place", "place.json", "--gradients"]
    code, said = cli(capsys, *line, "-o", "ref.safetensors")
    assert code == 0, said
    found = dumper.dumped(net, json.loads(Path("ref.json").read_text()), gradients=True)
    safetensors.numpy.save_file({n: x.numpy() for n, x in found.items()}, "theirs.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    assert code == 0, said
    assert "loss" in found
