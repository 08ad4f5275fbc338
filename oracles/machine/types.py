"""Types of Triton's language, made once, where Triton's interpreter makes them anew for every operation.

What this is for: an interpreted program spends a third of its time on types, on shapes as tuples of wrapped numbers,
and on a table of NumPy's types. All of these follow from an element's type and a few extents, and none of them ever
changes, so each is made once and serves every later operation. No value is computed here.
"""

from __future__ import annotations

import functools
from typing import Any


def remember(interpreter: Any) -> None:
    """Have Triton's interpreter keep the types that it makes, for good.

    Args:
        interpreter: the module `triton.runtime.interpreter`.
    """
    core = interpreter.tl.core
    interpreter._get_np_dtype = _by_name(interpreter._get_np_dtype)
    core.block_type.__init__ = _make_once(core.block_type.__init__, core)
    core.tensor.__init__ = _shape_once(core.tensor.__init__, core)


def _by_name(numpy_type: Any) -> Any:
    """The function from a type of Triton to one of NumPy; the names of two types differ where their formats do."""
    types: dict[str, Any] = {}

    @functools.wraps(numpy_type)
    def look_up(dtype: Any) -> Any:
        if dtype.name not in types:
            types[dtype.name] = numpy_type(dtype)
        return types[dtype.name]

    return look_up


def _make_once(make: Any, core: Any) -> Any:
    """The constructor of a block's type, which copies the attributes of the first type with that element and shape."""
    attributes: dict[tuple[Any, ...], dict[str, Any]] = {}

    @functools.wraps(make)
    def initialize(self: Any, element_ty: Any, shape: Any) -> None:
        # A pointer's name does not tell its address space, so types of pointers are made anew each time.
        extents = tuple(extent.value if isinstance(extent, core.constexpr) else extent for extent in shape)
        if type(element_ty) is not core.dtype or not all(type(extent) is int for extent in extents):
            make(self, element_ty, shape)
            return
        key = (element_ty.name, extents)
        if key not in attributes:
            make(self, element_ty, shape)
            attributes[key] = dict(vars(self))
        vars(self).update(attributes[key])

    return initialize


def _shape_once(make: Any, core: Any) -> Any:
    """The constructor of a tensor, whose shape and number of elements are those of the first tensor of that shape."""
    shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}

    @functools.wraps(make)
    def initialize(self: Any, handle: Any, type: Any) -> None:
        extents = tuple(type.shape.values) if type.is_block() else ()
        if extents not in shapes:
            make(self, handle, type)
            shapes[extents] = self.shape, self.numel
            return
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = shapes[extents]

    return initialize
