"""The work of the larger steps, and what they leave behind."""
