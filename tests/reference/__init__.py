"""Naive implementations, written from the formulas alone, that the package is tested against.

And, in `passes`, the functions the engine's tests run on workers: of all test code only this package can be imported
there.
"""
