"""Golden vectors: made from the reference, written to be held against, compared with what somebody else
computed. Four rooms, each of which imports the ones before it only:

spec       what the specification says: cases, flags, the files and their checksums, the tolerance rule
compute    what computes a case: inputs, expected numbers, budgets
diagnosis  which bug an answer looks like
judge      the verdict on somebody's tensors, function or program; laws and refusals; reports

What makes golden/ itself lies outside, in tests/making, where the witnesses are.
"""

SPEC_VERSION = "0.20.0"
