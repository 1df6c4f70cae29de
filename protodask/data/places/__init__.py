"""Where things lie, and how they come to lie there: whole or not at all, by one writer at a time."""
