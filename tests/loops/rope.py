"""Rotary position embedding.

    theta_n = base^(-2n/R), n = 0 .. R/2-1: pair n of the token at position m turns by m theta_n

Su, Lu, Pan, Murtadha, Wen, Liu 2021, arXiv:2104.09864, sections 3.2.2 and 3.4.2. Their d is R, their theta_i
counts from 1, ours from 0. How a pair turns: turn.py.
"""


def rotate(p, i, n, R, base=10000.0, learned=False):
    """Angles [T][R/2], no gains; the length n changes nothing here. Learned: theta is a parameter."""
    theta = p["frequency"] if learned else [base ** (-2 * a / R) for a in range(R // 2)]
    return [[m * t for t in theta] for m in i], None, None
