"""The delta rule with decay: what the layers that are built on it share.

    S' = Diag(exp(g_t)) S_{t-1}        S_t = (I - k_t a_t^T) S' + k_t v_t^T        y_t = S_t^T r_t

Yang et al. 2025, arXiv:2412.06464 (S transposed), with beta k for k and k for a; Kimi Team 2025,
arXiv:2510.26692, for a decay of each channel. a None: S_t = S' + k_t v_t^T; g None: S' = S_{t-1}.
"""

import math


def delta(r, g, k, v, a=None, S=None):
    """y [T][V] and the last S [K][V] of one head: r, k, a [T][K], g [T][K] or [T][1], v [T][V]."""
    K, V, out = range(len(k[0])), range(len(v[0])), []
    S = S or [[0.0 for _ in V] for _ in K]
    for t in range(len(k)):
        left = [math.exp(g[t][i % len(g[t])]) if g else 1.0 for i in K]
        S = [[left[i] * S[i][j] for j in V] for i in K]
        if a is not None:
            G = [[(i == n) - k[t][i] * a[t][n] for n in K] for i in K]
            S = [[sum(G[i][n] * S[n][j] for n in K) for j in V] for i in K]
        S = [[S[i][j] + k[t][i] * v[t][j] for j in V] for i in K]
        out.append([sum(r[t][i] * S[i][j] for i in K) for j in V])
    return out, S
