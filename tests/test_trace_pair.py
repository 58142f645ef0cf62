"""T5, an encoder and a decoder: imported, traced, compared, generated from, exported; against its formulas
written out here from the public names, and against transformers where that is installed.
"""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from check import same
from golden_files import cli
from loops import t5
from safetensors.numpy import load_file, save_file

from peref import model
from peref import trace as traced
from peref.config import Config
from peref.errors import Misuse
from peref.evaluate import weights_of
from peref.porting import pair_of, unload
from peref.runs import open_run
from peref.trace import byte_count, halves, noted_in, trace

OLD = {"model_type": "t5", "vocab_size": 31, "d_model": 16, "d_kv": 3, "d_ff": 20, "num_heads": 5}
OLD |= {"num_layers": 2, "is_encoder_decoder": True, "decoder_start_token_id": 0, "tie_word_embeddings": True}
OLD |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}
NEW = OLD | {"num_decoder_layers": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
FORMS = {"t5": OLD, "1.1": NEW}
SOURCE, TOKENS = [3, 1, 5, 2, 9, 30, 8, 1, 1, 4], [0, 7, 7, 12, 4, 22, 1]
DUMPER = Path(__file__).resolve().parent.parent / "docs" / "dump_transformers.py"


def drawn(config):
    """Random weights under public names, no two parts of them alike."""
    rng, first = np.random.default_rng(4), unload(model.init(pair_of(config), 0), pair_of(config))
    return {name: (a + 0.3 * rng.standard_normal(a.shape)).astype(np.float32) for name, a in first.items()}


@pytest.fixture(params=FORMS)
def theirs(request, tmp_path, monkeypatch):
    """The config.json of a published T5 whose folder is `theirs`, beside its run `mine`."""
    monkeypatch.chdir(tmp_path)
    Path("theirs").mkdir()
    save_file(drawn(FORMS[request.param]), "theirs/model.safetensors")
    Path("theirs/config.json").write_text(json.dumps(FORMS[request.param]))
    return FORMS[request.param]


def in_words(tokens):
    return " ".join(map(str, tokens))


def reference(capsys, *more):
    assert cli(capsys, "import", "theirs", "-o", "mine")[0] == 0
    line = ["trace", "mine", "--source", in_words(SOURCE), "--prompt", in_words(TOKENS), *more]
    code, said = cli(capsys, *line, "-o", "ref.safetensors")
    assert code == 0, said
    return load_file("ref.safetensors")


def written_out(config, w, source, tokens):
    """Every tensor of a T5 by its formulas, from weights under their public names."""
    w, found, H = {name: a.astype(np.float64) for name, a in w.items()}, {}, config["num_heads"]
    gelu = lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w[f"{name}.weight"]

    def attention(keep, names, here, x, memory, see, bias):
        q, k, v = (
            keep(role, (y @ w[f"{here}.{role}.weight"].T).reshape(len(y), H, -1).swapaxes(0, 1))
            for role, y in (("q", x), ("k", memory), ("v", memory))
        )
        s = keep("scores", q @ k.swapaxes(1, 2) + (0 if bias is None else keep("bias", bias)))
        e = np.where(see, np.exp(s), 0)
        o = keep("heads", keep("probabilities", e / e.sum(-1, keepdims=True)) @ v)
        return keep("output", o.swapaxes(0, 1).reshape(len(x), -1) @ w[f"{here}.o.weight"].T)

    def stack(half, front, many, tokens, memory):
        causal = half == "decoder"
        d = np.arange(len(tokens))[:, None] - np.arange(len(tokens))
        see, sizes = (d >= 0) | (not causal), (causal, 8, 6)
        rows = np.array([[t5.bucket(one, *sizes) for one in row] for row in d])
        table = w[f"{half}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        x = found[f"{front}embedded"] = w["shared.weight"][tokens]
        for n in range(many):
            at, sublayers = (
                f"{half}.block.{n}.layer",
                [("", "SelfAttention", None, see, table[rows].T.swapaxes(1, 2))],
            )
            sublayers += [("cross_", "EncDecAttention", memory, True, None)] if causal else []

            def keep(step, a, n=n):
                found[f"{front}layers.{n}.{step}"] = a
                return a

            keep("input", x)
            for i, (cross, name, read, mask, bias) in enumerate(sublayers):
                mine = lambda step, a, cross=cross: keep(f"{cross}{step}", a)
                h = mine("normed", norm(x, f"{at}.{i}.layer_norm"))
                y = attention(mine, "qkv", f"{at}.{i}.{name}", h, h if read is None else read, mask, bias)
                x = mine("residual", x + y)
            feed = f"{at}.{len(sublayers)}"
            h, up = keep("ffn_normed", norm(x, f"{feed}.layer_norm")), f"{feed}.DenseReluDense.wi"
            if f"{up}.weight" in w:
                h = np.maximum(h @ w[f"{up}.weight"].T, 0)
            else:
                h = gelu(h @ w[f"{up}_0.weight"].T) * (h @ w[f"{up}_1.weight"].T)
            x = keep("leaving", x + keep("ffn", h @ w[f"{feed}.DenseReluDense.wo.weight"].T))
        found[f"{front}final"] = norm(x, f"{half}.final_layer_norm")
        return found[f"{front}final"]

    memory = stack("encoder", "encoder.", config["num_layers"], source, None)
    y = stack("decoder", "", config.get("num_decoder_layers", config["num_layers"]), tokens, memory)
    tied = "lm_head.weight" not in w
    found["logits"] = (
        y @ w["shared.weight" if tied else "lm_head.weight"].T * (config["d_model"] ** -0.5 if tied else 1)
    )
    return {name: a[None] for name, a in found.items()}


def loss_of(logits, tokens):
    """The mean cross-entropy of each next token."""
    e = np.exp(logits[0, :-1])
    return -np.log(e[np.arange(len(tokens) - 1), tokens[1:]] / e.sum(-1)).mean()


def test_every_tensor_is_that_of_the_formulas(theirs, capsys):
    """From the folder to the trace: no tensor more, none less, in the order of computation; as large as was
    said.
    """
    found = reference(capsys)
    want = written_out(theirs, drawn(theirs), SOURCE, TOKENS)
    want["loss"] = loss_of(want["logits"], TOKENS)
    about = json.loads(Path("ref.json").read_text())
    assert (about["tokens"], about["encoder_tokens"]) == ([TOKENS], [SOURCE])
    assert set(found) == set(want)
    pair = pair_of(theirs)
    named = {
        f: [f"{f}layers.{n}.{s}" for n in range(c.layers) for s in noted_in(c, n)]
        for f, c in halves(pair).items()
    }
    whole = [
        "encoder.embedded",
        *named["encoder."],
        "encoder.final",
        "embedded",
        *named[""],
        "final",
        "logits",
        "loss",
    ]
    assert [one["name"] for one in about["tensors"]] == whole
    sizes = {"B": 1, "T": 7, "S": 10, "H": 5, "G": 5, "D": 3, "C": 16, "V": 31}
    for one in about["tensors"]:
        name, T = one["name"], 10 if one["name"].startswith("encoder.") else 7
        assert [(sizes | {"T": T})[axis] for axis in one["axes"]] == list(found[name].shape)
        if name.endswith((".scores", ".bias")) and T == 7:  # what lies behind the mask is nobody's business
            same(np.tril(found[name]), np.tril(want[name]), 1e-13, name)
        else:
            same(found[name], np.asarray(want[name]), 1e-12, name)
    assert byte_count(pair, 7, range(3), np.float64, S=10) == sum(a.nbytes for a in found.values())


def test_gradients_are_derivatives_of_the_loss(monkeypatch):
    """Of tensors of both and of a table that the encoder's layers share, by pushing them both ways."""
    pair = pair_of(NEW)
    params = {name: a.astype(np.float64) for name, a in model.init(pair, 3).items()}
    inputs = {"tokens": np.array([TOKENS]), "source": np.array([SOURCE])}
    found, rng, step = trace(pair, params, **inputs, gradients=True), np.random.default_rng(5), 3e-5
    assert byte_count(pair, 7, range(3), np.float64, True, S=10) == sum(a.nbytes for a in found.values())

    class Pushed(traced.Notes):
        def note(self, name, x):
            return super().note(name, x + push if f"{self.front}{name}" == target else x)

    monkeypatch.setattr(traced, "Notes", Pushed)
    ends = "encoder.embedded encoder.layers.1.scores encoder.final layers.0.cross_k layers.2.cross_scores "
    for target in (ends + "layers.1.cross_residual parameter.encoder.pe.0.table").split():
        gradient, losses = found[f"gradient.{target}"], []
        u, name = rng.standard_normal(gradient.shape), target.removeprefix("parameter.")
        for times in (-2, -1, 1, 2):
            push = times * step * u
            moved = params | ({name: params[name] + push} if name in params else {})
            losses.append(float(trace(pair, moved, **inputs)["loss"]))
        slope = np.dot(losses, [1, -8, 8, -1]) / (12 * step)
        same(np.asarray((gradient * u).sum()), slope, 1e-5, target)


def in_float32(tensors):
    return {name: np.array(a, np.float32, order="C") for name, a in tensors.items()}


def changed(pair, half, **fields):
    """With other fields in the encoder or the decoder."""
    return replace(pair, **fields if half == "decoder" else {"encoder": replace(pair.encoder, **fields)})


def with_table(keys, causal):
    """The decoder's table over so many keys."""
    table = drawn(OLD)["decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    rows = [[t5.bucket(i - j, causal, 8, 6) for j in range(keys)] for i in range(7)]
    return table[np.array(rows)].transpose(2, 0, 1)[None].astype(np.float64)


RIGHT, BUCKETS = pair_of(OLD), {"buckets": 8, "max_distance": 6}
WRONG = {  # what theirs computes, or a step of it; the first that differs; what is said of it
    "far buckets": (
        changed(RIGHT, "encoder", pe=(("t5", BUCKETS | {"max_distance": 12}),)),
        *("encoder.layers.0.bias", "layer 0 has max_distance 12; it has max_distance 6"),
    ),
    "a scale": (
        changed(RIGHT, "decoder", pe=(("t5", BUCKETS | {"divided": "qk"}),)),
        *("layers.0.scores", "layer 0 has divided qk; it has divided not"),
    ),
    "logits not divided": (
        changed(RIGHT, "decoder", logit_factor=1.0),
        *("logits", "logit_factor is 1 in theirs; logit_factor is 0.25 in the config"),
    ),
    "attention across divided": (
        {"layers.1.cross_scores": lambda x: x * 3**-0.5},
        *("layers.1.cross_scores", "layer 1: attention to the encoder is scaled by D^-0.5"),
    ),
    "an encoder's buckets in the decoder": (
        {"layers.1.bias": lambda x: with_table(7, False)},
        *("layers.1.bias", "half of your buckets are kept for the future, as in a two-sided model"),
    ),
    "a bias across": (
        {"layers.1.cross_scores": lambda x: x + with_table(10, True)},
        *("layers.1.cross_scores", "attention to the encoder has the bias of attention to itself"),
    ),
    "a mean in the encoder's norm": (
        {"encoder.final": lambda x: x - x.mean(-1, keepdims=True)},
        *("encoder.final", "no known reading of final"),
    ),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("theirs", ["t5"], indirect=True)
def test_the_first_that_differs_is_named(what, theirs, capsys):
    """In the encoder, in the decoder, between the two; whatever comes after it."""
    ours = reference(capsys)
    wrong, first, words = WRONG[what]
    if isinstance(wrong, Config):
        params = {name: a.astype(np.float64) for name, a in weights_of(open_run("mine"))[1].items()}
        came = trace(wrong, params, np.array([TOKENS]), source=np.array([SOURCE]))
    else:
        came = {name: wrong.get(name, lambda x: x)(a) for name, a in ours.items()}
    single = in_float32(came)
    save_file(single, "theirs.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    assert code == 1
    assert said.startswith(f"FAIL {first} "), said
    assert words in said, said
    del single["encoder.final"]
    save_file(single, "theirs.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    assert (code, said.count("\n")) == (2, 1)
    assert "theirs has no encoder.final" in said


def test_a_right_engine_in_float32_agrees(theirs, capsys):
    ours = reference(capsys)
    want = written_out(theirs, drawn(theirs), SOURCE, TOKENS)
    single = in_float32(want)
    save_file(single, "theirs.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    agree = f"{len(ours) - 1} tensors agree, each by what theirs before it make (class C: "
    assert (code, said.startswith(agree)) == (0, True), said
    assert said.endswith("formula); not in theirs.safetensors: loss\n")
    save_file({name: a for name, a in single.items() if name.startswith("encoder.")}, "theirs.safetensors")
    code, said = cli(capsys, "diff", "ref.safetensors", "theirs.safetensors")
    layers = "0, 1" if theirs == OLD else "0 to 2"
    lacks = f"not in theirs.safetensors: embedded, all of layers {layers}, final, logits, loss"
    assert (code, lacks in said) == (0, True), said


def test_it_writes_what_its_formulas_write(theirs, capsys):
    """Always the likeliest token, from the one that its config.json begins with."""
    assert cli(capsys, "import", "theirs", "-o", "mine")[0] == 0
    tokens = [0]
    for _ in range(4):
        tokens.append(int(written_out(theirs, drawn(theirs), SOURCE, tokens)["logits"][0, -1].argmax()))
    line = ["generate", "mine", "--prompt", in_words(SOURCE), "--tokens", 4, "--temperature", 0]
    assert cli(capsys, *line, "--backend", "numpy") == (0, in_words(tokens[1:]) + " \n")
    code, said = cli(capsys, *line, "--pe", "rope")
    assert (code, "is an encoder and a decoder; leave out --pe" in said) == (2, True)
    Path("theirs/config.json").write_text(json.dumps(theirs | {"decoder_start_token_id": None}))
    cli(capsys, "import", "theirs", "-o", "silent")
    assert "decoder_start_token_id is None" in cli(capsys, "generate", "silent", "--prompt", "1")[1]


def test_export_writes_back_what_was_read(theirs, capsys):
    cli(capsys, "import", "theirs", "-o", "mine")
    assert cli(capsys, "export", "mine", "-o", "back")[0] == 0
    same(load_file("back/model.safetensors"), load_file("theirs/model.safetensors"), 0)
    assert json.loads(Path("back/config.json").read_text()) == theirs


REFUSED = {
    "trace and generate do": ["eval", "mine", "--data", "ref.json"],
    "generate mine --prompt TEXT": ["train", "--resume", "mine"],
    "the prompt is empty; give it at least one token": ["generate", "mine", "--prompt", ""],
    "the prompt is empty; give it": [
        *("trace", "mine", "--prompt", "1", "--source", "", "-o", "r.safetensors")
    ],
    "say with --source what the first reads": ["trace", "mine", "--prompt", "1", "-o", "r.safetensors"],
    "trace its run whole": [
        "trace",
        "theirs",
        "--layer",
        1,
        "--input",
        "ref.safetensors",
        "-o",
        "r.safetensors",
    ],
    "count from 0; leave out --place": [
        *("trace", "mine", "--prompt", "1", "--source", "2", "--place", "ref.json", "-o", "r.safetensors")
    ],
    "31 is none of the 31 tokens": [
        "trace",
        "mine",
        "--prompt",
        "1",
        "--source",
        "31",
        "-o",
        "r.safetensors",
    ],
    "no layer 2; expected 0 to 1": [
        *("trace", "mine", "--prompt", "1", "--source", "2", "--layers", "2", "-o", "r.safetensors")
    ],
}


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("theirs", ["1.1"], indirect=True)
def test_the_tensors_say_whether_the_head_is_the_embedding(own, scaled, theirs, capsys):
    """transformers 5 writes that the two are tied whatever they are, and what is scaled beside it."""
    w, said = drawn(NEW), NEW | {"tie_word_embeddings": True, "scale_decoder_outputs": scaled}
    if not own:
        del w["lm_head.weight"]
    save_file(w, "theirs/model.safetensors")
    Path("theirs/config.json").write_text(json.dumps(said))
    found, right = (
        reference(capsys),
        written_out(NEW, w | {"lm_head.weight": w["shared.weight"]} | w, SOURCE, TOKENS),
    )
    same(found["logits"], right["logits"] * (16**-0.5 if scaled else 1), 1e-12)
    assert cli(capsys, "export", "mine", "-o", "back")[0] == 0
    same(load_file("back/model.safetensors"), w, 0)


@pytest.mark.parametrize("form", FORMS)
def test_an_activation_that_is_said_twice_is_that_of_both(form):
    """transformers computes what dense_act_fn and is_gated_act say, whatever feed_forward_proj says."""
    gated = form == "1.1"
    sound = FORMS[form] | {"dense_act_fn": "gelu_new" if gated else "relu", "is_gated_act": gated}
    assert pair_of(sound) == pair_of(FORMS[form])
    for wrong in ({"dense_act_fn": "silu"}, {"is_gated_act": not gated}):
        with pytest.raises(Misuse, match=next(iter(wrong))):
            pair_of(sound | wrong)


@pytest.mark.parametrize("theirs", ["t5"], indirect=True)
def test_what_means_nothing_is_one_line(theirs, capsys):
    reference(capsys)
    for words, line in REFUSED.items():
        code, said = cli(capsys, *line)
        assert (code, said.count("\n")) == (2, 1)
        assert words in said, said
    with pytest.raises(Misuse, match="leave --source out"):
        trace(pair_of(OLD).encoder, model.init(pair_of(OLD).encoder), np.array([[1]]), source=np.array([[1]]))


@pytest.mark.parametrize("theirs", ["1.1"], indirect=True)
def test_a_head_of_its_own_that_transformers_saved_again(theirs, capsys):
    torch = pytest.importorskip("torch", reason="PyTorch is no dependency of the tests")
    hf = pytest.importorskip("transformers", reason="transformers is no dependency of the tests")
    net = hf.T5ForConditionalGeneration.from_pretrained("theirs").eval()
    Path("theirs").rename("published")
    net.save_pretrained("theirs")
    assert json.loads(Path("theirs/config.json").read_text())["tie_word_embeddings"] is True
    inputs = {"input_ids": torch.tensor([SOURCE]), "decoder_input_ids": torch.tensor([TOKENS])}
    with torch.no_grad():
        same(reference(capsys)["logits"].astype(np.float32), net(**inputs).logits.numpy(), 1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_what_transformers_saved_and_dumps(form, tmp_path, capsys, monkeypatch):
    """Its folder, its tensors by the dumper of the docs, its gradients, its words; what is exported loads
    there, with nothing missing and nothing left over.
    """
    torch = pytest.importorskip("torch", reason="PyTorch is no dependency of the tests")
    hf = pytest.importorskip("transformers", reason="transformers is no dependency of the tests")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    sizes = {key: value for key, value in FORMS[form].items() if key != "model_type"}
    net = hf.T5ForConditionalGeneration(hf.T5Config(**sizes, dropout_rate=0.0)).eval()
    net.save_pretrained("theirs")
    ours = reference(capsys, "--gradients")
    line = [sys.executable, DUMPER, "theirs", "ref.json", "dump.safetensors", "--gradients"]
    subprocess.run(line, check=True, capture_output=True)
    code, said = cli(capsys, "diff", "ref.safetensors", "dump.safetensors")
    assert (code, said.split(",")[0]) == (0, f"{len(ours)} tensors agree"), said
    few = {
        "max_new_tokens": 4,
        "do_sample": False,
        "eos_token_id": None,
        "pad_token_id": 0,
        "use_cache": False,
    }
    told = net.generate(torch.tensor([SOURCE]), **few)[0, 1:].tolist()
    line = ["generate", "mine", "--prompt", in_words(SOURCE), "--tokens", 4, "--temperature", 0]
    assert cli(capsys, *line, "--backend", "numpy") == (0, in_words(told) + " \n")
    assert cli(capsys, "export", "mine", "-o", "back")[0] == 0
    again, info = hf.T5ForConditionalGeneration.from_pretrained("back", output_loading_info=True)
    assert not any(info.values()), info
    inputs = {"input_ids": torch.tensor([SOURCE]), "decoder_input_ids": torch.tensor([TOKENS])}
    with torch.no_grad():
        same(again(**inputs).logits.numpy(), net(**inputs).logits.numpy(), 0)
