"""Masked tokens: an encoder learns to say what stood where a mask is.

In each window 15 % of the tokens are chosen, at least one: of these 80 % become the mask, 10 % another token
drawn at random, and 10 % stay as they are. Devlin, Chang, Lee, Toutanova 2018, arXiv:1810.04805, section 3.1,
task 1; that their number is rounded and at least one is of their code (create_pretraining_data.py). The mask
is byte 0, which no text has; random tokens are the bytes 1 to 255.
"""

from typing import Any

import numpy as np

CHOSEN, MASKED, ANOTHER = 0.15, 0.8, 0.1
MASK, VOCABULARY = 0, 256


def masked_tokens(tokens: np.ndarray, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Tokens [B,T] of text -> inputs [B,T] with masks, and targets [B,T]: the tokens that were chosen, -1
    elsewhere.
    """
    B, T = tokens.shape
    count = max(1, round(CHOSEN * T))
    chosen = rng.random((B, T)).argsort(1).argsort(1) < count
    fate, other = rng.random((B, T)), rng.integers(1, VOCABULARY, (B, T))
    instead = np.where(fate < MASKED, MASK, np.where(fate < MASKED + ANOTHER, other, tokens))
    return np.where(chosen, instead, tokens), np.where(chosen, tokens, -1)
