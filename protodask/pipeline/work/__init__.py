"""The work of the larger steps."""
