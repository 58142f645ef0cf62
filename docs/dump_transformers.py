"""What a model of Hugging Face transformers computes, under the names of `peref trace`.

    pip install torch transformers safetensors
    python dump_transformers.py FOLDER ref.json theirs.safetensors [--dtype bfloat16] [--gradients]

FOLDER is what save_pretrained wrote, or a name on the hub; ref.json is of `peref trace` and says which tokens
are read, where they are, and of which document each is (seg, 0 for padding). Modules are found by the names
that they have in transformers (below). Hooks on them give what enters and leaves each; apply_rotary_pos_emb
is wrapped, for q and k before they turn; and an attention function of our own keeps scores and probabilities,
and computes them in the dtype of the model. MPT, BLOOM and Falcon, whose attention asks for no such function,
give no scores; a mixer (Mamba, RWKV) has nothing of heads.

Tried with transformers 5.23 on the models of the table in porting.md. It stands alone: copy it, and change it
for a model of your own.
"""

import argparse
import inspect
import json
import sys

import torch
from safetensors.torch import save_file
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
)
from transformers.masking_utils import and_masks, eager_mask, packed_sequence_mask_function

LAYERS = ("layers", "h", "blocks")  # in the base model
LAST_NORM = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f", "ln_out")
ATTENTION = ("self_attn", "attn", "attention", "self_attention", "mixer")  # in a layer
T5_ATTENTION = ("SelfAttention", "EncDecAttention")
FEED_FORWARD = ("mlp", "ffn", "block_sparse_moe", "feed_forward")
ROUTER = ("router", "gate")  # in a feed-forward of experts
# before the feed-forward
NORM_BEHIND = ("pre_feedforward_layernorm", "norm_2", "ln_2", "ln2", "ln_mlp", "post_attention_layernorm")
OWN_ATTENTION = ("Mpt", "GPTJ", "Bloom", "Falcon")  # classes that ask for no function of attention
NAME = "dump"  # of our attention function, among theirs


class Dump:
    """The tensors of one forward pass, by name."""

    def __init__(self):
        self.kept, self.layer = {}, 0
        self.half = self.cross = ""  # "encoder." and "cross_" stand before names of T5's

    def name(self, step):
        return f"{self.half}layers.{self.layer}.{step}"

    def note(self, step, x):
        self.kept[self.name(step)] = x

    def attention(self, module, query, key, value, mask, scaling=None, softcap=None, position_bias=None, **_):
        """As eager_attention_forward of the models, without dropout; softmax in the dtype of the query."""
        if self.name(f"{self.cross}q") in self.kept:  # rotary has noted it, of Phi without what does not turn
            for name, turned in (("q", query), ("k", key)):
                before = self.kept[self.name(name)]
                if (R := before.shape[-1]) < turned.shape[-1]:
                    self.note(name, torch.cat([before, turned[..., R:]], -1))
                self.note(f"{name}_turned", turned)
        else:
            self.note(f"{self.cross}q", query)
            self.note(f"{self.cross}k", key)
        self.note(f"{self.cross}v", value)
        groups = query.shape[1] // key.shape[1]
        k, v = (a.repeat_interleave(groups, 1) for a in (key, value))
        scores = query @ k.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
        if softcap is not None:
            scores = softcap * torch.tanh(scores / softcap)
        if position_bias is not None and not self.cross:  # across it is 0
            bias = position_bias.clone()  # all layers have the same
            self.note("bias", bias)
            scores = scores + bias
        self.note(f"{self.cross}scores", scores)
        masked = scores if mask is None else scores + mask
        if (sinks := getattr(module, "sinks", None)) is not None:
            column = sinks.to(masked.dtype).reshape(1, -1, 1, 1).expand(*masked.shape[:3], 1)
            masked = torch.cat([masked, column], -1)
        probabilities = masked.softmax(-1)[..., : scores.shape[-1]]
        self.note(f"{self.cross}probabilities", probabilities)
        heads = probabilities @ v
        self.note(f"{self.cross}heads", heads)
        return heads.transpose(1, 2).contiguous(), probabilities

    def rotary(self, function):
        """apply_rotary_pos_emb, which is asked once a layer."""

        def noted(q, k, *rest, **more):
            found = function(q, k, *rest, **more)
            if q.ndim == k.ndim:  # GPT-J's turns one at a time
                for name, before, turned in zip("qk", (q, k), found, strict=True):
                    self.note(name, before)
                    self.note(f"{name}_turned", turned)
            return found

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
        if router := part(found["ffn"], ROUTER):
            router.register_forward_hook(
                lambda module, args, out: self.note("router", logits_of(module, out))
            )
        if hasattr(layer, "pre_ln"):  # RWKV's first
            layer.pre_ln.register_forward_hook(lambda module, args, out: seen.update(stream=out))
        self.watch_attention(found["attention"], seen)
        if type(layer).__name__.startswith("Falcon"):  # adds to it in place
            found["ffn"].register_forward_hook(lambda module, args, out: out.clone())

        def leaving(module, args, kwargs, out):
            stream, out = seen.get("stream", entered(args, kwargs)), tensor(out)
            read, output = seen["attention"]
            output = seen.get("output", output)
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
            if ffn is out:  # MPT's and BLOOM's add the residual themselves
                ffn = ffn - residual
            # Llama 4's experts have one axis for all tokens
            self.note("ffn", ffn if ffn.shape == out.shape else ffn.reshape(out.shape))

        layer.register_forward_hook(leaving, with_kwargs=True)

    def watch_stack(self, stack, half):
        """Hooks on T5's encoder or decoder, whose layers are lists of sublayers."""

        def noting(module, step, of=lambda x: x):
            module.register_forward_hook(lambda _, args, out: self.note(step, tensor(out)))

        for number, layer in enumerate(stack.block):
            *attentions, last = layer.layer

            def entering(module, args, kwargs, number=number):
                self.half, self.layer, x = half, number, entered(args, kwargs)
                self.note("input", x)
                if number == 0:
                    self.kept[f"{half}embedded"] = x

            layer.register_forward_pre_hook(entering, with_kwargs=True)
            for sublayer, cross in zip(attentions, ("", "cross_"), strict=False):
                across = lambda module, args, cross=cross: setattr(self, "cross", cross)
                sublayer.register_forward_pre_hook(across)
                noting(sublayer.layer_norm, f"{cross}normed")
                noting(part(sublayer, T5_ATTENTION), f"{cross}output")
                noting(sublayer, f"{cross}residual")
            noting(last.layer_norm, "ffn_normed")
            noting(last.DenseReluDense, "ffn")
            noting(last, "leaving")
        norm = stack.final_layer_norm
        norm.register_forward_hook(lambda _, args, out: self.kept.update({f"{half}final": out}))

    def watch_attention(self, attention, seen):
        """What is inside attention, of the classes where neither function shows it."""
        kind = type(attention).__name__

        def of_heads(x):  # [B,T,HD] -> [B,H,T,D]
            return x.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)

        def note_all(found, names="qkv", change=lambda x: x):
            for name, x in zip(names, found, strict=True):
                self.note(name, change(x))
            return found

        if kind.startswith("GPTJ"):
            attention._attn = lambda *given: (self.attention(attention, *given)[0].transpose(1, 2), None)
        if kind.startswith("GPTJ") or (kind.startswith("Llama4") and turns(attention)):
            norm = getattr(attention, "qk_norm", lambda x: x)
            for name in "qk":
                hook = lambda _, args, out, name=name: self.note(name, norm(of_heads(out)))
                getattr(attention, f"{name}_proj").register_forward_hook(hook)
        if not kind.startswith(("Mpt", "Bloom", "Falcon")):
            return
        if kind.startswith("Mpt"):
            hook = lambda _, args, out: note_all(out.chunk(3, -1), change=of_heads) and None
            attention.Wqkv.register_forward_hook(hook)
        elif kind.startswith("Bloom"):
            split = attention._reshape
            attention._reshape = lambda x: note_all(split(x))
        else:
            split = attention._split_heads
            attention._split_heads = lambda x: note_all(split(x), change=lambda x: x.transpose(1, 2))

        def leaving(module, args, out):
            self.note("probabilities", out[1])
            groups = getattr(attention, "num_kv_heads", attention.num_heads) if kind[0] == "F" else 0
            for name in ("k", "k_turned", "v") if groups else ():  # repeated for all heads
                x = self.kept[self.name(name)]
                self.note(name, x[:, :: x.shape[1] // groups])

        last = part(attention, ("out_proj", "dense"))
        last.register_forward_pre_hook(lambda _, args: self.note("heads", of_heads(args[0])))
        last.register_forward_hook(lambda _, args, out: seen.update(output=out))
        attention.register_forward_hook(leaving)


def turns(attention):
    """Whether q and k of Llama 4 turn, or have a factor."""
    return attention.use_rope or attention.attn_temperature_tuning


def logits_of(router, out):
    """The logits [T,E] among what a router returned."""
    return out[type(router).__name__.startswith("Llama4")]


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


def mask_within(seg):
    """Their mask, and none of it across documents: seg [1,T] of query and key must be the same."""
    same = packed_sequence_mask_function(seg)
    return lambda mask_function, **how: eager_mask(mask_function=and_masks(mask_function, same), **how)


def place(model, about):
    """What a model is given so that tokens are where ref.json says; nothing for one text from its start."""
    T, positions = about["n"], about["positions"]
    if about["seg"] is None and positions == list(range(T)):
        return {}
    if "position_ids" not in inspect.signature(model.forward).parameters:
        sys.exit(f"{type(model).__name__} takes no positions; trace without --place")
    real = torch.tensor(about["seg"] or [[1] * T]) > 0
    positions = torch.tensor(positions).reshape(-1, 1, T).squeeze(0)  # of several axes [A,1,T]
    return {"position_ids": positions, "attention_mask": real}


def dumped(model, about, gradients=False):
    """The tensors of a model over the tokens of `about`, by name; about: what ref.json says."""
    dump, ids, source = Dump(), torch.tensor(about["tokens"]), about.get("encoder_tokens")
    seg = None if about["seg"] is None else torch.tensor(about["seg"])
    given = place(model, about)
    AttentionInterface.register(NAME, dump.attention)
    AttentionMaskInterface.register(NAME, eager_mask if seg is None else mask_within(seg))
    if type(model).__name__.startswith(OWN_ATTENTION):
        model.config._attn_implementation = NAME
    else:
        model.set_attn_implementation(NAME)
    model.set_experts_implementation("eager")  # others are not for float64
    model.config.rescale_every = 0  # RWKV's: halves the stream, which its weights make up for
    model.eval().requires_grad_(gradients)
    if source is not None:
        dump.watch_stack(model.encoder, "encoder.")
        dump.watch_stack(model.decoder, "")
    else:
        base = model.base_model  # Llama 4's is elsewhere, and that of one that reads pictures too
        inner = (part(of, (name,)) for of, name in ((model, "model"), (base, "language_model")))
        base = next(one for one in (base, *inner) if one is not None and part(one, LAYERS))
        for number, layer in enumerate(part(base, LAYERS)):
            dump.watch(layer, number)
        part(base, LAST_NORM).register_forward_hook(lambda _, args, out: dump.kept.update(final=out))
    modeling = sys.modules[type(model).__module__]
    rotary = getattr(modeling, "apply_rotary_pos_emb", None)
    if rotary:
        modeling.apply_rotary_pos_emb = dump.rotary(rotary)
    try:
        given |= (
            {"input_ids": ids}
            if source is None
            else {"input_ids": torch.tensor(source), "decoder_input_ids": ids}
        )
        logits = model(**given, use_cache=False).logits
    finally:
        if rotary:
            modeling.apply_rotary_pos_emb = rotary
    dump.kept["logits"] = logits
    if ids.shape[1] > 1:
        seg = torch.ones_like(ids) if seg is None else seg
        follows = (seg[:, 1:] == seg[:, :-1]) & (seg[:, 1:] > 0)  # in the same document
        dump.kept["loss"] = torch.nn.functional.cross_entropy(logits[:, :-1][follows], ids[:, 1:][follows])
    if gradients:  # of parameters under their names here, which diff reads
        graph = {name: x for name, x in dump.kept.items() if x.grad_fn is not None}
        names = {name: name.replace("language_model.", "") for name, _ in model.named_parameters()}
        graph |= {f"parameter.{names[name]}": p for name, p in model.named_parameters()}
        found = torch.autograd.grad(dump.kept["loss"], list(graph.values()), allow_unused=True)
        dump.kept |= {f"gradient.{n}": g for n, g in zip(graph, found, strict=True) if g is not None}
    batched = lambda name, x: x[None] if name.endswith(".router") else x  # routers see no sequences
    return {name: batched(name, x.detach()).clone().contiguous() for name, x in dump.kept.items()}


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("folder")
    asked.add_argument("reference", help="the JSON of peref trace, which has the tokens")
    asked.add_argument("output", help="a new .safetensors")
    asked.add_argument("--dtype", default="float32", choices=["float32", "float64", "bfloat16", "float16"])
    asked.add_argument(
        "--gradients", action="store_true", help="of the loss, with respect to each tensor and parameter"
    )
    given = asked.parse_args()
    with open(given.reference) as file:
        about = json.load(file)
    config = AutoConfig.from_pretrained(given.folder)
    kinds = (AutoModelForCausalLM, AutoModelForImageTextToText)
    read = next((one for one in kinds if type(config) in one._model_mapping), kinds[0])
    kind = AutoModelForSeq2SeqLM if "encoder_tokens" in about else read
    model = kind.from_pretrained(given.folder, dtype=getattr(torch, given.dtype))
    found = dumped(model, about, given.gradients)
    save_file(found, given.output)
    print(f"{len(found)} tensors in {given.output}")
