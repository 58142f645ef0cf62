"""embed: a table added to the embedding."""
