"""Batch norm by its Triton kernels, interpreted: `python interpreted_batch_norm.py`; prints one JSON object.

Not a test itself: `test_batch_norm_kernels.py` runs it in a process of its own, which becomes a machine for kernels.

The numbers are chosen so that every partial result is exact in any order: a channel is its mean ± 2, half of each in
every part of it, with eps = 0, weights are powers of two, and a channel has 2^k elements. So every bit is known. Of
eight samples or more the first 3/8 are larger by 4 and the last 3/8 smaller by 4, so that parts have other means than
the whole; then the variance is 16.
"""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import patch

from opassay.properties.places import interpreting

MACHINE = interpreting.install()

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from opassay.impl.gpu import launching  # noqa: E402
from opassay.impl.norms import operators, running  # noqa: E402
from opassay.impl.norms.kernels_cpu import batch_norm as batch_cpu  # noqa: E402
from opassay.impl.norms.kernels_cuda import batch_norm as batch_cuda  # noqa: E402
from opassay.impl.norms.layout import memory_format  # noqa: E402
from opassay.impl.norms.running import Running, updating  # noqa: E402
from opassay.oracles.verdicts.violation import Violation  # noqa: E402

SEED = 20_26
LAST: Any = {4: torch.channels_last, 5: torch.channels_last_3d}

#: What a channel is like: within one tile; in pieces of long lines, of rows of memory, and of short lines.
SHAPES = {
    "within a tile": (8, 4, 16),
    "a few rows": (64, 40),
    "long lines": (2, 2, 16384),
    "many rows": (512, 40),
    "short lines": (128, 3, 4),
    "many short lines": (4096, 1, 16),
    "image": (4, 3, 16, 16),
    "volume": (2, 3, 4, 8, 8),
    "image, channels last": (4, 3, 16, 16),
    "volume, channels last": (2, 3, 4, 8, 8),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float64)

ON_CPU = updating(batch_cpu.batch_norm_training)


def checkered(samples: int, channels: int, positions: int, draw: torch.Generator) -> Tensor:
    """1 and -1 at random, as many of each among any two neighbours: so every piece of a channel has the same mean."""
    half = torch.randint(0, 2, (samples // 2, channels, (positions + 1) // 2), generator=draw)
    whole = half.repeat_interleave(2, 0).repeat_interleave(2, 2)[..., :positions]
    here = torch.arange(samples)[:, None, None] + torch.arange(positions)
    return ((whole + here) % 2 * 2 - 1).double()


class Case:
    """Operands of one shape, memory format and dtype, and what batch norm makes of them."""

    def __init__(self, name: str, dtype: torch.dtype) -> None:
        draw = torch.Generator().manual_seed(SEED)
        shape = SHAPES[name]
        channels, self.count = shape[1], torch.Size((shape[0], *shape[2:])).numel()
        along = (-1, *(1,) * (len(shape) - 2))
        normalized = checkered(shape[0], channels, self.count // shape[0], draw).view(shape)
        invstd = 0.5
        if shape[0] % 8 == 0:
            eighth = torch.arange(shape[0]) * 8 // shape[0]
            steps = (eighth < 3).double() - (eighth > 4).double()
            normalized, invstd = normalized / 2 + steps.view(-1, *(1,) * (len(shape) - 1)), 0.25
        which = torch.arange(channels, dtype=torch.float64)
        self.mean, self.weight, self.bias = which % 5 - 2, 2.0 ** (which % 3 - 1), which % 4 - 1
        self.grad_mean, self.grad_invstd = which % 3 - 1, which % 7 - 3
        x = normalized / invstd + self.mean.view(along)
        g = torch.randint(-3, 4, shape, generator=draw).double()
        wide = torch.float64 if dtype is torch.float64 else torch.float32
        lay = LAST[len(shape)] if "last" in name else torch.contiguous_format
        self.x, self.g = (t.to(dtype).contiguous(memory_format=lay) for t in (x, g))
        operands = (self.mean, torch.full_like(which, invstd), self.weight, self.bias, self.grad_mean, self.grad_invstd)
        self.operands = [t.to(wide) for t in operands]
        dims = (0, *range(2, len(shape)))
        w, n = self.weight.view(along), self.count
        self.out = normalized * w + self.bias.view(along)
        self.moments = torch.stack((self.mean.to(wide), torch.full((channels,), n / invstd**2).to(wide) / (n - 1)))
        self.d_bias, self.d_weight = g.sum(dims), (g * normalized).sum(dims)
        self.d_constant = g * invstd * w
        of_g, of_product = (self.d_bias / n).view(along), (self.d_weight / n).view(along)
        self.d_input = (g - of_g - normalized * of_product) * invstd * w
        slope = (invstd**2 * self.grad_invstd / n).view(along)
        through = (self.grad_mean / n).view(along) - normalized * slope
        self.d_through = self.d_input + through


def judge(op: Any, args: tuple[Any, ...], expected: tuple[Tensor | None, ...]) -> dict[str, Any]:
    """What a call returned, against what was expected of it."""
    before = MACHINE.book.launches.total()
    moved = traffic()
    outputs = op.kernels.cuda(*args)
    result: dict[str, Any] = {"launches": MACHINE.book.launches.total() - before, "bytes": traffic() - moved}
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    promised = op.kernels.fake(op.arguments(args))
    promised = promised if isinstance(promised, tuple) else (promised,)
    result["wrong"] = [i for i, pair in enumerate(zip(outputs, expected, strict=True)) if not _equal(*pair)]
    result["another layout"] = [
        i for i, (out, fake) in enumerate(zip(outputs, promised, strict=True))
        if out is not None and (out.stride() != fake.stride() or out.dtype is not fake.dtype)
    ]  # fmt: skip
    storages = [out.untyped_storage().data_ptr() for out in outputs if out is not None]
    result["shared storages"] = len(storages) - len({*storages})
    return result


def _equal(out: Tensor | None, true: Tensor | None) -> bool:
    if out is None or true is None:
        return out is true
    return torch.equal(out, true.to(out.dtype))


def traffic() -> int:
    """Bytes that all launches have moved."""
    return MACHINE.book.bytes


def results(name: str, dtype: torch.dtype) -> dict[str, Any]:
    """Every op of batch norm on one case."""
    case = Case(name, dtype)
    mean, invstd, weight, bias, grad_mean, grad_invstd = case.operands
    var = invstd**-2
    result = {
        "training": judge(
            operators.batch_norm_training, (case.x, weight, bias, 0.0), (case.out, case.mean, invstd, case.moments)
        ),
        "evaluation": judge(operators.batch_norm_evaluation, (case.x, weight, bias, mean, var, 0.0), (case.out,)),
    }
    everything = (case.d_input, case.d_weight, case.d_bias)
    for label, mask, through in (
        ("all gradients", (True, True, True), False), ("input alone", (True, False, False), False),
        ("sums alone", (False, True, True), False), ("bias alone", (False, False, True), False),
        ("through the statistics", (True, True, True), True),
    ):  # fmt: skip
        cotangents = (grad_mean, grad_invstd) if through else (None, None)
        args = (case.g, *cotangents, case.x, mean, invstd, weight, torch.float32, weight.dtype, 0.0, list(mask))
        expected = (case.d_through, *everything[1:]) if through else everything
        wanted = tuple(t if m else None for t, m in zip(expected, mask, strict=True))
        result[f"backward, {label}"] = judge(operators.batch_norm_backward, args, wanted)
        if not through:
            constant = (case.g, case.x, mean, var, weight, torch.float32, weight.dtype, 0.0, list(mask))
            wanted = (case.d_constant if mask[0] else None, *wanted[1:])
            label = f"evaluation backward, {label}"
            result[label] = judge(operators.batch_norm_evaluation_backward, constant, wanted)
    return result


def alone(name: str) -> list[str]:
    """Results that two channels have among others and not alone; of numbers whose sums depend on the order."""
    draw = torch.Generator().manual_seed(SEED)
    shape = (*SHAPES[name][:1], 37, *SHAPES[name][2:])
    lay = LAST[len(shape)] if "last" in name else torch.contiguous_format
    x, g = (torch.randn(shape, generator=draw).contiguous(memory_format=lay) for _ in range(2))
    few = [t[:, 20:22].contiguous(memory_format=lay) for t in (x, g)]
    assert memory_format(few[0]) is lay
    result = []
    for a, b in ((x, g), (few[0], few[1])):
        out, mean, invstd, _ = operators.batch_norm_training.kernels.cuda(a, None, None, 1e-5)
        args = (b, None, None, a, mean, invstd, None, torch.float32, torch.float32, 1e-5, [True] * 3)
        result.append([out, mean, invstd, *operators.batch_norm_backward.kernels.cuda(*args)])
    names = ("out", "mean", "invstd", "d_input", "d_weight", "d_bias")
    return [
        label for label, many, two in zip(names, *result, strict=True)
        if not torch.equal(many[:, 20:22] if many.dim() > 1 else many[20:22], two)
    ]  # fmt: skip


def updates(dtype: torch.dtype) -> dict[str, bool]:
    """Of every case of running statistics: whether both have the bits that `update` writes from the moments."""
    result = {}
    wide = torch.float64 if dtype is torch.float64 else torch.float32
    for name in ("within a tile", "a few rows", "long lines", "many rows", "volume, channels last"):
        case = Case(name, dtype)
        *_, weight, bias, _, _ = case.operands
        draw = torch.Generator().manual_seed(SEED)
        for momentum in (0.1, 0.0, 1.0, 1):
            for kind in {wide, dtype}:
                operands = [torch.rand(case.mean.shape, generator=draw, dtype=torch.float64).to(kind) for _ in range(2)]
                ours, theirs = ([t.clone() for t in operands] for _ in range(2))
                version = ours[0]._version
                x, before = case.x, MACHINE.book.launches.total()
                out, mean, _ = operators.batch_norm_training_and_update(
                    x, weight, bias, 0.0, Running(ours[0], ours[1], momentum)
                )
                launched = MACHINE.book.launches.total() - before
                running.update(*theirs, *case.moments.unbind(), momentum)
                bits = all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
                key = f"{name}, {kind}, momentum {momentum!r}"
                result[f"{key}: bits"] = bits and _equal(out, case.out) and _equal(mean, case.mean)
                result[f"{key}: launches"] = launched == (1 if name in ("within a tile", "a few rows") else 3)
                result[f"{key}: torch knows of the write"] = ours[0]._version > version
    return result


def shared() -> dict[str, bool]:
    """Of every way in which a running statistic shares memory: whether the results are those of training, then update.

    The CPU's kernels, which update at the end, are the measure: sums of these numbers are exact.
    """
    result = {}
    case = Case("a few rows", torch.float32)
    *_, weight, bias, _, _ = case.operands
    for name in ("apart", "mean is var", "mean is weight", "var is bias", "every other", "mean in the input"):
        results = []
        for kernel in (operators.batch_norm_training_and_update.kernels.cuda, ON_CPU):
            x, w, b = case.x.clone(), weight.clone(), bias.clone()
            mean, var = torch.linspace(0, 1, 2 * len(w)).view(2, -1).clone().unbind()
            mean, var = mean.clone(), var.clone()
            match name:
                case "mean is var":
                    var = mean
                case "mean is weight":
                    mean = w
                case "var is bias":
                    var = b
                case "every other":
                    mean = torch.ones(2 * len(w))[::2]
                case "mean in the input":
                    mean = x[3]
            try:
                outputs = kernel(x, w, b, 0.0, Running(mean, var, 0.25))
            except Violation:
                break
            results.append([*outputs, x, w, b, mean, var])
        result[name] = len(results) == 2 and all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    return result


def unasked() -> dict[str, bool]:
    """The same of host code that always has a kernel write the running statistics."""
    with patch.object(batch_cuda, "in_place", lambda *_: True):
        return shared()


def main() -> None:
    result = {f"{name}, {dtype}": results(name, dtype) for name in SHAPES for dtype in DTYPES}
    singles = {name: alone(name) for name in ("many rows", "volume, channels last")}
    print(json.dumps({"results": result, "alone": singles,
                      "updates": {str(dtype): updates(dtype) for dtype in DTYPES}, "shared": shared(),
                      "shared and not asked about": unasked(),
                      "fallbacks": sum(launching.fallbacks.values())}))  # fmt: skip


if __name__ == "__main__":
    main()
