"""score: a term in the logits that sees content or absolute place."""
