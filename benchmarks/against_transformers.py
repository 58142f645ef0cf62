"""Public models as Hugging Face computes them against ours: logits, loss and every gradient, in float64.

    pip install -e . torch transformers          # peref and its tests need neither of the two
    python benchmarks/against_transformers.py [NAME ...]

Each line is one model of a tiny random config: class, what is special about it, and the largest deviation of
logits, loss and gradients through peref.porting, each relative to the largest number of its tensor, with the
tensor whose gradient is worst. Exit code 1 if one of them is beyond 1e-9 or not a number, if a name is
missing or too many, or if no model was compared.

transformers computes three steps in float32 whatever the dtype of the model: the mean square of RMSNorm, the
rotary angles and the softmax of the Llama family. Here these steps run in float64 as well (`in_double`), or
nothing below 1e-6 could be told; the last column is the deviation of the logits of the model as shipped,
which that float32 explains (GPT-2 has no such step).
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import transformers as hf

from peref import model, porting
from peref.tape import Tape

TOLERANCE = 1e-9
SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
}
GPT2_SIZES: dict[str, Any] = {
    "vocab_size": 67,
    "n_positions": 40,
    "n_embd": 48,
    "n_layer": 3,
    "n_head": 6,
    "bos_token_id": 0,
    "eos_token_id": 0,
}
SLIDING = {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 0}

MODELS: dict[str, tuple[Any, Any]] = {
    "llama": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES)),
    "llama-tied": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES, tie_word_embeddings=True)),
    "llama-biases": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True)),
    "llama-head-dim": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES, head_dim=14)),
    "llama-base": (
        hf.LlamaForCausalLM,
        hf.LlamaConfig(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 500000.0}),
    ),
    "llama-kv-heads-1": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES | {"num_key_value_heads": 1})),
    "llama-kv-heads-all": (hf.LlamaForCausalLM, hf.LlamaConfig(**SIZES | {"num_key_value_heads": None})),
    "mistral": (hf.MistralForCausalLM, hf.MistralConfig(**SIZES, sliding_window=5)),
    "mistral-no-window": (hf.MistralForCausalLM, hf.MistralConfig(**SIZES, sliding_window=None)),
    "qwen2": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**SIZES)),
    "qwen2-tied-window": (hf.Qwen2ForCausalLM, hf.Qwen2Config(**SIZES, **SLIDING, tie_word_embeddings=True)),
    "qwen3": (hf.Qwen3ForCausalLM, hf.Qwen3Config(**SIZES, head_dim=12)),
    "qwen3-tied-window": (
        hf.Qwen3ForCausalLM,
        hf.Qwen3Config(**SIZES, **SLIDING, head_dim=6, tie_word_embeddings=True),
    ),
    "gpt2": (hf.GPT2LMHeadModel, hf.GPT2Config(**GPT2_SIZES)),
    "gpt2-untied-inner": (
        hf.GPT2LMHeadModel,
        hf.GPT2Config(**GPT2_SIZES, n_inner=70, tie_word_embeddings=False, layer_norm_epsilon=1e-3),
    ),
}


@contextmanager
def in_double() -> Iterator[None]:
    """What is written as float32 in the models' text is float64."""
    with (
        patch.multiple(torch, float=torch.float64, float32=torch.float64),
        patch.object(torch.Tensor, "float", torch.Tensor.double),
    ):
        yield


def theirs(made: Any, config: Any, state: dict[str, Any] | None, tokens: Any) -> tuple[Any, dict[str, Any]]:
    """The model, its logits and loss and the gradient of each of its parameters."""
    config._attn_implementation = "eager"
    net = made(config).double().eval()
    with torch.no_grad():
        for p in net.parameters():  # none special: norms away from one, biases away from zero
            p.copy_(torch.randn_like(p) * (2 * p.shape[-1] ** -0.5 if p.ndim == 2 else 0.5) + (p.ndim == 1))
    if state is not None:
        net.load_state_dict(state)
    out = net(tokens, labels=tokens)
    out.loss.backward()
    gradients = {name: p.grad.numpy() for name, p in net.named_parameters()}
    return net, {
        "logits": out.logits.detach().numpy(),
        "loss": out.loss.detach().numpy(),
        "gradients": gradients,
    }


def ours(config: Any, state: dict[str, Any], tokens: Any) -> dict[str, Any]:
    cfg = porting.config_of(config.to_dict())
    params = porting.load({name: a.numpy() for name, a in state.items()}, cfg)
    model.check(cfg, params)
    targets = np.concatenate([tokens[:, 1:], np.full((len(tokens), 1), -1)], 1)
    tape = Tape()
    leaves = tape.watch(params)
    loss, _ = model.loss(cfg, leaves, tokens, targets)
    found = tape.gradients(loss, np.ones_like(loss.value))
    gradients = porting.unload({name: found[leaf] for name, leaf in leaves.items()}, cfg)
    return {"logits": model.logits(cfg, params, tokens), "loss": loss.value, "gradients": gradients}


def deviation(a: Any, e: Any) -> float:
    if (a.shape, a.dtype) != (e.shape, e.dtype):
        return np.inf
    return float(np.abs(a - e).max() / np.abs(e).max())


def compare(name: str) -> bool:
    made, config = MODELS[name]
    torch.manual_seed(sum(map(ord, name)))
    tokens = torch.randint(0, config.vocab_size, (2, 23))
    made(config)  # so that whatever it imports is there before anything is replaced
    with in_double():
        net, wanted = theirs(made, config, None, tokens)
    state = {key: a.detach() for key, a in net.state_dict().items()}
    _, single = theirs(made, config, state, tokens)
    got = ours(config, state, tokens.numpy())
    if got["gradients"].keys() != wanted["gradients"].keys():
        print(f"{name}: names differ: {sorted(got['gradients'].keys() ^ wanted['gradients'].keys())}")
        return False
    each = {key: deviation(got["gradients"][key], e) for key, e in wanted["gradients"].items()}
    worst = max(each, key=lambda key: np.inf if np.isnan(each[key]) else each[key])
    logits, loss = (deviation(np.asarray(got[key]), wanted[key]) for key in ("logits", "loss"))
    good = all(error <= TOLERANCE for error in (logits, loss, *each.values()))
    as_shipped = deviation(got["logits"], single["logits"])
    print(
        f"{name:20} {'same' if good else 'DIFFERS':8} logits {logits:.1e}  loss {loss:.1e}  {len(each):3} "
        f"gradients {each[worst]:.1e} ({worst})  logits as shipped {as_shipped:.1e}"
    )
    return good


def main(names: list[str]) -> int:
    hf.logging.set_verbosity_error()
    print(f"transformers {hf.__version__}, torch {torch.__version__}, numpy {np.__version__}")
    if unknown := [name for name in names if name not in MODELS]:
        print(f"unknown: {', '.join(unknown)}; expected of: {', '.join(MODELS)}")
        return 2
    results = [compare(name) for name in names or MODELS]
    print(f"{sum(results)} of {len(results)} models the same to {TOLERANCE:.0e}")
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
