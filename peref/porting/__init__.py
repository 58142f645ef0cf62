"""Public models as ours: their config.json as a Config, their tensors as parameters, and the way back, which
gradients take too.

    cfg = config_of(json.load(open("config.json")))
    params = load(safetensors.numpy.load_file("model.safetensors"), cfg)
    model.logits(cfg, params, tokens)                              # theirs, number for number
    unload({name: g[leaf] for name, leaf in leaves.items()}, cfg)  # gradients under their names

Llama, Mistral, Qwen2 and Qwen3 are one text, kind "llama", with a flag each: window, qkv_bias, qk_norm. The
tables of names stand below. The leading "model." or "transformer." may be missing (the bare models, the
published GPT-2 file). A tied head may be there as well when it equals the embedding. Nothing else is passed
over but buffers that hold no parameter: attn.bias and attn.masked_bias of GPT-2, which are causal masks, and
rotary_emb.inv_freq of Llama, which the config decides.

Scaled rotary frequencies are read by huggingface. Not here: reading files; dropout (none is computed);
mixtures of experts, quantised weights, layers that turn differently, heads that turn in part (refused).
"""

from peref.porting.config import config_of
from peref.porting.tensors import PUBLIC_NAMES, Kind, load, unload

__doc__ = f"{__doc__}\nTheirs, ours, shape of ours:\n{PUBLIC_NAMES['llama']}{PUBLIC_NAMES['gpt2']}"
__all__ = ["NAMES", "Kind", "config_of", "load", "unload"]
