"""Looking into a model: why it decides as it does, how familiar rows are, pictures of it, and a report."""
