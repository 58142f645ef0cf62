"""What a model of Hugging Face transformers computes, under the names of `peref trace`.

    pip install torch transformers safetensors
    python dump_transformers.py FOLDER ref.json theirs.safetensors [--dtype bfloat16] [--gradients]

FOLDER is what save_pretrained wrote, or a name on the hub; ref.json is of `peref trace` and says which tokens
are read. Modules are found by the names that they have in transformers (below). Hooks on them give what
enters and leaves each; apply_rotary_pos_emb is wrapped, for q and k before they turn; and an attention
function of our own keeps scores and probabilities, and computes them in the dtype of the model. MPT, whose
attention asks for no such function, gives no scores; a mixer (Mamba) has nothing of heads.

Tried with transformers 5.23 on the models of the table in porting.md. It stands alone: copy it, and change it
for a model of your own.
"""

import argparse
import json
import sys

import torch
from safetensors.torch import save_file
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM
from transformers.masking_utils import eager_mask

LAYERS = ("layers", "h", "blocks")  # in the base model
LAST_NORM = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f")
ATTENTION = ("self_attn", "attn", "attention", "mixer")  # in a layer
FEED_FORWARD = ("mlp", "ffn", "block_sparse_moe")
NORM_BEHIND = ("pre_feedforward_layernorm", "norm_2", "ln_2", "post_attention_layernorm")  # after attention
NAME = "dump"  # of our attention function, among theirs


class Dump:
    """The tensors of one forward pass, by name."""

    def __init__(self):
        self.kept, self.layer = {}, 0

    def note(self, name, x):
        self.kept[f"layers.{self.layer}.{name}"] = x

    def attention(self, module, query, key, value, mask, scaling=None, softcap=None, **_):
        """As eager_attention_forward of the models, without dropout; softmax in the dtype of the query."""
        if f"layers.{self.layer}.q" in self.kept:  # rotary has noted them, of Phi without what does not turn
            for name, turned in (("q", query), ("k", key)):
                before = self.kept[f"layers.{self.layer}.{name}"]
                if (R := before.shape[-1]) < turned.shape[-1]:
                    self.note(name, torch.cat([before, turned[..., R:]], -1))
                self.note(f"{name}_turned", turned)
        else:
            self.note("q", query)
            self.note("k", key)
        self.note("v", value)
        groups = query.shape[1] // key.shape[1]
        k, v = (a.repeat_interleave(groups, 1) for a in (key, value))
        scores = query @ k.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        self.note("scores", scores)
        masked = scores if mask is None else scores + mask
        if (sinks := getattr(module, "sinks", None)) is not None:
            column = sinks.to(masked.dtype).reshape(1, -1, 1, 1).expand(*masked.shape[:3], 1)
            masked = torch.cat([masked, column], -1)
        probabilities = masked.softmax(-1)[..., : scores.shape[-1]]
        self.note("probabilities", probabilities)
        heads = probabilities @ v
        self.note("heads", heads)
        return heads.transpose(1, 2).contiguous(), probabilities

    def rotary(self, function):
        """apply_rotary_pos_emb, which is asked once a layer."""

        def noted(q, k, *rest, **more):
            self.note("q", q)
            self.note("k", k)
            return function(q, k, *rest, **more)

        return noted

    def watch(self, layer, number):
        """Hooks on a layer; which tensor is which is told by what is handed on unchanged."""
        seen, parts = {}, {"attention": ATTENTION, "ffn": FEED_FORWARD, "behind": NORM_BEHIND}
        found = {name: part(layer, of) for name, of in parts.items()}

        def entering(module, args, kwargs):
            self.layer = number
            seen.clear()

        layer.register_forward_pre_hook(entering, with_kwargs=True)
        for name, module in found.items():
            if module is not None:
                module.register_forward_hook(reader(seen, name), with_kwargs=True)
        if hasattr(found["attention"], "Wqkv"):  # MPT
            self.watch_mpt(found["attention"])

        def leaving(module, args, kwargs, out):
            stream, out = entered(args, kwargs), tensor(out)
            read, output = seen["attention"]
            if number == 0:
                self.kept["embedded"] = stream
            self.note("input", stream)
            if read is not stream:  # else nothing is normed before
                self.note("normed", read)
            self.note("output", output)
            self.note("leaving", out)
            if found["ffn"] is None:
                self.note("residual", out)
                return
            fed, ffn = seen["ffn"]
            behind = seen.get("behind", (None,))[0]
            if behind is stream or fed is read:  # parallel
                residual = stream + output
            else:
                residual = fed if behind is output else behind
            self.note("residual", residual)
            if fed is not read and fed is not residual:
                self.note("ffn_normed", fed)
            self.note("ffn", ffn - residual if ffn is out else ffn)  # MPT's adds the residual itself

        layer.register_forward_hook(leaving, with_kwargs=True)

    def watch_mpt(self, attention):
        def of_heads(x):
            return x.unflatten(-1, (attention.n_heads, -1)).transpose(1, 2)

        def projected(module, args, out):
            for name, x in zip("qkv", out.chunk(3, -1), strict=True):
                self.note(name, of_heads(x))

        attention.Wqkv.register_forward_hook(projected)
        attention.out_proj.register_forward_pre_hook(lambda _, args: self.note("heads", of_heads(args[0])))
        attention.register_forward_hook(lambda _, args, out: self.note("probabilities", out[1]))


def part(module, names):
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def tensor(given):
    """The hidden states among what a module returned."""
    return given[0] if isinstance(given, (tuple, list)) else given


def entered(args, kwargs):
    """And among what it was given."""
    return args[0] if args else kwargs["hidden_states"]


def reader(seen, name):
    def hook(module, args, kwargs, out):
        seen[name] = entered(args, kwargs), tensor(out)

    return hook


def dumped(model, tokens, gradients=False):
    """The tensors of a model over `tokens` [[...]], by name."""
    dump = Dump()
    AttentionInterface.register(NAME, dump.attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    model.set_attn_implementation("eager" if type(model).__name__.startswith("Mpt") else NAME)
    model.set_experts_implementation("eager")  # others are not for float64
    model.eval().requires_grad_(gradients)
    base = model.base_model
    layers = part(base, LAYERS)
    for number, layer in enumerate(layers):
        dump.watch(layer, number)
    part(base, LAST_NORM).register_forward_hook(lambda _, args, out: dump.kept.update(final=out))
    modeling = sys.modules[type(layers[0]).__module__]
    rotary = getattr(modeling, "apply_rotary_pos_emb", None)
    if rotary:
        modeling.apply_rotary_pos_emb = dump.rotary(rotary)
    try:
        ids = torch.tensor(tokens)
        logits = model(ids, use_cache=False).logits
    finally:
        if rotary:
            modeling.apply_rotary_pos_emb = rotary
    dump.kept["logits"] = logits
    if ids.shape[1] > 1:
        dump.kept["loss"] = torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:])
    if gradients:
        graph = {name: x for name, x in dump.kept.items() if x.grad_fn is not None}
        found = torch.autograd.grad(dump.kept["loss"], list(graph.values()), allow_unused=True)
        dump.kept |= {f"gradient.{n}": g for n, g in zip(graph, found, strict=True) if g is not None}
    return {name: x.detach().clone().contiguous() for name, x in dump.kept.items()}


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("folder")
    asked.add_argument("reference", help="the JSON of peref trace, which has the tokens")
    asked.add_argument("output", help="a new .safetensors")
    asked.add_argument("--dtype", default="float64", choices=["float64", "float32", "bfloat16", "float16"])
    asked.add_argument("--gradients", action="store_true", help="of the loss, with respect to each tensor")
    given = asked.parse_args()
    with open(given.reference) as file:
        tokens = json.load(file)["tokens"]
    model = AutoModelForCausalLM.from_pretrained(given.folder, dtype=getattr(torch, given.dtype))
    found = dumped(model, tokens, given.gradients)
    save_file(found, given.output)
    print(f"{len(found)} tensors in {given.output}")
