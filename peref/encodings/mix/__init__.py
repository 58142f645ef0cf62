"""mix: instead of attention."""
