"""A dataset: what it consists of, how it is read, written and added to."""
