"""Files that come in: which there are, and which are new."""
