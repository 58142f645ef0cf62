"""attend: attention that is not a sum of logits."""
