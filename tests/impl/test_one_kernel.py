"""Under vmap every op is as many kernel calls as without it: no rule falls back to a loop over the batch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from opassay.oracles.op.declaration import Sample
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op

BATCH = 3


class Calls(TorchDispatchMode):
    """Counts what arrives at the kernels: this package's ops, and all ops together."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ours: Counter[str] = Counter()
        self.every = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.every += 1
        if func.namespace == "opassay":
            self.ours[func.name()] += 1
        return func(*args, **(kwargs or {}))


def _sample(name: str) -> Sample:
    results: list[Sample] = []

    @hypothesis.settings(max_examples=1, database=None, deadline=None, derandomize=True)
    @hypothesis.given(draft=load_op(name).samples("float32", "ordinary"))
    def draw(draft: Any) -> None:
        results.append(draft.sample(1))

    draw()
    return results[0]


def _count(name: str, args: tuple[Any, ...], levels: int, size: int = BATCH) -> Calls:
    op = load_op(name)
    subject = op.subject("opassay")
    tensors = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]

    def f(*operands: Any) -> Any:
        inputs = list(args)
        for i, operand in zip(tensors, operands, strict=True):
            inputs[i] = operand
        outputs = subject(*inputs)
        return tuple(y for y in (outputs if isinstance(outputs, (tuple, list)) else (outputs,)) if y is not None)

    operands = [args[i] for i in tensors]
    for _ in range(levels):
        f = torch.func.vmap(f)
        operands = [torch.stack([t] * size) for t in operands]
    calls = Calls()
    with calls:
        f(*operands)
    return calls


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("levels", [1, 2])
def test_as_many_kernels_as_without_vmap(name: str, levels: int) -> None:
    args = _sample(name).args
    alone, batched = _count(name, args, 0), _count(name, args, levels)
    op = load_op(name)
    # Views need no kernel, and copies between devices none of ours.
    assert alone.ours or op.promises.memory.aliases is not None or op.production.devices is not None
    assert batched.ours == alone.ours


@pytest.mark.parametrize("name", CATALOG)
def test_the_number_of_calls_does_not_grow_with_the_batch(name: str) -> None:
    args = _sample(name).args
    assert _count(name, args, 1, 2).every == _count(name, args, 1, 9).every


def test_a_loop_over_the_batch_is_seen() -> None:
    args = _sample("layer_norm").args
    op = load_op("layer_norm")
    with Calls() as calls:
        for _ in range(BATCH):
            op.subject("opassay")(*args)
    assert calls.ours.total() == BATCH * _count("layer_norm", args, 0).ours.total()
