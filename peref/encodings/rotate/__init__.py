"""rotate: angles that turn q and k."""
