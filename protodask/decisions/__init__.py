"""Decisions that are optimal for the loss people are judged by.

Of some items, each positive with a known probability and independently of the others, which should be selected? Where
predictions are judged by F1, Jaccard, AM or another loss of the whole selection, the answer is not to threshold at 0.5:
it is to select the `k` most probable items, and `decide` finds the best `k`.
"""

from protodask._lazy import names_of_stub

__getattr__, __dir__, __all__ = names_of_stub(__name__)
