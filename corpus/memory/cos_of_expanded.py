"""`Tensor.cos_` of an expanded tensor: the cosine of the cosine of the cosine

One number in memory is read and written once for every element that stands for it. Refused by now.
Proof: a refusal, or cos 1 three times.
"""

import torch

from corpus.bug import REFUSED, Bug, attempt, run
from corpus.seen import assess

X = torch.tensor([1.0])


def actual():
    return attempt(X.clone().expand(3).cos_)


def again_and_again(x):
    return x.cos().cos().cos().expand(3)


CLAIM = assess("FWD:given", lambda x: x.cos().expand(3), (X,), None, again_and_again, lambda x: x.expand(3).cos())
run(__name__, Bug("pytorch/pytorch#17935", "2019-03", actual, REFUSED, CLAIM))
