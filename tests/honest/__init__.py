"""Honest implementations: right, and written otherwise. None of them may be called wrong.

arithmetic  the reference once more, for every case with its gradients, in another arithmetic: all in float32,
            sums in another order, other elementary functions; rounded once to 16 bits they are what class A
            is for
sixteen     programs that keep what they compute on the way in 16 bits: class B
after       more of both, written after the constants of the rule were frozen and used for nothing but to try
            it
forms       single operations in other forms, written from their formulas: complex numbers, online softmax,
            one-hot products, recurrences, ...
loops       the scalar witnesses, on numbers of either precision

The constants were chosen with `arithmetic` and `sixteen`.
"""
