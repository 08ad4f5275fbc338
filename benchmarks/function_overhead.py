"""Times `apply` of one custom function on our machinery and on torch's: the same static methods on two bases."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from measurement import Row, at_most, fastest, line

from opassay.impl import Function

RUNS = 300
CALLS = 50
#: Of the time of torch's own `apply`, where no transform is active.
TARGET = 1.2


def product(base: Any) -> Any:
    """x y, with everything that a transform may ask for."""

    class Product(base):  # type: ignore[misc]
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y = ctx.saved_tensors
            return g * y, g * x

        @staticmethod
        def jvp(ctx: Any, tx: Any, ty: Any) -> Any:
            x, y = ctx.saved_tensors
            return tx * y + x * ty

    return Product


def _cases(f: Any) -> dict[str, Callable[[], object]]:
    x, y = torch.randn(4), torch.randn(4)
    leaf, wide = torch.randn(4, requires_grad=True), torch.randn(8, 4)

    def total(x: Any) -> Any:
        return f.apply(x, y).sum()

    return {
        "forward, no gradient": lambda: f.apply(x, y),
        "forward": lambda: f.apply(leaf, y),
        "forward and backward": lambda: torch.autograd.grad(f.apply(leaf, y), leaf, x),
        "under grad": lambda: torch.func.grad(total)(x),
        "under jvp": lambda: torch.func.jvp(f.apply, (x, y), (x, y)),
        "under vmap": lambda: torch.vmap(f.apply, (0, None))(wide, y),
        "under vmap(grad)": lambda: torch.vmap(torch.func.grad(total))(wide),
    }


def _repeated(call: Callable[[], object]) -> None:
    for _ in range(CALLS):
        call()


def rows() -> Iterator[Row]:
    ours, theirs = _cases(product(Function)), _cases(product(torch.autograd.Function))
    for name in ours:
        pair = [functools.partial(_repeated, cases[name]) for cases in (ours, theirs)]
        mine, torch_s = fastest(pair, RUNS if "under" not in name else RUNS // 10)
        yield Row("function", f"{name}, ours", mine / CALLS * 1e6, "us")
        if "under" in name:
            yield Row("function", f"{name}, of torch's", mine / torch_s, "x")
        else:
            yield at_most("function", f"{name}, of torch's", mine / torch_s, "x", TARGET)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows():
        print(line(row), flush=True)
