"""Mean cross entropy, in nats.

    -1/N sum_n log(exp(z_n[y_n]) / sum_v exp(z_n[v]))

over the rows whose target is not `ignore`. logits [N][V], targets [N].
"""

import math


def cross_entropy(logits, targets, ignore=None):
    losses = []
    for z, y in zip(logits, targets, strict=True):
        if y != ignore:
            top = max(z)
            losses.append(top + math.log(sum(math.exp(a - top) for a in z)) - z[y])
    return sum(losses) / len(losses)
