"""Commands that are no steps."""
