"""Results and descriptions for people to read."""
