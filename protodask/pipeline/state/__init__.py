"""What runs remember, what is stale of a pipeline, and running it."""
