"""What a public config.json means: the published settings of model families (configs/, the keys that decide
rotations), and all that can be odd.

The numbers that are expected are those that papers and public code print (test_scalings.py has their
sources), or are worked out here anew from the file's own numbers. SEEN says where the figures of each file
were read. The keys that decide no rotation (vocabulary, norms, feed-forward, experts) are there so that whole
models can be read; of seven files they were set after the defaults of classes first, and compared with public
copies later (BESIDE). Two defaults were wrong: GPT-NeoX 20B has gelu_fast, OLMo 3 an epsilon of 1e-6.
"""

import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest
from check import same

from peref import huggingface
from peref.cli import run as run_cli
from peref.cli.meant import words_of
from peref.cli.signals import Signals
from peref.config import Config
from peref.encodings import get
from peref.errors import Misuse
from peref.huggingface import all_layers, frequencies, read, unscaled
from peref.huggingface.rotation import period
from peref.settings import choose

FILES = {path.stem: path for path in sorted((Path(__file__).parent / "configs").glob("*.json"))}
PRESETS = "mlc-ai/mlc-llm python/mlc_llm/model/model_preset.py"
CLASS = "huggingface/transformers src/transformers/models"
# file -> the model, and where its figures were read on 2026-11-21: the model's own file, or public code that
# repeats it
SEEN = {
    "chatglm-4-9b": (
        "THUDM/glm-4-9b-chat, its own code",
        "its config.json printed in a public port; rope_ratio in lmdeploy's and vLLM's code",
    ),
    "codellama-7b": ("codellama/CodeLlama-7b-hf", PRESETS),
    "deepseek-v2-lite": ("deepseek-ai/DeepSeek-V2-Lite", PRESETS),
    "deepseek-v3": (
        "deepseek-ai/DeepSeek-V3",
        "its printed config in a public note; NVIDIA/Megatron-LM#1418 quotes rope_scaling",
    ),
    "gemma-3-12b": (
        "google/gemma-3-12b-it",
        f"a public test with its config.json; {CLASS}/gemma3/configuration_gemma3.py for what is left out",
    ),
    "gemma-3n-e4b": (
        "google/gemma-3n-E4B",
        f"{CLASS}/gemma3n/configuration_gemma3n.py, whose defaults are that model's",
    ),
    "gemma-4-e2b": (
        "google/gemma-4-e2b-it",
        f"{CLASS}/gemma4/configuration_gemma4.py; sizes and the seven full layers in two public notes",
    ),
    "glm-4-9b": ("THUDM/glm-4-9b-chat", f"{CLASS}/glm/configuration_glm.py, whose defaults are that model's"),
    "gpt-j-6b": (
        "EleutherAI/gpt-j-6B",
        f"{CLASS}/gptj/configuration_gptj.py, whose defaults are that model's",
    ),
    "gpt-neox-20b": ("EleutherAI/gpt-neox-20b", "the 20B settings in two public converters"),
    "gpt-oss-20b": (
        "openai/gpt-oss-20b",
        "its config.json in three public notes, in both spellings of the rotation",
    ),
    "internlm2.5-7b": (
        "internlm/internlm2_5-7b-chat",
        "lablup/mlxcel#1320: scaling, length; base, sizes: a public copy of InternLM2-7B",
    ),
    "kimi-k2": (
        "moonshotai/Kimi-K2-Instruct",
        "its config.json in public copies; radixark/miles#335, AI-Hypercomputer/maxtext#2234 quote it",
    ),
    "llama-3.1-8b": ("meta-llama/Llama-3.1-8B", PRESETS),
    "llama-3.2-1b": ("meta-llama/Llama-3.2-1B", PRESETS),
    "llama-4-scout": (
        "meta-llama/Llama-4-Scout-17B-16E",
        "its config.json in public copies; meta-llama/llama-models#322 on the factor",
    ),
    "mistral-7b-v0.3": ("mistralai/Mistral-7B-v0.3", PRESETS),
    "modernbert-base": (
        "answerdotai/ModernBERT-base",
        f"its config.json in public copies; {CLASS}/modernbert/configuration_modernbert.py",
    ),
    "olmo-3-7b-instruct": (
        "allenai/Olmo-3-7B-Instruct",
        f"three public notes that list it; {CLASS}/olmo3/modular_olmo3.py for its layers",
    ),
    "phi-3.5-mini": ("microsoft/Phi-3.5-mini-instruct", f"{PRESETS}; huggingface/trl#7276"),
    "qwen-7b-chat": (
        "Qwen/Qwen-7B-Chat",
        "its config.json in a public test; modeling_qwen.py in public copies; vllm-project/vllm#36880",
    ),
    "qwen2-vl-7b": ("Qwen/Qwen2-VL-7B-Instruct", "its config.json in a public port"),
    "qwen2.5-7b-1m": ("Qwen/Qwen2.5-7B-Instruct-1M", "its config.json in two public tests and notes"),
    "qwen2.5-coder-32b-yarn": (
        "Qwen/Qwen2.5-Coder-32B-Instruct",
        "its config.json with the card's YaRN; turboderp-org/exllamav2#642 quotes it",
    ),
    "qwen3-vl-8b": ("Qwen/Qwen3-VL-8B-Instruct", "its config.json in a public note"),
    "vicuna-7b-16k": ("lmsys/vicuna-7b-v1.5-16k", "its config.json in a public script"),
    "yarn-llama-2-7b-64k": (
        "NousResearch/Yarn-Llama-2-7b-64k",
        "jquesnelle/yarn train.sh and finetune.py, which write it",
    ),
    "yi-34b": ("01-ai/Yi-34B", "huggingface/candle candle-transformers/src/models/yi.rs; 01-ai/Yi#282"),
}
# of those and one more, where the keys beside the rotation were read on 2026-11-23
BESIDE = {
    "gemma-3-12b": "its config.json in a public test, vocabulary and widths in another",
    "glm-4-9b": f"{CLASS}/glm/configuration_glm.py, whose defaults are that model's",
    "gpt-j-6b": "its config.json in three public scripts and a test, with a key rotary that no class reads",
    "gpt-neox-20b": "its config.json in a public client that runs its layers",
    "gpt-oss-20b": "its config.json whole in a public note; a public test has its sizes",
    "llama-4-scout": "its text_config in two public tests; not epsilon and biases, which are the class's",
    "olmo-3-7b-instruct": "rasbt/LLMs-from-scratch ch05/13_olmo3: all of it but that its head is not tied",
    "phi-3.5-mini": f"{PRESETS}: all of it",
}
LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
}


SILENT = {key: value for key, value in LLAMA.items() if key != "rope_theta"}


def found(name):
    return read(json.loads(FILES[name].read_text()))


def one(name_or_config):
    """The only rotation of a file or of a config."""
    (rotation,) = (
        found(name_or_config) if isinstance(name_or_config, str) else read(name_or_config)
    ).rotations
    return rotation


def scaled(kind, **given):
    return LLAMA | {"rope_scaling": {"rope_type": kind, **given}}


def ratios(r, n=None):
    return frequencies(r.cfg, n or r.lengths[-1])[0] / unscaled(r.cfg)


def kinds(r, key=""):
    """The kinds of the notes on keys that end so."""
    return [note.kind for note in r.notes if note.key.endswith(key)]


def ladder(base, R):
    return np.array([base ** (-2 * n / R) for n in range(R // 2)])


# ---------------------------------------------------------------- model families


def test_the_source_of_every_file_is_named():
    """Which model it is of, and where its figures were read; more than eight families."""
    assert set(SEEN) == set(FILES)
    assert all("/" in model and where for model, where in SEEN.values())
    assert set(BESIDE) < set(FILES)
    assert len({json.loads(path.read_text())["model_type"] for path in FILES.values()}) >= 8


@pytest.mark.parametrize(
    ("name", "encoding", "D", "R", "layout", "base"),
    [
        ("llama-3.1-8b", "llama3", 128, 128, "half", 5e5),
        ("llama-3.2-1b", "llama3", 64, 64, "half", 5e5),
        ("qwen2.5-coder-32b-yarn", "yarn", 128, 128, "half", 1e6),
        ("qwen2.5-7b-1m", "rope", 128, 128, "half", 1e7),
        ("deepseek-v2-lite", "yarn", 192, 64, "interleaved", 1e4),
        ("deepseek-v3", "yarn", 192, 64, "interleaved", 1e4),
        ("kimi-k2", "yarn", 192, 64, "interleaved", 5e4),
        ("llama-4-scout", "llama3", 128, 128, "interleaved", 5e5),
        ("phi-3.5-mini", "longrope", 96, 96, "half", 1e4),
        ("gpt-oss-20b", "yarn", 64, 64, "half", 150000.0),
        ("mistral-7b-v0.3", "rope", 128, 128, "half", 1e6),
        ("qwen2-vl-7b", "mrope", 128, 128, "half", 1e6),
        ("qwen3-vl-8b", "mrope", 128, 128, "half", 5e6),
        ("codellama-7b", "rope", 128, 128, "half", 1e6),
        ("yarn-llama-2-7b-64k", "yarn", 128, 128, "half", 1e4),
        ("yi-34b", "rope", 128, 128, "half", 5e6),
        ("gpt-neox-20b", "rope", 96, 24, "half", 1e4),
        ("gpt-j-6b", "rope", 256, 64, "interleaved", 1e4),
        ("glm-4-9b", "rope", 128, 64, "interleaved", 1e4),
        ("chatglm-4-9b", "rope", 128, 64, "interleaved", 5e6),
        ("qwen-7b-chat", "dynamic_ntk", 128, 128, "half", 1e4),
        ("vicuna-7b-16k", "pi", 128, 128, "half", 1e4),
        ("internlm2.5-7b", "dynamic_ntk", 128, 128, "half", 1e6),
    ],
)
def test_encoding_widths_layout_and_base(name, encoding, D, R, layout, base):
    """Of families whose layers are all alike."""
    r = one(name)
    assert (r.name, r.cfg.D, r.cfg.R, r.cfg.layout, r.options["base"]) == (encoding, D, R, layout, base)
    same(unscaled(r.cfg), ladder(base, R), 1e-14)


@pytest.mark.parametrize("name", FILES)
def test_the_line_that_is_printed_means_the_same(name):
    """--pe and --set, read as the command line reads them, give these frequencies, factor and softmax
    scale; no note is of a key nobody knows.
    """
    for r in found(name).rotations:
        line = words_of(r.cfg)
        assert line[0] == "--pe"
        width = int(line[line.index("--head-width") + 1])
        given = [line[k + 1] for k, word in enumerate(line) if word == "--set"]
        cfg = Config(**{"L": 7, "H": 1, "C": width, "D": width, **choose(line[1], given)})
        for n in r.lengths:
            same(frequencies(cfg, n)[0], frequencies(r.cfg, n)[0], 0)
        assert cfg.encoding(0).scale(width) == r.cfg.encoding(0).scale(width)
        assert (cfg.R, cfg.layout) == (r.cfg.R, r.cfg.layout)
        assert {note.kind for note in r.notes} <= {"differs", "ignored", "assumed", "beyond"}


def test_llama_3():
    """3.1: an eighth from pair 35 on; 3.2: a thirty-second from 18 on; six and three pairs between."""
    r = ratios(one("llama-3.1-8b"))
    same(r[:29], np.ones(29), 0)
    same(r[29:35], np.array([0.828168, 0.643743, 0.493507, 0.371122, 0.271425, 0.190211]), 1e-6)
    same(r[35:], np.full(29, 0.125), 1e-15)
    r = ratios(one("llama-3.2-1b"))
    same(r[:15], np.ones(15), 0)
    same(r[15:18], np.array([0.605573, 0.303743, 0.103448]), 1e-5)
    same(r[18:], np.full(14, 1 / 32), 1e-15)


def test_llama_4_scout_jumps():
    """Both borders are one: a sixteenth for the pairs that turn less than once within 8192 tokens. Every
    fourth layer turns nothing.
    """
    w = ladder(5e5, 128)
    same(ratios(one("llama-4-scout")), np.where(8192 * w > 2 * math.pi, 1.0, 1 / 16), 1e-15)
    assert found("llama-4-scout").still == tuple(range(3, 48, 4))


@pytest.mark.parametrize(
    ("name", "low", "high", "factor", "a", "times"),
    [
        ("qwen2.5-coder-32b-yarn", 23, 40, 4, 1.138629, 1),
        ("deepseek-v2-lite", 10, 23, 40, 1, 1.589626),
        ("deepseek-v3", 10, 23, 40, 1, 1.873854),
        ("kimi-k2", 19, 20, 32, 1, 1.813260),
        ("gpt-oss-20b", 8.092779, 17.398025, 32, 1.346574, 1),
        ("yarn-llama-2-7b-64k", 20, 46, 16, 1.277259, 1),
    ],
)
def test_yarn(name, low, high, factor, a, times):
    """The published correction ranges, a straight line between them; the factor of q and k and that of the
    softmax scale.
    """
    r = one(name)
    rising = np.clip((np.arange(r.cfg.R // 2) - low) / (high - low), 0, 1)
    same(ratios(r), rising / factor + 1 - rising, 1e-6)
    encoding = r.cfg.encoding(0)
    same(
        np.array([frequencies(r.cfg, 99)[1], encoding.scale(r.cfg.D) * r.cfg.D**0.5]),
        np.array([a, times], float),
        1e-6,
    )


def test_phi_3_5():
    """Frequencies by either list, and sqrt(1 + ln 32 / ln 4096) for both; the long one strictly above
    4096.
    """
    r, public = one("phi-3.5-mini"), json.loads(FILES["phi-3.5-mini"].read_text())["rope_scaling"]
    assert r.lengths == (4096, 131072)
    for n, divisors in (
        (1, "short_factor"),
        (4096, "short_factor"),
        (4097, "long_factor"),
        (131072, "long_factor"),
    ):
        w, a = frequencies(r.cfg, n)
        same(w, ladder(1e4, 96) / np.array(public[divisors]), 1e-14)
        same(np.float64(a), np.float64(1.190238), 1e-6)
    assert "differs" in kinds(r, "long_factor")


def test_linear_and_dynamic():
    """A quarter everywhere; the base 1e6 to 65536 tokens as Hugging Face's formula has it, and plain RoPE
    up to 32768.
    """
    same(ratios(one("vicuna-7b-16k")), np.full(64, 0.25), 1e-15)
    r = one("internlm2.5-7b")
    assert r.lengths == (32768, 65536)
    same(ratios(r, 32768), np.ones(64), 1e-14)
    same(frequencies(r.cfg, 65536)[0], ladder(1e6 * (2 * 65536 / 32768 - 1) ** (128 / 126), 128), 1e-13)
    assert kinds(r, "rope_type") == ["differs"]


def test_mrope():
    """Sections of Qwen2-VL and Qwen3-VL, in both orders; frequencies are those of RoPE."""
    for name, order, sections in (
        ("qwen2-vl-7b", "chunked", (16, 24, 24)),
        ("qwen3-vl-8b", "interleaved", (24, 20, 20)),
    ):
        r = one(name)
        assert (r.options["order"], r.options["sections"]) == (order, sections)
        same(ratios(r), np.ones(64), 1e-15)


def test_ernie_lists_height_and_width_before_time():
    """And lets the two alternate, time last: vLLM's Ernie4_5_VLRotaryEmbedding with 22, 22, 20. Layout and
    base are ERNIE 4.5's.
    """
    rope = {"rope_type": "default", "rope_theta": 500000.0, "mrope_section": [22, 22, 20]}
    r = one(
        {key: x for key, x in LLAMA.items() if not key.startswith("rope")}
        | {"model_type": "ernie4_5_vl_moe_text", "rope_parameters": rope}
    )
    assert (r.name, r.options["order"], r.options["sections"], r.cfg.layout) == (
        "mrope",
        "alternate",
        (20, 22, 22),
        "interleaved",
    )
    assert kinds(r, "mrope_section") == ["differs"]
    angle, *_ = r.cfg.encoding(0).rotate({}, np.array([[[2]], [[3]], [[5]]]), 9)
    same(angle[0, 0], ladder(5e5, 128) * ([3, 5] * 22 + [2] * 20), 1e-14)


def test_gemma_4():
    """Every fifth layer: 64 of 256 pairs turn, n with n + 256, exponents of the width 512; the others are
    RoPE of 256 channels.
    """
    full, slides = found("gemma-4-e2b").rotations
    assert (full.layers, full.name, full.which, full.cfg.D, full.cfg.R) == (
        "full_attention",
        "p_rope",
        (4, 9, 14, 19, 24, 29, 34),
        512,
        512,
    )
    assert (slides.layers, slides.name, len(slides.which), slides.cfg.D, slides.cfg.R) == (
        "sliding_attention",
        "rope",
        28,
        256,
        256,
    )
    same(frequencies(full.cfg, 9)[0], np.where(np.arange(256) < 64, ladder(1e6, 512), 0), 1e-14)
    same(frequencies(slides.cfg, 9)[0], ladder(1e4, 256), 1e-14)
    assert all_layers(found("gemma-4-e2b")) is None  # heads of two widths are no one model here


def test_gemma_3():
    """rope_local_base_freq for five of six layers, without the scaling; all layers as one cycle."""
    saw = found("gemma-3-12b")
    full, slides = saw.rotations
    assert (full.name, full.which, slides.name, slides.options) == (
        "pi",
        (5, 11, 17, 23, 29, 35, 41, 47),
        "rope",
        {"base": 1e4},
    )
    same(ratios(full), np.full(128, 1 / 8), 1e-15)
    line = words_of(all_layers(saw))
    cfg = Config(
        **{
            "L": 7,
            "H": 1,
            "C": 256,
            "layers": 48,
            **choose(line[1], [line[k + 1] for k, word in enumerate(line) if word == "--set"]),
        }
    )
    for layer in range(48):
        r = full if layer in full.which else slides
        same(cfg.encoding(layer).rotate({}, np.array([1]), 7)[0][0], frequencies(r.cfg, 7)[0], 0)
    assert "beyond" in kinds(full, "query_pre_attn_scalar")


def test_modernbert():
    """Every third layer, from the first, sees all and has the base 160000, the others 10000; what BERT's
    settings write beside it counts nothing.
    """
    full, slides = found("modernbert-base").rotations
    assert (full.which, len(slides.which), full.cfg.D, full.cfg.layout) == (
        (0, 3, 6, 9, 12, 15, 18, 21),
        14,
        64,
        "half",
    )
    same(frequencies(full.cfg, 9)[0], ladder(160000.0, 64), 1e-14)
    same(frequencies(slides.cfg, 9)[0], ladder(1e4, 64), 1e-14)
    assert kinds(full, "position_embedding_type") == kinds(slides, "position_embedding_type") == ["ignored"]
    public = json.loads(FILES["modernbert-base"].read_text()) | {"local_rope_theta": None}
    assert [r.options["base"] for r in read(public).rotations] == [160000.0, 160000.0]


# what classes of transformers 5.23, and Kimi K2's own, have where a config has sizes alone: of each rotation
# its layers of 8, its name, base, width of a head and channels that turn, layout; layers without positions
SIZES = {key: value for key, value in SILENT.items() if key != "head_dim"} | {"num_hidden_layers": 8}
LATENT = ([((), "rope", 1e4, 192, 64, "interleaved")], ())
BY_CLASS = {
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2"), LATENT),
    "longcat_flash": ([((), "rope", 1e7, 192, 64, "interleaved")], ()),
    "minicpm3": ([((), "rope", 1e4, 96, 32, "half")], ()),
    "gemma4_text": (
        [((0, 1, 2, 3, 4, 6), "rope", 1e4, 256, 256, "half"), ((5, 7), "p_rope", 1e6, 512, 512, "half")],
        (),
    ),
    "exaone4": ([((0, 1, 2, 4, 5, 6), "rope", 1e4, 128, 128, "half")], (3, 7)),
    "modernbert": (
        [((0, 3, 6), "rope", 160000.0, 128, 128, "half"), ((1, 2, 4, 5, 7), "rope", 1e4, 128, 128, "half")],
        (),
    ),
    "qwen2_vl": ([((), "rope", 1e6, 128, 128, "half")], ()),
}


@pytest.mark.parametrize("kind", BY_CLASS)
def test_what_classes_have_where_a_file_is_silent(kind):
    """And each number that is not in the file is said to be assumed."""
    saw = read(SIZES | {"model_type": kind})
    shown = [(r.which, r.name, r.options["base"], r.cfg.D, r.cfg.R, r.cfg.layout) for r in saw.rotations]
    assert (shown, saw.still) == BY_CLASS[kind]
    for r in saw.rotations:
        assumed = " ".join(note.says.replace(".0", "") for note in r.notes if note.kind == "assumed")
        assert str(int(r.options["base"])) in assumed
        assert r.cfg.D == 128 or str(r.cfg.R) in assumed


def test_exaone_4_without_windows_turns_everywhere():
    """Its layers that see everything have no positions, unless there are no others."""
    public = SIZES | {"model_type": "exaone4", "layer_types": ["full_attention"] * 8}
    assert read(public).still == tuple(range(8))
    assert read(public | {"sliding_window": None}).still == ()


@pytest.mark.parametrize("kind", ["gemma3", "gemma3_text"])
def test_gemma_3_without_what_its_class_has(kind):
    """A file that leaves out both bases and the pattern, as Hugging Face saves it, means the same, and
    says what stands for them.
    """
    public = json.loads(FILES["gemma-3-12b"].read_text())["text_config"] | {"model_type": kind}
    left = {"rope_theta", "rope_local_base_freq", "sliding_window_pattern"}
    whole = read({key: value for key, value in public.items() if key not in left})
    for r, want in zip(whole.rotations, found("gemma-3-12b").rotations, strict=True):
        assert (r.layers, r.name, r.options, r.which) == (want.layers, want.name, want.options, want.which)
        assert left - {note.key for note in r.notes if note.kind == "assumed"} <= (
            {"rope_theta"} if r.layers == "sliding_attention" else set()
        )
    says = {note.says for r in whole.rotations for note in r.notes}
    assert "absent; each 6th layer sees everything, the others have a window, as the class has it" in says
    assert "absent; 10000 in layers with a window, as the class has it" in says
    assert {
        r.which
        for r in read(
            {key: x for key, x in public.items() if key not in left | {"num_hidden_layers"}}
        ).rotations
    } == {()}


def test_gemma_3n():
    """Every fifth layer has the base 1e6, the others 10000; a softmax scale of 1; the class does not read
    query_pre_attn_scalar.
    """
    public = json.loads(FILES["gemma-3n-e4b"].read_text())
    inner = public["text_config"] | {"query_pre_attn_scalar": 256}
    left = {key: value for key, value in inner.items() if key not in ("rope_theta", "rope_local_base_freq")}
    for found_here in (read({**public, "text_config": inner}), read({**public, "text_config": left})):
        full, slides = found_here.rotations
        assert (full.which, len(slides.which), full.options, slides.options) == (
            tuple(range(4, 35, 5)),
            28,
            {"base": 1e6},
            {"base": 1e4},
        )
        assert kinds(full, "softmax scale") == ["beyond"]
        assert kinds(full, "query_pre_attn_scalar") == ["ignored"]


def test_olmo_3():
    """YaRN from 8192 tokens on in every fourth layer, its gain as published; RoPE of the same base in the
    others, whichever key holds the scaling.
    """
    public = json.loads(FILES["olmo-3-7b-instruct"].read_text())
    inside = {key: value for key, value in public.items() if not key.startswith("rope")}
    flat = inside | {"rope_parameters": public["rope_scaling"] | {"rope_theta": 500000}}
    for whole in (
        read(public),
        read(flat),
        read({key: value for key, value in public.items() if key != "rope_theta"}),
    ):
        full, slides = whole.rotations
        assert (full.name, full.which, full.options["original"]) == ("yarn", tuple(range(3, 32, 4)), 8192)
        same(np.float64(frequencies(full.cfg, 9)[1]), np.float64(0.1 * math.log(8) + 1), 1e-12)
        same(ratios(full)[[0, 16, 18, 35, 63]], np.array([1, 1, 1, 1 / 8, 1 / 8]), 1e-14)
        assert (slides.name, slides.options, len(slides.which)) == ("rope", {"base": 500000.0}, 24)
        assert (
            len([note for note in full.notes if note.kind == "differs" and note.key.startswith("rope_")]) == 1
        )
    (plain,) = read({key: value for key, value in public.items() if key != "rope_scaling"}).rotations
    assert (plain.name, plain.layers) == ("rope", "")


def test_chatglm():
    """rope_ratio multiplies the base 10000, half of each head turns, in adjacent channels; ChatGLM2
    divided positions by it. 1 changes nothing.
    """
    r, public = one("chatglm-4-9b"), json.loads(FILES["chatglm-4-9b"].read_text())
    same(frequencies(r.cfg, 9)[0], (1e4 * 500) ** (-np.arange(32) / 32), 1e-14)
    assert (kinds(r, "rope_ratio"), kinds(r, "original_rope"), r.cfg.L) == (["differs"], ["ignored"], 131072)
    for given in ({"rope_ratio": 1}, {"rope_ratio": None}):
        r = one(public | given)
        assert (r.options, kinds(r, "rope_ratio")) == ({"base": 1e4}, [])


@pytest.mark.parametrize(
    ("n", "alpha"), [(8192, 1), (8193, 3), (16384, 3), (16385, 7), (32768, 7), (32769, 15)]
)
def test_the_first_qwen(n, alpha):
    """get_ntk_alpha of its code: 2^ceil(log2(n / seq_length) + 1) - 1 times in the base, at least 1;
    queries beyond it are another thing.
    """
    r = one("qwen-7b-chat")
    same(frequencies(r.cfg, n)[0], ladder(1e4 * alpha ** (128 / 126), 128), 1e-13)
    assert (r.lengths, r.options["form"], kinds(r, "use_dynamic_ntk"), kinds(r, "use_logn_attn")) == (
        (8192, 32768),
        "steps",
        ["differs"],
        ["beyond"],
    )
    off = one(
        json.loads(FILES["qwen-7b-chat"].read_text()) | {"use_dynamic_ntk": False, "use_logn_attn": False}
    )
    assert (off.name, off.lengths, off.notes) == ("rope", (32768,), ())


@pytest.mark.parametrize(
    ("given", "still"),
    [
        # 0 is a layer that turns nothing
        ({"model_type": "smollm3", "no_rope_layers": [1, 1, 1, 0] * 2}, (3, 7)),
        ({"model_type": "smollm3"}, (3, 7)),
        ({"model_type": "llama4_text", "no_rope_layers": []}, (3, 7)),
        ({"no_rope_layer_interval": 2}, (1, 3, 5, 7)),
        ({"model_type": "cohere2", "sliding_window_pattern": 4}, (3, 7)),
        (
            {"model_type": "exaone4", "layer_types": (["sliding_attention"] * 3 + ["full_attention"]) * 2},
            (3, 7),
        ),
        ({"model_type": "cohere2"}, (3, 7)),
        ({"layer_types": ["full_attention"] * 8}, ()),
    ],
)
def test_layers_without_positions(given, still):
    """SmolLM3, Llama 4, Command R7B, Exaone 4: said layer by layer, by an interval, by the type of the
    layer, or by the class.
    """
    whole = read(LLAMA | {"num_hidden_layers": 8} | given)
    assert whole.still == still
    (r,) = whole.rotations
    assert r.which == (tuple(n for n in range(8) if n not in still) if still else ())
    cfg = all_layers(whole)
    assert (cfg.named if cfg else None) == {0: None, 2: "rope,rope,rope,none", 4: "rope,none"}[len(still)]


# ---------------------------------------------------------------- the same said otherwise


def test_both_spellings_and_both_places():
    """rope_scaling or rope_parameters, type or rope_type, rope_theta inside or beside; "su" is longrope; a
    part of a head three ways.
    """
    given = {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 1024,
    }
    want = one(LLAMA | {"rope_scaling": {"rope_type": "llama3", **given}})
    rest = {key: value for key, value in LLAMA.items() if key != "rope_theta"}
    for public in (
        LLAMA | {"rope_scaling": {"type": "llama3", **given}},
        LLAMA | {"rope_parameters": {"type": "llama3", **given}},
        rest | {"rope_parameters": {"rope_type": "llama3", "rope_theta": 10000.0, **given}},
        rest | {"rope_scaling": {"rope_type": "llama3", "type": "llama3", "rope_theta": 10000, **given}},
        LLAMA | {"rope_scaling": {"type": "llama3", **given}, "rope_parameters": {"type": "llama3", **given}},
    ):
        got = one(public)
        assert (got.name, got.options, got.notes) == (want.name, want.options, ())
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64}
    outer = LLAMA | {"original_max_position_embeddings": 1024}
    assert (
        one(outer | {"rope_scaling": {"type": "su", **lists}}).options
        == one(outer | {"rope_scaling": {"type": "longrope", **lists}}).options
    )
    for half in (
        {"partial_rotary_factor": 0.5},
        {"rotary_pct": 0.5},
        {"rotary_dim": 64},
        {"rope_parameters": {"partial_rotary_factor": 0.5}},
    ):
        assert one(LLAMA | half).cfg.R == 64
    assert one(LLAMA | {"head_dim": 64}).cfg.D == 64


def test_alpha_is_a_base():
    """HunYuan's dynamic: base 10000 times 1000^(128/126), whatever the text."""
    r = one(LLAMA | {"rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}})
    same(frequencies(r.cfg, 9)[0], ladder(1e4 * 1000 ** (128 / 126), 128), 1e-13)
    assert kinds(r, "alpha") == ["differs"]


# ---------------------------------------------------------------- notes


YARN = {"factor": 40.0, "original_max_position_embeddings": 4096}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "max_position_embeddings": 163840,
    "num_attention_heads": 2,
}


@pytest.mark.parametrize(
    ("public", "key", "kind", "says"),
    [
        (
            scaled("linear", factor=2.0, original_max_position_embeddings=9),
            "original_max_position_embeddings",
            "ignored",
            "does not read it",
        ),
        (scaled("linear", factor=2.0), "max_position_embeddings", "differs", "vLLM .* serves 8192 tokens"),
        (scaled("linear", factor=2.0, beta_fats=3), "beta_fats", "unknown", "no rope_type linear"),
        (scaled("yarn", **YARN), "factor", "differs", "40, and .* is 1; the factor counts"),
        (
            scaled("yarn", original_max_position_embeddings=1024),
            "factor",
            "assumed",
            "absent; .*, 4, stands for it",
        ),
        (
            scaled("yarn", factor=4.0),
            "original_max_position_embeddings",
            "assumed",
            "max_position_embeddings, 4096, stands",
        ),
        (scaled("yarn", **YARN, attn_factor=2.0), "attn_factor", "ignored", "vLLM multiply"),
        (scaled("yarn", **YARN, finetuned=True), "finetuned", "ignored", "how the model came to be"),
        (
            scaled("yarn", **YARN, mscale=0.707, mscale_all_dim=0),
            "mscale_all_dim",
            "differs",
            "gain is 1.36889 .* have 1.2608 ",
        ),
        (
            scaled("yarn", **YARN, mscale=0.707),
            "mscale_all_dim",
            "differs",
            "absent, .* gain is 1.36889 .* have 1.2608 ",
        ),
        (
            scaled("yarn", **YARN, mscale=1.0, mscale_all_dim=1.0),
            "mscale_all_dim",
            "differs",
            "softmax scale of a llama stays",
        ),
        (
            scaled("yarn", **YARN, mscale=1.0, mscale_all_dim=1.0, attention_factor=1.0),
            "attention_factor",
            "differs",
            "outranks",
        ),
        (
            scaled("yarn", **YARN, mrope_section=[16, 24, 24]),
            "mrope_section",
            "beyond",
            "no encoding here has them with a scaling",
        ),
        (
            scaled("yarn", **YARN, llama_4_scaling_beta=0.1),
            "llama_4_scaling_beta",
            "beyond",
            "grows with the position",
        ),
        (
            scaled("dynamic", factor=2.0, original_max_position_embeddings=1024),
            "original_max_position_embeddings",
            "differs",
            "1024; Hugging Face takes",
        ),
        (
            scaled("dynamic", factor=2.0, original_max_position_embeddings=4096),
            "original_max_position_embeddings",
            "ignored",
            "4096",
        ),
        (LLAMA | {"rope_scaling": {"factor": 2.0}}, "rope_type", "assumed", "'default'"),
        (
            LLAMA | {"rope_scaling": {"factor": 2.0}},
            "factor",
            "ignored",
            "rope_type default does not read it",
        ),
        (
            LLAMA | {"rope_scaling": {"type": "yarn", "rope_type": "linear", "factor": 2.0}},
            "type",
            "contradictory",
            "rope_type counts",
        ),
        (
            LLAMA | {"rope_scaling": {"rope_type": "default"}, "rope_parameters": {"rope_theta": 9.0}},
            "rope_scaling",
            "contradictory",
            "takes rope_scaling",
        ),
        (
            LLAMA | {"rope_parameters": {"rope_theta": 9.0}},
            "rope_theta",
            "contradictory",
            "10000, and rope_theta of rope_parameters is 9",
        ),
        (
            LLAMA | {"rotary_dim": 32, "partial_rotary_factor": 0.5},
            "rotary_dim",
            "contradictory",
            "means 64; rotary_dim counts",
        ),
        (LLAMA | {"model_type": "mystery"}, "layout", "assumed", "mystery is not known here"),
        (LLAMA | {"model_type": "stablelm"}, "partial_rotary_factor", "assumed", "0.25"),
        (LLAMA | {"model_type": "qwen3_next"}, "partial_rotary_factor", "assumed", "0.25"),
        (
            DEEPSEEK
            | {
                "model_type": "deepseek_v2",
                "rope_scaling": {"type": "yarn", **YARN, "mscale": 1, "mscale_all_dim": 1},
            },
            "all_dim",
            "differs",
            "class of a deepseek_v2 leaves it out",
        ),
        (scaled("linear", factor=2.0, mrope_section=[16, 24, 24]), "mrope_section", "beyond", "for any axis"),
        (LLAMA | {"rope_theta": None}, "rope_theta", "assumed", "10000"),
        (LLAMA | {"attention_multiplier": 0.01}, "attention_multiplier", "beyond", "Granite"),
        (
            LLAMA | {"model_type": "gemma4_text", "rope_scaling": {"rope_type": "default"}},
            "softmax scale",
            "beyond",
            "normed",
        ),
        (
            LLAMA | {"attn_temperature_tuning": 4, "floor_scale": 8192, "attn_scale": 0.1},
            "temperature_tuning",
            "beyond",
            "layers without positions",
        ),
        (
            json.loads(FILES["qwen2.5-7b-1m"].read_text()),
            "dual_chunk_attention_config",
            "differs",
            "Hugging Face does not read it",
        ),
    ],
)
def test_a_note_names_the_key(public, key, kind, says):
    """Ignored, contradictory, read differently, absent, beyond rotations: each under its key, with what is
    done.
    """
    notes = [note for note in one(public).notes if note.key.endswith(key) and note.kind == kind]
    assert [note for note in notes if re.search(says, note.says)], one(public).notes


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"rope_theta": 1e4, "rope_theta_of_images": 9.0, "use_rope": True},
            {"rope_theta_of_images", "use_rope"},
        ),
        ({"rope_ratio": 500}, {"rope_ratio"}),
        ({"model_type": "chatglm", "rope_ratio": 500, "original_rope": True}, set()),
        (
            {"rotary_emb_base": 1e4, "use_dynamic_ntk": True, "use_logn_attn": True},
            {"use_dynamic_ntk", "use_logn_attn"},
        ),
        (
            {"model_type": "qwen", "rotary_emb_base": 1e4, "use_dynamic_ntk": True, "use_logn_attn": True},
            set(),
        ),
        (
            {
                "model_type": "qwen",
                "use_dynamic_ntk": False,
                "use_logn_attn": None,
                "rope_scaling": None,
                "alibi": False,
            },
            set(),
        ),
        ({"rope_theta": 1e4, "rotary_emb_base": 1e6}, {"rotary_emb_base"}),
        (
            {"rope_theta": 1e4, "position_embedding_type": "rope", "kv_property_entropy": 3, "qk_nope": 7},
            set(),
        ),
        (
            {"rope_theta": 1e4, "mrope_section": [1, 2, 3], "position_encoding_2d": True},
            {"mrope_section", "position_encoding_2d"},
        ),
    ],
)
def test_keys_that_nobody_reads_are_named(given, named):
    """Beside the dict of the rotation, where their names are of positions."""
    assert {note.key for note in one(SILENT | given).notes if note.kind == "unknown"} == named


def test_a_class_that_may_turn():
    """A file that says rotary outranks what its class is known for."""
    r = one(
        SILENT
        | {"model_type": "xlm-roberta", "position_embedding_type": "rotary", "rotary_emb_base": 20000.0}
    )
    assert (r.name, r.options, kinds(r, "position_embedding_type")) == ("rope", {"base": 20000.0}, [])
    assert one(SILENT | {"model_type": "esm", "position_embedding_type": "rotary"}).options == {
        "base": 10000.0
    }


def test_mscales_are_deepseek_s_alone():
    """Both 1 at factor 40: the gain is 1 everywhere; the softmax scale is larger in DeepSeek's classes,
    and plain in the others.
    """
    both = {"type": "yarn", **YARN, "mscale": 1.0, "mscale_all_dim": 1.0}
    for public, times in (
        (DEEPSEEK | {"rope_scaling": both}, 1.873854),
        (LLAMA | {"rope_scaling": both}, 1.0),
    ):
        r = one(public)
        same(
            np.array([frequencies(r.cfg, 9)[1], r.cfg.encoding(0).scale(r.cfg.D) * r.cfg.D**0.5]),
            np.array([1, times]),
            1e-6,
        )
    zero = one(LLAMA | {"rope_scaling": both | {"mscale": 0.707, "mscale_all_dim": 0}})
    same(np.float64(frequencies(zero.cfg, 9)[1]), np.float64(0.1 * math.log(40) + 1), 1e-12)


def test_truncate_in_nested_configs():
    """Hugging Face looks for it beside the types of layers."""
    inner = {"rope_type": "yarn", "rope_theta": 1e4, **YARN, "truncate": False}
    (r,) = read(LLAMA | {"rope_parameters": {"full_attention": inner, "rope_theta": 5.0}}).rotations
    assert kinds(r, "truncate") == ["differs"]
    assert kinds(r, "rope_parameters.rope_theta") == ["ignored"]
    assert "truncate" not in [
        note.key
        for note in one(LLAMA | {"rope_scaling": {k: v for k, v in inner.items() if k != "rope_theta"}}).notes
    ]


def test_longrope_s_factor_and_mscales():
    """Hugging Face takes factor where it is there, vLLM the ratio; Phi-3.5-MoE's two factors are that
    class's.
    """
    lists = {"short_factor": [1.0] * 64, "long_factor": [2.0] * 64, "short_mscale": 1.2, "long_mscale": 1.3}
    public = LLAMA | {
        "original_max_position_embeddings": 1024,
        "rope_scaling": {"type": "longrope", "factor": 16.0, **lists},
    }
    r = one(public)
    assert (r.options["factor"], kinds(r, "factor"), kinds(r, "short_mscale")) == (
        16.0,
        ["differs", "differs"],
        ["differs"],
    )
    moe = one(public | {"model_type": "phimoe"})
    assert (moe.options["short_mscale"], moe.options["long_mscale"]) == (1.2, 1.3)
    assert [frequencies(moe.cfg, n)[1] for n in (1024, 1025)] == [1.2, 1.3]


# ---------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("public", "says"),
    [
        (
            scaled("lama3", factor=8.0),
            "rope_scaling.rope_type is 'lama3'; did you mean 'llama3'[?] known are: default, linear",
        ),
        (
            scaled("ernie_3d"),
            (
                "is 'ernie_3d'; known are: default, linear, dynamic, yarn, longrope, su, llama3, "
                "proportional, mrope"
            ),
        ),
        (scaled("linear"), "rope_scaling has no factor, which rope_type linear needs"),
        (scaled("llama3", factor=8.0), "rope_scaling has no low_freq_factor"),
        (
            scaled("llama3", factor=8.0, low_freq_factor=4.0, high_freq_factor=1.0),
            "llama3: high_freq_factor is 1.0",
        ),
        (scaled("yarn"), "has no factor, and max_position_embeddings /"),
        (scaled("yarn", factor="4"), 'rope_scaling.factor is "4"; expected a number'),
        (scaled("yarn", factor=-4.0), "yarn: factor is -4.0"),
        (scaled("yarn", factor=math.inf), "rope_scaling.factor is Infinity; expected a finite number"),
        (scaled("yarn", factor=10**400), "expected a finite number"),
        (scaled("yarn", factor=4.0, truncate="no"), "truncate is .*expected true or false"),
        (scaled("longrope", short_factor=[1.0] * 64), "rope_scaling has no long_factor"),
        (
            scaled("longrope", short_factor=[1.0] * 63, long_factor=[1.0] * 64),
            "short_factor has 63 numbers; expected 64",
        ),
        (scaled("longrope", short_factor=[1.0, "x"], long_factor=[1.0] * 64), 'short_factor.1 is "x"'),
        (
            scaled("longrope", short_factor=[1.0] * 63 + [None], long_factor=[1.0] * 64),
            "short_factor is .*expected a list of numbers",
        ),
        (scaled("mrope"), "rope_scaling has no mrope_section"),
        (scaled("mrope", mrope_section=[1, 2, 3]), "mrope: sections are 1,2,3"),
        (
            scaled("mrope", mrope_section=[16.5, 24, 24]),
            "mrope_section is .16.5, 24, 24.; expected whole numbers",
        ),
        (
            {
                "head_dim": 4,
                "rope_scaling": {
                    "type": "su",
                    "original_max_position_embeddings": 9,
                    "short_factor": [1, 1],
                    "long_factor": [1, 1],
                },
            },
            "no factor, and .* gives none",
        ),
        (LLAMA | {"rope_scaling": [1]}, r"rope_scaling is \[1\]; expected an object"),
        (LLAMA | {"rope_scaling": {"rope_type": 7}}, "rope_type is 7; expected a word"),
        (LLAMA | {"rope_theta": True}, "rope_theta is true; expected a number"),
        (LLAMA | {"rope_theta": 0}, "base"),
        (
            LLAMA | {"partial_rotary_factor": 0.3, "head_dim": 64},
            "partial_rotary_factor 0.3 of 64 channels is 19; expected an even number",
        ),
        (LLAMA | {"head_dim": 5.5}, "head_dim is 5.5; expected a whole number"),
        (LLAMA | {"hidden_size": 4097}, "does not divide"),
        (LLAMA | {"head_dim": 10**9}, "a head is 1,000,000,000 channels wide"),
        (LLAMA | {"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        (LLAMA | {"rope_theta": 1e308}, "rope_theta is 1e[+]308; expected a finite number"),
        ({"model_type": "llama"}, "no head_dim, and no hidden_size .* use_diff=False"),
        ({"hidden_size": 64, "num_attention_heads": 2, "rope_scaling": None}, "no max_position_embeddings"),
        (
            LLAMA | {"model_type": "granitemoehybrid", "position_embedding_type": "nope"},
            "'nope' turns nothing: .* the encoding none",
        ),
        (
            SILENT | {"position_embedding_type": "absolute"},
            "'absolute' turns nothing: .* the encoding learned",
        ),
        (
            LLAMA | {"position_embedding_type": "relative_key"},
            "'relative_key' turns nothing: .* the encoding shaw",
        ),
        (LLAMA | {"position_embedding_type": "relative_3"}, "'relative_3' turns nothing: no encoding here"),
        (LLAMA | {"model_type": "falcon", "alibi": True}, "falcon turns nothing: .* the encoding alibi"),
        (
            LLAMA | {"model_type": "jais", "position_embedding_type": "alibi"},
            "'alibi' turns nothing: .* the encoding alibi",
        ),
        (SILENT | {"model_type": "whisper"}, "whisper turns nothing: .* the encoding learned"),
        (SILENT | {"model_type": "distilbert"}, "distilbert turns nothing: .* the encoding learned"),
        (SILENT | {"model_type": "jamba"}, "jamba turns nothing: .* the encoding none"),
        (SILENT | {"model_type": "nemotron_h"}, "nemotron_h turns nothing: .* the encoding none"),
        (
            SILENT | {"model_type": "deberta-v2", "relative_attention": True},
            "deberta-v2 is not known here, and nothing in the config says",
        ),
        (SILENT | {"model_type": "mamba2"}, "mamba2 is not known here, and nothing in the config says"),
        ({"model_type": "mamba2"}, "mamba2 is not known here, and nothing in the config says"),
        (
            LLAMA | {"model_type": "chatglm", "position_encoding_2d": True},
            "half of the channels turn by the place in the answer",
        ),
        (
            {"model_type": "qwen", "head_dim": 8, "use_dynamic_ntk": True},
            "the config has no seq_length, from which the base grows",
        ),
        ({"model_type": "bloom"}, "bloom turns nothing: its positions are those of the encoding alibi"),
        ({"model_type": "gpt2"}, "the encoding learned"),
        ({}, "unknown is not known here"),
        ({"rope_theta": 9.0}, "the config has no head_dim"),
    ],
)
def test_what_makes_no_sense_is_refused(public, says):
    """In words, with the key."""
    with pytest.raises(Misuse, match=says):
        read(public)


def test_encodings_that_are_named_are_there():
    """What models without rotations have."""
    for name in set(huggingface.facts.NO_ROTATION.values()) - {"mamba"}:
        assert get(name)


# ---------------------------------------------------------------- the command


@pytest.fixture
def show(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)

    def call(*args):
        capsys.readouterr()
        code = run_cli(["show", "--config", *map(str, args)], Signals())
        said = capsys.readouterr()
        assert "Traceback" not in said.out + said.err
        return code, said.out, said.err

    return call


@pytest.mark.parametrize("name", FILES)
def test_text_and_json(show, name):
    """Both say the encoding, the line to paste, factor, softmax scale, every note; --json has every
    frequency.
    """
    code, out, err = show(FILES[name])
    assert (code, err) == (0, "")
    code, whole, _ = show(FILES[name], "--json")
    data = json.loads(whole)
    assert (code, data["pictures"], data["page"]) == (0, [], None)
    flat = " ".join(out.split())
    for r, mine in zip(data["config"]["rotations"], found(name).rotations, strict=True):
        assert bool(data["config"]["train"]) != bool(r["train"])  # one line to paste
        assert (data["config"]["train"] or r["train"]) in out
        assert f"encoding {r['encoding']}: {r['formula']}" in flat
        for note in r["notes"]:
            assert f"{note['kind']} {note['key']}: {' '.join(note['says'].split())}" in flat
        for made in r["made_for"]:
            w, a = frequencies(mine.cfg, made["length"])
            same(np.array(made["frequencies"]), w, 0)
            assert made["attention_factor"] == a


@pytest.mark.parametrize(
    ("content", "code", "says"),
    [
        (b"{", 1, "not JSON"),
        (b"\xff\xfe{", 1, "not JSON"),
        (b"[" * 100_000, 1, "not JSON"),
        (b"[1]", 1, "holds a list; expected an object"),
        (
            b'{"rope_scaling": {"type": "yarm"}, "hidden_size": 8, "num_attention_heads": 2}',
            2,
            "did you mean 'yarn'",
        ),
    ],
)
def test_bad_files(show, tmp_path, content, code, says):
    """One line that names the file or the key."""
    (tmp_path / "config.json").write_bytes(content)
    got, out, err = show("config.json")
    assert (got, out) == (code, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert says in err


def test_no_file_and_options_that_do_not_go_with_it(show, tmp_path):
    """A missing file, a folder; NAME, --all, --set, --len say something else."""
    assert show("nowhere.json")[::2] == (
        1,
        (
            "error: nowhere.json: cannot read: No such file or directory; check space, permissions and the "
            "folder\n"
        ),
    )
    assert show(tmp_path)[0] == 1
    for extra in (["rope"], ["--all"], ["--set", "base=3"], ["--len", "8"]):
        code, _, err = show(FILES["llama-3.1-8b"], *extra)
        assert code == 2
        assert "--config says all of the encoding itself; leave out" in err


def test_pictures(show, tmp_path, undrawn):
    """Scaled beside unscaled; one file for each type of layer."""
    code, out, _ = show(FILES["phi-3.5-mini"], "-o", "phi.svg", "--json")
    (drawn,) = json.loads(out)["pictures"]
    assert (code, drawn["path"], "frequency, scaled to unscaled" in drawn["panels"]) == (0, "phi.svg", True)
    assert show(FILES["gemma-3-12b"], "-o", "gemma.png")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gemma-full_attention.png",
        "gemma-sliding_attention.png",
        "phi.svg",
    ]


def test_the_period_of_layers():
    """The shortest beginning that repeats to the end, in a time that grows with the layers and no faster."""
    for n in range(1, 9):
        for word in itertools.product("ab", repeat=n):
            plain = next(p for p in range(1, n + 1) if all(word[k] == word[k % p] for k in range(n)))
            assert period(word) == plain
    compared = []

    class Layer(str):
        __hash__ = None

        def __eq__(self, other):
            compared.append(1)
            return str.__eq__(self, other)

        def __ne__(self, other):
            return not self == other

    assert period([Layer("a")] * 999 + [Layer("b")]) == 1000
    assert len(compared) < 4 * 1000
