"""Types that are made once are those that would be made anew, in a language that stands in for Triton's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from opassay.oracles.machine import types


class _Constant:
    def __init__(self, value: int) -> None:
        self.value = value


class _Element:
    def __init__(self, name: str) -> None:
        self.name = name


class _Pointer(_Element):
    """A type whose name does not say all."""


@pytest.fixture
def language() -> SimpleNamespace:
    """The stand-in, with how often each of its things was made."""
    counts: dict[str, int] = {"block": 0, "tensor": 0, "numpy": 0}

    class Block:
        def __init__(self, element_ty: _Element, shape: list[Any]) -> None:
            counts["block"] += 1
            extents = [getattr(extent, "value", extent) for extent in shape]
            self.element_ty, self.shape = element_ty, SimpleNamespace(values=extents)
            self.name, self.scalar = f"<{extents}, {element_ty.name}>", element_ty

        def is_block(self) -> bool:
            return True

    class Tensor:
        def __init__(self, handle: object, type: Any) -> None:
            counts["tensor"] += 1
            self.handle, self.type, self.dtype = handle, type, type.scalar
            self.shape, self.numel = list(type.shape.values), len(type.shape.values)

    def numpy_type(dtype: _Element) -> str:
        counts["numpy"] += 1
        return f"numpy {dtype.name}"

    core = SimpleNamespace(block_type=Block, tensor=Tensor, dtype=_Element, constexpr=_Constant)
    interpreter = SimpleNamespace(tl=SimpleNamespace(core=core), _get_np_dtype=numpy_type)
    types.remember(interpreter)
    return SimpleNamespace(block=Block, tensor=Tensor, numpy=interpreter, counts=counts)


def test_a_block_s_type_is_that_of_its_element_and_its_shape(language: Any) -> None:
    single, double = _Element("fp32"), _Element("fp64")
    named = [language.block(*of).name for of in ((single, [4, 2]), (single, [4, _Constant(2)]), (single, [2, 4]))]
    assert named == ["<[4, 2], fp32>", "<[4, 2], fp32>", "<[2, 4], fp32>"]
    assert language.block(double, [4, 2]).element_ty is double
    assert language.counts["block"] == 3


def test_a_block_of_pointers_is_made_every_time(language: Any) -> None:
    shared, constant = _Pointer("pointer"), _Pointer("pointer")
    assert [language.block(pointer, [4]).element_ty for pointer in (shared, constant)] == [shared, constant]
    assert language.counts["block"] == 2


def test_a_tensor_has_its_own_handle_and_type_and_the_shape_of_its_type(language: Any) -> None:
    blocks = [language.block(_Element(name), shape) for name, shape in (("fp32", [4]), ("fp64", [4]), ("fp32", [2, 4]))]
    results = [language.tensor(number, block) for number, block in enumerate(blocks)]
    assert [(t.handle, t.dtype.name, t.shape) for t in results] == [
        (0, "fp32", [4]), (1, "fp64", [4]), (2, "fp32", [2, 4]),
    ]  # fmt: skip
    assert language.counts["tensor"] == 2


def test_a_type_of_numpy_is_looked_up_by_name(language: Any) -> None:
    assert [language.numpy._get_np_dtype(_Element(name)) for name in ("fp32", "fp64", "fp32")] == [
        "numpy fp32", "numpy fp64", "numpy fp32",
    ]  # fmt: skip
    assert language.counts["numpy"] == 2
