"""`torch.median`: a NaN is sorted to the end, and a number comes out

By now the median of anything with a NaN is NaN, as NumPy has it; `nanmedian` is the other one.
Proof: the documentation of `nanmedian`, which says so of `median`.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

X = torch.tensor([1.0, float("nan"), 2.0, 5.0])


def by_sorting(x):
    return torch.sort(x).values[(x.numel() - 1) // 2]


CLAIM = assess("FWD:given", torch.median, (X,), torch.median, by_sorting)
run(__name__, Bug("pytorch/pytorch#45084", "2020-09", lambda: torch.median(X).item(), float("nan"), CLAIM))
