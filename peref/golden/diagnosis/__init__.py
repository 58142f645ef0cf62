"""What is probably wrong: of one tensor, and of everything that came from one implementation.

answer       what came for a case; a guess, and whether it gives what came
traces       guesses at decoding through a cache
replays      a trace replayed with one thing of its calls changed
tensor       what shows in one tensor alone: shape, dtype, a factor
positions    guesses at positions
pairs        which channels turn together and how far, read from what came
gains        guesses at gains
rotation     guesses at rotations
biases       guesses at rows and biases of distance
attention    guesses at masks, heads and scale
options      guesses at options
parts        guesses at parameters and functions of an encoding
gradients    guesses at derivatives
near_misses  the near misses stored beside the cases
ranking      which guess is named
summary      the probable trap of each encoding
"""
