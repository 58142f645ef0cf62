"""PaTH attention: positions as an accumulated product of Householder-like matrices.

    H_t = I - beta_t w_t w_t^T        S_ij = q_i^T H_i H_{i-1} ... H_{j+1} k_j / sqrt(D) for j <= i
    o_i = sum_j softmax_j(S_ij) v_j
    w_t = unit(silu(conv(W_up W_down x)_t))        beta_t = 2 sigmoid(w_beta . x_t + b_beta)

Yang et al. 2025, arXiv:2505.16381; the features are those of the code released with it (fla). w and beta
belong to the key-value head. unit(u) = u / sqrt(sum u^2 + 1e-6). The convolution runs over time, one filter
per channel, its last tap on the current token, zeros before the start. It counts tokens, so the positions
change nothing. gate "forget": the sum of log f_l over j < l <= i is added to S_ij, of each query head
(PaTH-FoX); "scaled": divided by sqrt(D) as in fla. A map w.weight stands for W_up W_down; without conv there
is no silu either. Not here: norms on q and k.
"""

import math


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def features(p, x, G):
    conv = p.get("conv")
    maps = [p["w.weight"]] if "w.weight" in p else [p["down.weight"], p["up.weight"]]
    y = x
    for W in maps:
        y = [[dot(row, token) for row in W] for token in y]
    D = len(y[0]) // G
    w = [[[0.0] * D for _ in x] for _ in range(G)]
    for g in range(G):
        for t in range(len(x)):
            u = []
            for c in range(g * D, g * D + D):
                z = (
                    sum(conv[c][-1 - lag] * y[t - lag][c] for lag in range(len(conv[c])) if t - lag >= 0)
                    if conv
                    else y[t][c]
                )
                u.append(z * sigmoid(z) if conv else z)
            w[g][t] = [a / math.sqrt(dot(u, u) + 1e-6) for a in u]
    beta = [
        [2 * sigmoid(dot(p["beta.weight"][g], token) + p["beta.bias"][g]) for token in x] for g in range(G)
    ]
    return w, beta


def attend(p, q, k, v, x, i, window=None, gate="none"):
    H, G, T, D = len(q), len(k), len(q[0]), len(q[0][0])
    w, beta = features(p, x, G)
    out = []
    for h in range(H):
        g = h // (H // G)
        house = [
            [[(a == b) - beta[g][t] * w[g][t][a] * w[g][t][b] for b in range(D)] for a in range(D)]
            for t in range(T)
        ]
        head = []
        for m in range(T):
            seen, S = range(max(0, m + 1 - (window or T)), m + 1), []
            for j in seen:
                row = q[h][m]  # q_i^T, then from the left H_i, H_{i-1}, ..., H_{j+1}
                for t in range(m, j, -1):
                    row = [sum(row[a] * house[t][a][b] for a in range(D)) for b in range(D)]
                S.append(dot(row, k[g][j]) / math.sqrt(D))
                if gate != "none":
                    kept = sum(
                        math.log(sigmoid(dot(p["f.weight"][h], x[l]) + p["f.bias"][h]))
                        for l in range(j + 1, m + 1)
                    )
                    S[-1] += {"forget": kept, "scaled": kept / math.sqrt(D)}[gate]
            P = [math.exp(s - max(S)) for s in S]
            head.append(
                [
                    sum(w_j * v[g][j][c] for w_j, j in zip(P, seen, strict=True)) / sum(P)
                    for c in range(len(v[g][0]))
                ]
            )
        out.append(head)
    return out
