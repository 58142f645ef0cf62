"""xPos.

    zeta_i = (i/(d/2) + gamma) / (1 + gamma), i = 0 .. d/2-1        theta_i = base^(-2i/d)
    query at n: turned by n theta_i, times zeta_i^((n - c)/B)
    key at m: turned by m theta_i, times zeta_i^((c - m)/B)

Sun et al. 2022, arXiv:2212.10554, section 2, with B = 512 and the centre c of the authors' code. Their d is
R.
"""


def rotate(p, i, n, R, base=10000.0, scale_base=512.0, gamma=0.4, centre=0.0):
    zeta = [(a / (R / 2) + gamma) / (1 + gamma) for a in range(R // 2)]
    angle = [[m * base ** (-2 * a / R) for a in range(R // 2)] for m in i]
    gain_q = [[x ** ((m - centre) / scale_base) for x in zeta] for m in i]
    gain_k = [[1 / x ** ((m - centre) / scale_base) for x in zeta] for m in i]
    return angle, gain_q, gain_k
