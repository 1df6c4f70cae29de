"""Naive implementations, written from the formulas alone, to test the package against; they import none of it."""
