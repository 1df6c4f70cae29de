"""Feature budgets on made-up features, where the best set under any budget is known: the study of the literature.

m features on items of sizes n from 1 to 500. Feature f costs k0 + k1 n + k2 n^2 with k0 drawn from [0, 100], k1 from
[0, 1] and k2 from [0, 0.01], so that curves cross. It is helpful with probability --helpful, then its accuracy is drawn
from [0.7, 1], and else from [0.5, 0.7]. A set is as accurate as 1 - product over its k best features of (1 - accuracy),
0 without any; with k = 1 only the best feature of a set counts, with k = 2 every pair is worth something of its own.
Where features added may also do harm, by e at most, each set loses e times a number drawn from [0, 1].

Methods:

  poly-dom         the index over what a search with alpha expanded: at most alpha below the optimum
  expand-all       all 2^m sets
  greedy           sequences of features for seven trade-offs of accuracy and cost, at the median size
  greedy-accuracy  the one sequence that looks at accuracy only
  greedy-cost      the one that looks at cost only
  index-all        the candidates of poly-dom, indexed at every crossing of two of their curves
  scan             the candidates of poly-dom, gone through one by one

Four metrics: sets expanded; entries of the index (of the scan: candidates); seconds of a look-up, for one item and for
many at once; accuracy against budget, the mean over budgets from the cheapest feature to all features, evenly spread on
a logarithmic axis, at several sizes. Tables show medians over the draws, and maxima where they say so.
"""
