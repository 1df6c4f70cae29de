"""What the command line does, as steps: one at a time, or in order from a pipeline file."""
