"""torchmetrics, `universal_image_quality_index` and SSIM: −5e11 and −131 of images around 1000

Local variances are the mean of squares less the square of the mean, in the images' dtype, and negative ones are set to
0; the covariance is not. Of two images with pixels between 1000 and 1001 the index, which lies between −1 and 1, comes
out as −4.7e11, and `structural_similarity_index_measure` with a data range of 1 as −131, where 0.96 and 0.94 are right
(the program of the dossier). Of windows of nine pixels the second digit is wrong.

**Documented**: the indices by references to the papers, whose values lie between −1 and 1.

**Does it matter?** Images of counts, of CT in shifted Hounsfield units, of temperatures: their variation is small
beside their mean. Around 100 the third digit of both is wrong already.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, around, numbers, run

LIBRARY, VERSION = "torchmetrics", "1.9.0"
KIND, SEVERITY = "wrong result", "medium"


def _weights() -> list[mpmath.mpf]:
    sides = [mpmath.exp(-mpmath.mpf(place * place) / mpmath.mpf("4.5")) for place in (-1, 0, 1)]
    return [row * column / mpmath.fsum(sides) ** 2 for row in sides for column in sides]


def _sums(x: torch.Tensor) -> torch.Tensor:
    side = torch.exp(torch.tensor([-1.0, 0.0, -1.0]) / 4.5)
    return (torch.outer(side, side) * x).sum() / side.sum() ** 2


def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    mean, other = _sums(x), _sums(y)
    spread = _sums((x - mean) ** 2) + _sums((y - other) ** 2)
    common = _sums((x - mean) * (y - other))
    return 4 * mean * other * common / ((mean * mean + other * other) * spread)


def proof() -> Proof:
    from torchmetrics.functional.image import universal_image_quality_index

    x = torch.cat([around(1000.0), torch.tensor([1000.25])]).reshape(3, 3)
    y = x + torch.tensor([[0.125, -0.25, 0.25], [0.25, -0.125, 0.125], [0.0, 0.25, -0.25]])
    computed = universal_image_quality_index(x[None, None], y[None, None], kernel_size=(3, 3))
    weights, xs, ys = _weights(), numbers(x), numbers(y)
    mean, other = (mpmath.fdot(weights, each) for each in (xs, ys))
    xs, ys = [value - mean for value in xs], [value - other for value in ys]
    spread = mpmath.fdot(weights, [a * a + b * b for a, b in zip(xs, ys, strict=True)])
    common = mpmath.fdot(weights, [a * b for a, b in zip(xs, ys, strict=True)])
    exact = 4 * mean * other * common / ((mean**2 + other**2) * spread)
    call = "universal_image_quality_index of two windows of nine pixels around 1000"
    return Proof(call, computed, [exact], spec, (x, y))


run(__name__, LIBRARY, VERSION, proof)
