"""What torch is asked to compute: calls of `examples`, of torch.nn.functional, of the collection, and torch's OpInfo.

The samples of OpInfo are torch's own, of its tests; they are there where the package `expecttest` is installed.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tests.specs import SPECS, make_example
from tests.specs.functional import CALLS, NOT_CALLED

from .examples import examples
from .kinds import ENDS, KINDS

#: Samples of an operator of OpInfo that are taken, evenly spread among those that it has.
_SAMPLES = 4
#: Of larger samples nothing is asked: the readings of operators are what is looked at, and not their speed.
_ELEMENTS = 20_000


@dataclass(frozen=True)
class Source:
    """One function of torch at one set of arguments.

    Attributes:
        name: for tables. group: where it comes from.
        build: (dtype) -> the function or module, and its arguments of normal numbers, or of those that it needs.
        kinds: of data that take the place of the floating arguments.
    """

    name: str
    group: str
    build: Callable[[torch.dtype], tuple[Any, ...]]
    kinds: tuple[str, ...]


#: Groups of sources, in order.
GROUPS = ("examples", "functional", "collection", "OpInfo")


def sources(groups: Collection[str] = GROUPS) -> list[Source]:
    """Those of some groups, in order; those of OpInfo make their samples only when they are asked for."""
    sources_of_all = [*_of_examples(), *_of_collections(), *(_of_opinfo() if "OpInfo" in groups else ())]
    return [source for source in sources_of_all if source.group in groups]


def has_opinfo() -> bool:
    return bool(_operators())


def _of_examples() -> Iterator[Source]:
    for example in examples():

        def make(dtype: torch.dtype, example: Any = example) -> tuple[Any, ...]:
            return example.function, *(torch.randn(shape).to(dtype) for shape in example.shapes)

        yield Source(example.name, "examples", _seeded(example.name, make), (*KINDS, ENDS))


def _of_collections() -> Iterator[Source]:
    calls = {f"F.{name}": making for name, making in CALLS.items() if name not in NOT_CALLED}
    for group, table, kinds in (
        ("functional", calls, (*KINDS, ENDS)),
        ("collection", SPECS, ("normal", "offset", "large", "ties")),
    ):
        for name, making in table.items():

            def make(dtype: torch.dtype, name: str = name, making: Any = making) -> tuple[Any, ...]:
                example = make_example(name, making, dtype)
                return example.spec, *example.args

            yield Source(name, group, make, kinds)


def _of_opinfo() -> Iterator[Source]:
    others = [kind for kind in (*KINDS, ENDS) if kind != "normal"]
    for number, info in enumerate(_operators()):
        for sample in range(_SAMPLES):
            name = f"{info.full_name} {sample}"
            make = _seeded(name, partial(_sampled, info, sample))
            kinds = tuple(others[(number + 2 * sample + i) % len(others)] for i in range(2))
            yield Source(name, "OpInfo", make, ("normal", *kinds))


def _operators() -> list[Any]:
    try:
        from torch.testing._internal.common_methods_invocations import op_db
    except ImportError:
        return []
    return [
        info for info in op_db if not {"empty", "resize"} & set(re.split("[._]", info.name))
    ]  # They return whatever memory holds.


class NoSampleError(Exception):
    """An operator has no such sample in a dtype."""


def _sampled(info: Any, number: int, dtype: torch.dtype) -> tuple[Any, ...]:
    if dtype not in info.supported_dtypes("cpu"):
        raise NoSampleError
    samples = list(info.sample_inputs("cpu", dtype, requires_grad=False))
    some = samples[:: max(len(samples) // _SAMPLES, 1)][:_SAMPLES]
    if number >= len(some):
        raise NoSampleError
    sample = some[number]
    leaves, structure = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    tensors = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    sparse = any(leaves[i].layout is not torch.strided for i in tensors)
    if not tensors or sparse or sum(leaves[i].numel() for i in tensors) > _ELEMENTS:
        raise NoSampleError

    def function(*moved: Any) -> Any:
        filled = dict(zip(tensors, moved, strict=True))
        args, kwargs = pytree.tree_unflatten([filled.get(i, leaf) for i, leaf in enumerate(leaves)], structure)
        return info.op(*args, **kwargs)

    return function, *(leaves[i].detach() for i in tensors)


def _seeded(name: str, make: Callable[[torch.dtype], tuple[Any, ...]]) -> Callable[[torch.dtype], tuple[Any, ...]]:
    """The same with every generator seeded by the name: samples of OpInfo draw of all three."""

    def seeded(dtype: torch.dtype) -> tuple[Any, ...]:
        seed = zlib.crc32(name.encode())
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 (it is the generator that torch's samples draw of)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return make(dtype)

    return seeded
