"""Commands that are no steps, and those of the steps."""
