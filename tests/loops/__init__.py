"""The witnesses: every encoding a second time, as a scalar loop over plain Python numbers.

Each file is written from the paper, in the paper's letters, and never from the array version; nothing here imports peref or NumPy. Speed is
no aim. Where a number can be had by following the formula as printed (a sum as a sum, a product of matrices as a product), it is.

One sequence at a time, lists of lists. Slots decide what is past: with T tokens, query t sees key s iff s <= t, or always when not causal.
d = i - j is positive where the key is in the past. Query head h reads key-value head h // (H // G).
"""
