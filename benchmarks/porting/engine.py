"""A transformer written from published descriptions alone, which reads a folder that transformers saved and
says what it computes on the way. NumPy in float32. Nothing of peref and no model code of anybody is used: it
stands for somebody's port, and has twenty mistakes that can be planted in it (bugs.py).

    tensors = run("folder", tokens, bug="")         names as docs/porting.md has them

Families: llama, mistral, qwen2, qwen3, smollm3, cohere2, gemma2, gemma3_text, gpt_oss, llama4_text, gpt_neox,
bloom.
"""

import json
import math
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

BARE = {"gpt_neox": "gpt_neox.", "bloom": "transformer."}


def softmax(s):
    e = np.exp(s - s.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_exact(x):
    return (0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))).astype(x.dtype)


class Port:
    """A model in `folder`, with the mistake called `bug`, "" for none."""

    def __init__(self, folder, bug=""):
        self.c = c = json.loads((Path(folder) / "config.json").read_text())
        self.w = {}
        for path in sorted(Path(folder).glob("*.safetensors")):
            self.w |= {name: a.astype(np.float32) for name, a in load_file(path).items()}
        self.bug, self.kind = bug, c["model_type"]
        self.prefix = BARE.get(self.kind, "model.")
        self.layers = c.get("num_hidden_layers", c.get("n_layer"))
        self.H = c.get("num_attention_heads", c.get("n_head"))
        fused = self.kind in BARE  # q, k and v of each head in one map
        self.G = self.H if fused else c.get("num_key_value_heads") or self.H
        self.D = None if fused else c.get("head_dim")
        self.D = self.D or c["hidden_size"] // self.H
        self.eps = c.get("rms_norm_eps", c.get("layer_norm_eps", c.get("layer_norm_epsilon")))
        self.gemma = self.kind.startswith("gemma")
        self.tensors = {}

    def get(self, name, default=None):
        return self.w.get(self.prefix + name, default)

    def linear(self, x, name):
        y = x @ self.get(f"{name}.weight").T
        bias = self.get(f"{name}.bias")
        dropped = self.bug == "biases of q, k and v left out" and name[-6:] in ("q_proj", "k_proj", "v_proj")
        return y if bias is None or dropped else y + bias

    def norm(self, x, name):
        w, b = self.get(f"{name}.weight"), self.get(f"{name}.bias")
        if self.kind in ("gpt_neox", "bloom", "cohere2"):
            x = x - x.mean(-1, keepdims=True)
        elif self.gemma and self.bug != "norm weights are not counted from one":
            w = 1 + w
        y = w * (x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(self.eps)))
        return y if b is None else y + b

    # -------------------------------------------------------------- which layer does what

    def kind_of(self, layer):
        """full_attention, sliding_attention or chunked_attention."""
        types = self.c.get("layer_types")
        if types is None:
            return "sliding_attention" if self.kind == "mistral" else "full_attention"
        if self.bug == "window on the wrong layers":
            return {"sliding_attention": "full_attention", "full_attention": "sliding_attention"}[
                types[layer]
            ]
        return types[layer]

    def turns(self, layer):
        if self.kind == "cohere2":
            return self.kind_of(layer) == "sliding_attention"
        on = bool((self.c.get("no_rope_layers") or [1] * self.layers)[layer])
        return on != (self.bug == "layers without positions inverted")

    def frequencies(self, layer):
        """Of each pair of channels, and the factor on q and k."""
        rope = self.c["rope_parameters"]
        if "rope_theta" not in rope:
            kind = self.c["layer_types"][layer]
            if self.bug == "base of the other kind of layer":
                kind = next(other for other in rope if other != kind)
            rope = rope[kind]
        R = int(self.D * rope.get("partial_rotary_factor", 1.0))
        if self.bug == "all channels turn":
            R = self.D
        f, scaled = rope["rope_theta"] ** (-np.arange(0, R, 2) / R), rope["rope_type"]
        if scaled == "llama3" and self.bug != "scaling of Llama 3 left out":
            waves, original = 2 * math.pi / f, rope["original_max_position_embeddings"]
            low, high = rope["low_freq_factor"], rope["high_freq_factor"]
            smooth = np.clip((original / waves - low) / (high - low), 0, 1)
            f = f * (smooth + (1 - smooth) / rope["factor"])
        if scaled != "yarn":
            return f, 1.0
        original, s = rope["original_max_position_embeddings"], rope["factor"]
        index = lambda turns: (
            R * math.log(original / (2 * math.pi * turns)) / (2 * math.log(rope["rope_theta"]))
        )
        low, high = index(rope.get("beta_fast", 32)), index(rope.get("beta_slow", 1))
        if rope.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, R - 1)
        ramp = np.clip((np.arange(R // 2) - low) / max(high - low, 0.001), 0, 1)
        gain = 1.0 if self.bug == "factor of YaRN on q and k left out" else 0.1 * math.log(s) + 1
        return f * (1 - ramp) + f / s * ramp, gain

    def turned(self, x, layer):
        f, gain = self.frequencies(layer)
        R = 2 * len(f)
        angle = np.arange(x.shape[-2])[:, None] * f
        cos, sin = (gain * g(angle).astype(np.float32) for g in (np.cos, np.sin))
        first = self.D - R if self.bug == "the last channels turn, not the first" else 0
        part, y = x[..., first : first + R], x.copy()
        pairs = self.kind in ("cohere2", "llama4_text") and self.bug != "halves for neighbours"
        at = (slice(0, None, 2), slice(1, None, 2)) if pairs else (slice(0, R // 2), slice(R // 2, None))
        a, b = part[..., at[0]], part[..., at[1]]
        z = np.empty_like(part)
        z[..., at[0]], z[..., at[1]] = a * cos - b * sin, b * cos + a * sin
        y[..., first : first + R] = z
        return y

    def seen(self, layer, T):
        i, j = np.arange(T)[:, None], np.arange(T)[None]
        seen = j <= i
        if self.kind_of(layer) == "sliding_attention":
            seen &= i - j < self.c["sliding_window"] + (self.bug == "window wider by one")
        if self.kind_of(layer) == "chunked_attention":
            seen &= i // self.c["attention_chunk_size"] == j // self.c["attention_chunk_size"]
        return seen

    # -------------------------------------------------------------- sublayers

    def heads_of(self, h, layer):
        """q [1,H,T,D], k and v [1,G,T,D], before QK-norm."""
        at, T = f"layers.{layer}.", h.shape[1]
        split = lambda a, n: a.reshape(1, T, n, self.D).transpose(0, 2, 1, 3)
        if self.kind in ("gpt_neox", "bloom"):
            name = f"{at}attention." if self.kind == "gpt_neox" else f"h.{layer}.self_attention."
            qkv = self.linear(h, f"{name}query_key_value").reshape(1, T, self.H, 3, self.D)
            return [qkv[:, :, :, n].transpose(0, 2, 1, 3) for n in range(3)]
        parts = zip("qkv", (self.H, self.G, self.G), strict=True)
        return [split(self.linear(h, f"{at}self_attn.{role}_proj"), n) for role, n in parts]

    def attention(self, h, layer, note):
        T, c = h.shape[1], self.c
        q, k, v = self.heads_of(h, layer)
        late = self.bug == "QK-norm after the rotation"
        if self.get(f"layers.{layer}.self_attn.q_norm.weight") is not None:
            q_norm, k_norm = (lambda a, r=r: self.norm(a, f"layers.{layer}.self_attn.{r}_norm") for r in "qk")
        elif self.kind == "llama4_text" and c["use_qk_norm"] and self.turns(layer):
            q_norm = k_norm = lambda a: a / np.sqrt((a * a).mean(-1, keepdims=True) + np.float32(self.eps))
        else:
            q_norm = k_norm = lambda a: a
        if not late:
            q, k = q_norm(q), k_norm(k)
        note("q", q), note("k", k), note("v", v)
        turns, tempered = self.kind != "bloom" and self.turns(layer), False
        if turns:
            q, k = self.turned(q, layer), self.turned(k, layer)
        elif c.get("attn_temperature_tuning"):
            at = np.arange(T) + (self.bug != "temperature off by one")
            factor, tempered = 1 + c["attn_scale"] * np.log1p(np.floor(at / c["floor_scale"])), True
            q = q * factor.astype(np.float32)[:, None]
        if late:
            q, k = q_norm(q), k_norm(k)
        if turns or tempered:
            note("q_turned", q), note("k_turned", k)
        n = self.H // self.G
        kept = [
            np.tile(a, (1, n, 1, 1)) if self.bug == "key-value heads tiled" else a.repeat(n, 1)
            for a in (k, v)
        ]
        width = self.D if self.bug == "scale of the head width" else c.get("query_pre_attn_scalar", self.D)
        s = q @ kept[0].swapaxes(-1, -2) * np.float32(width**-0.5)
        seen, cap = self.seen(layer, T), c.get("attn_logit_softcapping") if self.kind == "gemma2" else None
        if self.kind == "bloom":
            s = s + note("bias", self.alibi(T))
        uncapped = s
        if cap:
            s = (cap * np.tanh(s / cap)).astype(np.float32)
        note("scores", s)
        masked = np.where(seen, s, np.float32(-np.inf))
        if self.bug == "softcap after the mask":
            masked = np.float32(cap) * np.tanh(np.where(seen, uncapped, np.float32(-1e9)) / np.float32(cap))
        sinks = self.get(f"layers.{layer}.self_attn.sinks")
        if sinks is not None and self.bug != "sinks left out":
            column = np.broadcast_to(sinks[:, None, None], (1, self.H, T, 1))
            p = softmax(np.concatenate([masked, column], -1))[..., :-1]
        else:
            p = softmax(masked)
        o = note("heads", note("probabilities", p) @ kept[1])
        o = o.transpose(0, 2, 1, 3).reshape(1, T, -1)
        out = {"gpt_neox": f"layers.{layer}.attention.dense", "bloom": f"h.{layer}.self_attention.dense"}
        return note("output", self.linear(o, out.get(self.kind, f"layers.{layer}.self_attn.o_proj")))

    def alibi(self, T):
        if self.bug == "slopes as if heads were a power of two":
            slopes = 2.0 ** (-8 * np.arange(1, self.H + 1) / self.H)
        else:
            n = 2 ** math.floor(math.log2(self.H))
            more = 2.0 ** (-4 / n * np.arange(1, 2 * (self.H - n), 2))
            slopes = np.concatenate([2.0 ** (-8 / n * np.arange(1, n + 1)), more])
        distance = np.abs(np.arange(T)[:, None] - np.arange(T))
        return (-slopes[:, None, None] * distance)[None].astype(np.float32)

    def feed_forward(self, h, layer, note):
        at = f"layers.{layer}."
        if self.kind == "gpt_neox":
            return self.linear(gelu_exact(self.linear(h, f"{at}mlp.dense_h_to_4h")), f"{at}mlp.dense_4h_to_h")
        if self.kind == "bloom":
            at = f"h.{layer}.mlp."
            return self.linear(gelu_tanh(self.linear(h, f"{at}dense_h_to_4h")), f"{at}dense_4h_to_h")
        if self.kind == "gpt_oss":
            return self.experts_of_gpt_oss(h, f"{at}mlp.", note)
        if self.get(f"{at}feed_forward.router.weight") is not None:
            return self.experts_of_llama4(h, f"{at}feed_forward.", note)
        at += "feed_forward." if self.kind == "llama4_text" else "mlp."
        f = gelu_tanh if self.gemma else silu
        return self.linear(
            f(self.linear(h, f"{at}gate_proj")) * self.linear(h, f"{at}up_proj"), f"{at}down_proj"
        )

    def experts_of_gpt_oss(self, h, at, note):
        y, r = np.zeros_like(h), note("router", self.linear(h, f"{at}router"))
        e = {role: self.get(f"{at}experts.{role}") for role in ("gate_up_proj", "down_proj")}
        b = {role: self.get(f"{at}experts.{role}_bias") for role in e}
        limit = np.float32(self.c["swiglu_limit"])
        for t, logits in enumerate(r[0]):
            chosen = np.argsort(-logits)[: self.c["num_experts_per_tok"]]
            for expert, weight in zip(chosen, softmax(logits[chosen]), strict=True):
                both = h[0, t] @ e["gate_up_proj"][expert] + b["gate_up_proj"][expert]
                gate, up = np.minimum(both[::2], limit), np.clip(both[1::2], -limit, limit)
                z = (up + 1) * gate * sigmoid(np.float32(1.702) * gate)
                y[0, t] += weight * (z @ e["down_proj"][expert] + b["down_proj"][expert])
        return y

    def experts_of_llama4(self, h, at, note):
        shared = f"{at}shared_expert."
        y = self.linear(
            silu(self.linear(h, f"{shared}gate_proj")) * self.linear(h, f"{shared}up_proj"),
            f"{shared}down_proj",
        )
        r = note("router", self.linear(h, f"{at}router"))
        for t, logits in enumerate(r[0]):
            for expert in np.argsort(-logits)[: self.c["num_experts_per_tok"]]:
                both = sigmoid(logits[expert]) * h[0, t] @ self.get(f"{at}experts.gate_up_proj")[expert]
                gate, up = np.split(both, 2)
                y[0, t] += (up * silu(gate)) @ self.get(f"{at}experts.down_proj")[expert]
        return y

    # -------------------------------------------------------------- the model

    def block(self, x, layer):
        def note(name, a):
            self.tensors[f"layers.{layer}.{name}"] = np.ascontiguousarray(a, np.float32)
            return a

        at = f"h.{layer}." if self.kind == "bloom" else f"layers.{layer}."
        note("input", x)
        h = note("normed", self.norm(x, f"{at}input_layernorm"))
        y = self.attention(h, layer, note)
        total = note("residual", x + (self.norm(y, f"{at}post_attention_layernorm") if self.gemma else y))
        if self.kind != "cohere2":
            parallel = self.kind == "gpt_neox" and self.c["use_parallel_residual"]
            if self.bug == "residual in sequence, not in parallel":
                parallel = False
            second = "pre_feedforward" if self.gemma else "post_attention"
            h = note("ffn_normed", self.norm(x if parallel else total, f"{at}{second}_layernorm"))
        y = note("ffn", self.feed_forward(h, layer, note))
        return note("leaving", total + (self.norm(y, f"{at}post_feedforward_layernorm") if self.gemma else y))

    def run(self, tokens):
        names = {"gpt_neox": ("embed_in", "final_layer_norm"), "bloom": ("word_embeddings", "ln_f")}
        embedding, last = names.get(self.kind, ("embed_tokens", "norm"))
        table = self.get(f"{embedding}.weight")
        x = table[np.asarray(tokens)][None]
        if self.gemma:
            x = x * np.float32(self.c["hidden_size"] ** 0.5)
        if self.kind == "bloom":
            x = self.norm(x, "word_embeddings_layernorm")
        self.tensors["embedded"] = x
        for layer in range(self.layers):
            x = self.block(x, layer)
        x = self.tensors["final"] = self.norm(x, last)
        head = self.w.get("lm_head.weight", self.w.get("embed_out.weight"))
        if head is None:
            head = table
        if self.bug == "tied head missing":
            head = np.random.default_rng(0).normal(0, 0.02, table.shape).astype(np.float32)
        y = x @ head.T
        if self.kind == "cohere2":
            y = y * np.float32(self.c["logit_scale"])
        if cap := self.gemma and self.c.get("final_logit_softcapping"):
            y = (cap * np.tanh(y / cap)).astype(np.float32)
        self.tensors["logits"] = y
        nll = -np.log(softmax(y[0, :-1].astype(np.float64)))[np.arange(len(tokens) - 1), tokens[1:]]
        self.tensors["loss"] = np.array(nll.mean(), np.float32)
        return self.tensors


def run(folder, tokens, bug=""):
    """Every tensor of a pass over `tokens` of the model in `folder`."""
    return Port(folder, bug).run(np.asarray(tokens))
