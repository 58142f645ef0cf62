"""No position encoding.

    S_ij = q_i . k_j / sqrt(D), and nothing else

Haviv, Ram, Press, Izsak, Levy 2022, arXiv:2203.16634; Kazemnejad et al. 2023, arXiv:2305.19466.
"""


def bias(p, d, H):
    return [[0.0 for _ in d] for _ in range(H)]
