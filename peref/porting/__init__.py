"""Public models as ours: their config.json as a Config, their tensors as parameters, and the way back, which
gradients take too.

    cfg = config_of(json.load(open("config.json")))
    params = load(safetensors.numpy.load_file("model.safetensors"), cfg)
    model.logits(cfg, params, tokens)                              # theirs, number for number
    unload({name: g[leaf] for name, leaf in leaves.items()}, cfg)  # gradients under their names

A family is a table of names (names) and a dict of settings (families): of Llama, Mistral, Ministral 3, Qwen 2
and 3, OLMo 2 and 3, SmolLM 3, Gemma 2 and 3, Granite, Cohere, GLM 4, Phi 1 to 3, Pythia and GPT-NeoX, GPT-J,
GPT-2, Falcon, BLOOM and MPT; with experts Mixtral, Qwen 3, gpt-oss and Llama 4 (its text); with a state Mamba
and RWKV-4; and T5, an encoder and a decoder, which pair_of reads. The tables of names stand below; names_of
says which one a config.json means. The leading "model." or "transformer." may be missing (the bare models,
the published GPT-2 file). A tied head may be there as well when it equals the embedding. Nothing else is
passed over but buffers that hold no parameter: causal masks and rotary_emb.inv_freq, which the config has.

Files that have each expert's tensors apart are read too. Scaled rotary frequencies are read by huggingface.
Not here: reading files; dropout (none is computed); latent attention, quantised
weights (refused, with what is missing).
"""

from peref.porting.config import config_of, names_of, one_or_two, pair_of
from peref.porting.names import PUBLIC_NAMES
from peref.porting.tensors import load, table, unload

__doc__ = f"{__doc__}\nTheirs, ours, words (names):\n" + "".join(
    f"\n{kind}\n"
    + "".join(f"    {a}  {','.join(ours)}  {' '.join(words)}\n" for a, ours, words in table(kind))
    for kind in PUBLIC_NAMES
)
__all__ = ["config_of", "load", "names_of", "one_or_two", "pair_of", "unload"]
