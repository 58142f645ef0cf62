"""bias: a function of distance alone, added to the logits."""
