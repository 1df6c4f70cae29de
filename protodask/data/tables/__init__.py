"""Raw tables, and what becomes of them: features and codes in blocks, or tables of what was found."""
