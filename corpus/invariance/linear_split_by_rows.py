"""vLLM, linear of four-bit weights: the bits of a row follow from the number of rows, and tests of small models pass

Said of a backend of FlashInfer on Blackwell. With up to 64 columns there is one block, and nothing to split.
Proof: the product of a row depends on that row alone, so its bits may not follow from how many others there are.
"""

import torch

from corpus.alike import ENGINE, unseen
from corpus.bug import Bug, run
from corpus.seen import assess

X, WEIGHT, SCALES = torch.randn(4, 192), torch.randint(-6, 7, (8, 192)).float(), torch.rand(8, 12)


def reference(x, weight, scales):
    return x @ (weight * scales.repeat_interleave(16, 1)).T


def in_blocks(x, weight, scales, width=64):
    products = x[:, :, None] * (weight * scales.repeat_interleave(16, 1)).T
    return torch.stack([part.cumsum(1)[:, -1] for part in products.split(width, 1)]).cumsum(0)[-1]


def split_by_rows(x, weight, scales):
    return in_blocks(x, weight, scales, 64 if len(x) < 96 else 192)


CLAIM = assess("INV:rows", reference, (X, WEIGHT, SCALES), fault=split_by_rows, right=in_blocks)
run(__name__, Bug("vllm-project/vllm#39912", "2026-04", unseen, True, CLAIM, "vllm", ENGINE))
