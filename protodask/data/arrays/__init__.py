"""Arrays of every kind, and rows of sources, read and written by ranges."""
