"""Naive implementations, written from the formulas alone, that the package is tested against."""
