"""The witnesses: every encoding a second time, as a scalar loop over plain Python numbers.

Each file is written from the paper, in the paper's letters, and never from the array version; nothing here
imports peref or NumPy. Speed is no aim. Where a number can be had by following the formula as printed (a sum
as a sum, a product of matrices as a product), it is.

One sequence at a time, lists of lists. Slots decide what is past: with T tokens, query t sees key s iff s <=
t, or always when not causal. d = i - j is positive where the key is in the past. Query head h reads key-value
head h // (H // G).

A witness of hook `bias` is a function `bias`, and so on. What it takes and gives, p being the parameters
under their names on disk, x [T][C] the layer's input and i [T] the positions:

    embed(p, i)              the rows that are added                [T][C]
    rotate(p, i, n)          angles, gain_q, gain_k                 [T][R/2], each gain likewise or None;
                             of heads that turn apart angles        [heads][T][R/2]
    bias(p, d)               the bias at each distance d [N]        [H][N]
    score(p, q, k, x, i)     what is added to the scaled logits
    [H][T][T], None where the key is in the future
    attend(p, q, k, v, x, i) the output of attention                [H][T][D]
    mix(p, x, i)             the output of the layer                [T][C]
                             and given a state, a dict ({}: nothing was before), that and the last one
    scale(D)                 what q k is multiplied with, where it is not 1 / sqrt(D)

after which come, by name, those facts of the model (H, G, D, R, C, L, causal, window) and options of the
encoding that it needs. An option that it does not know must change no number.
"""

import inspect
from importlib import import_module


def witness(name, hook, **known):
    """The loop of encoding `name`, with those of the `known` facts and options filled in that it has a
    parameter for.
    """
    function = getattr(import_module(f"loops.{name}"), hook)
    wanted = {n: known[n] for n in inspect.signature(function).parameters if n in known}
    return lambda *arguments: function(*arguments, **wanted)
