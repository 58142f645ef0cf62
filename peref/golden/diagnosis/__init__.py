"""What is probably wrong: of one tensor, and of everything that came from one implementation.

answer       what came for a case; a guess, and whether it gives what came
engine       a guess is a row of a table: the reference with one thing changed
tensor       what shows in one tensor alone: shape, dtype, a factor
positions    rows of positions
pairs        how far pairs turn and which channels pass, read from what came
rotation     rows of rotations, their gains, and other maps of pairs
biases       rows of biases of distance, and of what is added to the embedding
attention    rows of masks, heads, scale and softmax
options      rows of options; numbers that are fitted
frequencies  rows of ladders, ramps and sections
functions    rows of parameters and whole functions
recurrences  what goes into a recurrence, its order, its states
written      what people write in place of something else
variants     a function with one expression of its text another
formulas     guesses of such functions
gradients    guesses at derivatives: factors, parts of sums, other heads, rotations
backward     the backward pass with one of its steps another
traces       rows of decoding through a cache
replays      a trace replayed with one thing of its calls changed
shared       what failing cases have in common and right ones have not
support      what speaks for a flag, and how much
near_misses  near misses and flags stored beside the cases
ranking      which guess is named
summary      the probable trap of each encoding
"""
