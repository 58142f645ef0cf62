"""What computes a case.

operation  levels table, op and attn
cross      level cross: attention from one sequence to another
model      levels block and model
training   level step: ten steps of AdamW
trace      level trace: calls through a cache
reference  a case of any level; peref itself as a function that is judged
noise      arithmetic that rounds at random
budgets    a and b of the tolerance rule, beside each expected number
vectors    the files of one encoding, from its cases
"""
