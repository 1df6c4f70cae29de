"""How far things are, while they run."""
