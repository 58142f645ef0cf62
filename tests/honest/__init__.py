"""Honest implementations: right, and written otherwise. None of them may be called wrong.

arithmetic  the reference once more, for every case with its gradients, in another arithmetic: all in float32, sums in another order, other
            elementary functions
forms       single operations in other forms, written from their formulas: complex numbers, online softmax, one-hot products, recurrences, ...
loops       the scalar witnesses, on numbers of either precision

CHOSEN are those with which the constants of the rule were chosen. The others came afterwards, but were looked at while the budgets were made:
they are no clean test of them.
"""

CHOSEN = ("reference", "float32 throughout", "rounded outputs")
