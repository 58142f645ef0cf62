"""Golden vectors: made from the reference, written to be held against, compared with what somebody else
computed.

flags    what each flag means: the trap, its effect, the remedy
cases    which cases there are, and why each exists
levels   what a case computes: outputs, and products of random cotangents with the Jacobian
whole    cases above one operation: blocks, models, training, traces through a cache
stack    what a block and a model compute; training: ten steps of AdamW; trace: calls through a cache
kinds    a case of any level, and which module computes it
budget   a and b of the tolerance rule, beside each expected number
outside  the function that is to be checked
files    tensor files and JSON that others wrote: nothing is believed before it is checked
folder   the files of one encoding, from its cases; golden/ itself is made by tests/making, where the
         witnesses are
book     reads such folders, and notices any change in them (sums); archive: the same as one file; rebuild:
         computed once more
rule     one dimensionless number for each element
report   which case is right, from where on it is wrong, which trap that looks like
apart    two files or folders of tensors, compared
"""

SPEC_VERSION = "0.10.1"
