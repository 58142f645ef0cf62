"""p-RoPE.

rope_angles = int(p head_dim // 2) pairs turn, with wave lengths 2 pi max_wavelength^(2k/head_dim); the others
have an infinite one.

Barbero et al. 2024, arXiv:2410.06205, the code in the appendix. p is `fraction`, head_dim R, max_wavelength
base. Hugging Face's "proportional" divides all frequencies by `factor`.
"""


def rotate(p, i, n, R, base=10000.0, fraction=0.75, factor=1.0):
    rope_angles = int(fraction * R // 2)
    row = lambda m: (
        [m / base ** (2 * k / R) / factor for k in range(rope_angles)] + [0.0] * (R // 2 - rope_angles)
    )
    return [row(m) for m in i], None, None
