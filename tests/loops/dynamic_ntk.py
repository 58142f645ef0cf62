"""Dynamic NTK.

    alpha = s l / L - (s - 1), l no less than L;  b' = b alpha^(|D|/(|D|-2)),  theta_d = b'^(-2d/|D|)

emozilla's post of 2023 and Hugging Face's _compute_dynamic_ntk_parameters; s is `factor`, l the length n.
YaRN, arXiv:2309.00071, section 3.3, has alpha = max(1, l / L), which is s = 1. "static": l is s L whatever
the text. "steps", Qwen's get_ntk_alpha: alpha is 2^ceil(log_2(l / L) + 1) - 1, no less than 1; counted here
by doubling L.
"""


def rotate(p, i, n, R, L, base=10000.0, factor=1.0, original=None, form="dynamic"):
    L = original if original is not None else L
    if form == "static":
        alpha = factor**2 - factor + 1
    elif form == "steps":
        k = 0
        while L * 2**k < n:
            k += 1
        alpha = 2 ** (k + 1) - 1
    else:
        alpha = 1 + factor * (n - L) / L if n > L else 1.0
    b = base * alpha ** (R / (R - 2))
    return [[m / b ** (2 * d / R) for d in range(R // 2)] for m in i], None, None
