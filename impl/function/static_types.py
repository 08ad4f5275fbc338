"""Names for what the machinery of custom functions passes on without looking inside.

A static type says nothing true of most of it. The author of a function chooses the signatures of its static methods,
puts outputs into any container, and sets any attribute on the context. So these names say what a value is for, where
torch and Python leave open what it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

#: One argument, output, cotangent or tangent: a tensor, None, or a value of any other type, which is handed on as it
#: is.
Leaf: TypeAlias = Any
#: Leaves in nested tuples, lists and dicts, as torch.utils._pytree takes them apart.
Pytree: TypeAlias = Any
#: How leaves are put together: torch's TreeSpec.
Structure: TypeAlias = Any
#: Batch dims, in the structure of what they belong to: an int where there is a batch, None where there is none.
Dims: TypeAlias = Any
#: The context of autograd, or one of `contexts.py`. torch's own type has no attributes but its own.
Ctx: TypeAlias = Any
#: A subclass of torch.autograd.Function.
FunctionClass: TypeAlias = Any
#: What functorch knows of one level: its number, and how to go one level further down.
Interpreter: TypeAlias = Any

#: Arguments, or outputs laid flat, in order.
Leaves: TypeAlias = tuple[Leaf, ...]
#: A static method of a function class, or what stands for one.
Method: TypeAlias = Callable[..., Pytree]
#: Batch dims, one per leaf.
LeafDims: TypeAlias = tuple[int | None, ...]
