"""AdamW on one number.

    m_t = b1 m_{t-1} + (1 - b1) g_t                 v_t = b2 v_{t-1} + (1 - b2) g_t^2
    mhat_t = m_t / (1 - b1^t)                       vhat_t = v_t / (1 - b2^t)
    theta_t = theta_{t-1} - eta_t (alpha mhat_t / (sqrt(vhat_t) + eps) + lambda theta_{t-1})

Loshchilov, Hutter 2019, arXiv:1711.05101, algorithm 2, lines 6 to 12; t counts from 1, m_0 = v_0 = 0. With
alpha = 1 the schedule's eta_t is the learning rate, and lambda is what PyTorch calls weight_decay.
"""

import math


def adamw(theta, g, eta, b1, b2, eps, lam, alpha=1.0):
    """theta, m, v after the gradients g [steps] at the rates eta [steps]."""
    m = v = 0.0
    for t in range(1, len(g) + 1):
        m = b1 * m + (1 - b1) * g[t - 1]
        v = b2 * v + (1 - b2) * g[t - 1] ** 2
        mhat = m / (1 - b1**t)
        vhat = v / (1 - b2**t)
        theta = theta - eta[t - 1] * (alpha * mhat / (math.sqrt(vhat) + eps) + lam * theta)
    return theta, m, v
