"""Dynamic position bias.

    bias(d) = W_n silu(... silu(W_2 silu(W_1 x + a_1) + a_2) ...) (+ a_n, here 0)
    x = d, or sign(d) ln(|d| + 1)

lucidrains, x-transformers, DynamicPositionBias; first in Wang et al. 2021, arXiv:2108.00154. depth hidden
layers, LayerNorm before each silu on demand, relu in place of silu (CrossFormer) likewise; Swin v2,
arXiv:2111.09883, has 16 times the sigmoid of it.
"""

import math


def layer(x, weight, bias):
    mean = sum(x) / len(x)
    root = math.sqrt(sum((a - mean) ** 2 for a in x) / len(x) + 1e-5)
    return [(a - mean) / root * w + b for a, w, b in zip(x, weight, bias, strict=True)]


def linear(W, a, x):
    return [sum(w * y for w, y in zip(row, x, strict=True)) + b for row, b in zip(W, a, strict=True)]


def bias(p, d, depth=2, norm="none", distance="linear", activation="silu", output="plain"):
    columns, W = [], p[f"{depth + 1}.weight"]
    for apart in d:
        x = [float(apart) if distance == "linear" else math.copysign(math.log(abs(apart) + 1), apart)]
        for n in range(1, depth + 1):
            x = linear(p[f"{n}.weight"], p[f"{n}.bias"], x)
            if norm == "layer":
                x = layer(x, p[f"norm{n}.weight"], p[f"norm{n}.bias"])
            x = [
                max(y, 0.0) if activation == "relu" else y / (1 + math.exp(-y)) if y > -700 else 0.0
                for y in x
            ]
        columns.append(linear(W, [0.0] * len(W), x))
    if output == "sigmoid":
        columns = [[16 / (1 + math.exp(-b)) if b > -700 else 0.0 for b in column] for column in columns]
    return [[column[h] for column in columns] for h in range(len(columns[0]))]
