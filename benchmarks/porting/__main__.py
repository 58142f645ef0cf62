"""Twenty planted mistakes of ports, each looked for by `trace` and `diff`; needs torch and transformers.

    python benchmarks/porting                 -> benchmarks/results/porting.json

A tiny model of each family is saved by transformers, with random weights that make every part matter. The
engine (engine.py) gives transformers' logits, and every tensor that `trace` gives of the imported folder;
then, with each mistake (bugs.py), the first tensor that truly differs is the one that was fixed beforehand.
What `diff` prints is read as it comes: the first name of a tensor on its stdout, and of what is left without
such names and without the sentences about them one of the words.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT)]

from bugs import NAMED, OTHERS  # noqa: E402
from engine import run  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

V, T = 96, 40
SIZES = {"vocab_size": V, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 4}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 64}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0}
BOTH = ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"]
MODELS = {
    "llama": {
        "rope_parameters": LLAMA3 | {"high_freq_factor": 4.0, "original_max_position_embeddings": 32},
        **{"tie_word_embeddings": False},
    },
    "mistral": {"sliding_window": 8, "rope_parameters": PLAIN},
    "qwen2": {"rope_parameters": PLAIN},
    "qwen3": {"rope_parameters": PLAIN, "tie_word_embeddings": True},
    "smollm3": {"rope_parameters": PLAIN, "no_rope_layers": [1, 1, 1, 0], "pad_token_id": 0},
    "cohere2": {"sliding_window": 8, "layer_types": BOTH, "rope_parameters": PLAIN},
    "gemma2": {"sliding_window": 8, "query_pre_attn_scalar": 12, "attn_logit_softcapping": 3.0},
    "gemma3_text": {
        **{"sliding_window": 8, "query_pre_attn_scalar": 24, "layer_types": BOTH},
        "rope_parameters": {
            "sliding_attention": PLAIN,
            "full_attention": {"rope_type": "default", "rope_theta": 1e6},
        },
    },
    "gpt_oss": {
        **{"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8},
        "rope_parameters": YARN | {"original_max_position_embeddings": 32, "truncate": False},
    },
    "llama4_text": {
        **{"num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 64},
        **{"attention_chunk_size": 16, "floor_scale": 8, "attn_scale": 0.5, "no_rope_layers": [1, 1, 1, 0]},
        **{"interleave_moe_layer_step": 2, "rope_parameters": PLAIN},
    },
    "gpt_neox": {"rope_parameters": PLAIN | {"partial_rotary_factor": 0.5}, "hidden_size": 64},
    "bloom": {"n_head": 6, "n_layer": 4, "seq_length": 64},
}
ABSENT = {"gpt_neox": ("num_key_value_heads", "head_dim")}
ABSENT["bloom"] = (*ABSENT["gpt_neox"], "num_attention_heads", "intermediate_size", "max_position_embeddings")
ABSENT["bloom"] += ("num_hidden_layers",)
TENSOR = re.compile(r"\b(layers\.\d+\.[a-z_]+|embedded|final|logits|loss)\b")


def saved(kind, folder):
    """A model of this family with random weights, saved in `folder`; its logits of the tokens."""
    import torch  # here, for the tests do without both
    import transformers

    torch.manual_seed(0)
    sizes = {key: n for key, n in SIZES.items() if key not in ABSENT.get(kind, ())}
    config = transformers.AutoConfig.for_model(kind, **sizes | MODELS[kind])
    config._attn_implementation = "eager"
    net = transformers.AutoModelForCausalLM.from_config(config).float().eval()
    with torch.no_grad():
        for name, p in net.named_parameters():
            if name.endswith("bias") or "sinks" in name:
                p.normal_(0, 0.5)
            elif p.ndim == 1:
                p.copy_(0.3 * torch.randn_like(p) + (0 if kind.startswith("gemma") else 1))
            elif "embed" not in name and "lm_head" not in name:
                p.normal_(0, 1.2 * p.shape[-1] ** -0.5)
            elif kind.startswith("gemma"):
                p.normal_(0, p.shape[-1] ** -0.5)
            else:
                p.normal_(0, 1)
        net.save_pretrained(folder)
        return net(torch.from_numpy(TOKENS)[None]).logits.numpy()


def peref(*words):
    done = subprocess.run(
        [sys.executable, str(ROOT / "cli.py"), *map(str, words)], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def differing(ref, theirs, names):
    """The first of the reference's tensors that theirs lacks or has otherwise; what stands in cells of the
    future before the mask is nobody's business.
    """
    for name in names:
        if name not in theirs or ref[name].shape != theirs[name].shape:
            return name
        a, b = ref[name].astype(np.float64), theirs[name].astype(np.float64)
        if name.endswith((".bias", ".scores")):
            a, b = np.tril(a), np.tril(b)
        if not np.abs(a - b).max() <= 1e-4 * max(1.0, np.abs(a).max()):
            return name
    return None


def reference(kind, folder):
    """The trace of a family's model and the order of its tensors; the engine agrees with it, and with
    transformers.
    """
    theirs = saved(kind, folder / kind)
    right = run(folder / kind, TOKENS)
    off = float(np.abs(right["logits"] - theirs).max() / np.abs(theirs).max())
    if not off < 2e-5:
        raise SystemExit(f"{kind}: the engine's logits are off by {off:.1e}")
    out, imported = folder / f"{kind}.safetensors", folder / f"run-{kind}"
    for words in (
        ["import", folder / kind, "-o", imported],
        ["trace", imported, "--tokens", folder / "tokens.txt", "-o", out],
    ):
        code, said = peref(*words)
        if code:
            raise SystemExit(f"{kind}: {said}")
    ref, about = load_file(out), json.loads(out.with_suffix(".json").read_text())
    names = [one["name"] for one in about["tensors"]]
    if wrong := differing(ref, right, names):
        raise SystemExit(f"{kind}: {wrong} of the right engine is not that of the trace")
    return out, ref, names, right, [one["says"] for one in about["tensors"]]


def asked(out, theirs, folder, says):
    """The code of `diff`, the first tensor that it names, and the rest of what it says."""
    path = folder / "theirs.safetensors"
    save_file(theirs, path)
    code, said = peref("diff", out, path)
    said = said.replace(f"{folder}/", "")
    found = TENSOR.search(said)
    rest = TENSOR.sub("", said)
    for sentence in says:
        rest = rest.replace(sentence, "")
    return code, found and found[0], rest, said


def main():
    rows, lines = {"named": [], "others": []}, []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "tokens.txt").write_text(" ".join(map(str, TOKENS)))
        of = {kind: reference(kind, folder) for kind in MODELS}
        for kind, (out, _, _, right, says) in of.items():
            code, _, _, said = asked(out, right, folder, says)
            if code:
                lines.append(f"WRONG: {kind} without a mistake: {said}")
        for row, bugs in (("named", NAMED), ("others", OTHERS)):
            for bug in bugs:
                out, ref, names, _, says = of[bug.family]
                theirs = run(folder / bug.family, TOKENS, bug.name)
                if (true := differing(ref, theirs, names)) not in bug.first:
                    raise SystemExit(f"{bug.name}: the first that differs is {true}, not {bug.first}")
                code, first, rest, said = asked(out, theirs, folder, says)
                found = {"bug": bug.name, "family": bug.family, "first": first, "source": bug.source}
                found |= {"right": code != 0 and first in bug.first}
                found |= {"named": bool(re.search(bug.words, rest, re.IGNORECASE)), "said": said}
                rows[row].append(found)
                marks = " ".join(("-", "x")[found[key]] for key in ("right", "named"))
                print(f"{marks}  {bug.family:12} {bug.name}: {first}", flush=True)
    for row, found in rows.items():
        counts = (sum(one[key] for one in found) for key in ("right", "named"))
        lines.append(f"{row}: first tensor right {{}} of {len(found)}, named {{}}".format(*counts))
    print("\n".join(lines))
    (ROOT / "benchmarks" / "results" / "porting.json").write_text(json.dumps(rows, indent=1) + "\n")


TOKENS = np.random.default_rng(0).integers(1, V, T)
if __name__ == "__main__":
    main()
