"""One call of a spec, as a function of tensors alone: arguments, and of a module its parameters and buffers too."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...reference.missing import NoReadingError

ARGUMENT, PARAMETER, BUFFER, RESULT = "argument", "parameter", "buffer", "result"


class UntraceableError(Exception):
    """A spec with an operation that has no rule, or that cannot be traced; the text says which, and where."""


class ValuesNeededError(UntraceableError):
    """A spec that reads a number, a branch or a shape off the values of a tensor."""


@dataclass(frozen=True)
class Operand:
    """A tensor that goes into a spec or comes out of it.

    Attributes:
        name: of an argument as Python writes it ("x", "args[1]", "mask"), of a parameter or buffer its path in the
            module, of a result its place in what the spec returns ("", "[0]", "['loss']").
        role: ARGUMENT, PARAMETER, BUFFER or RESULT; an output that is no RESULT is an input after the spec wrote it.
        dtype, shape: of the tensor.
    """

    name: str
    role: str
    dtype: torch.dtype
    shape: tuple[int, ...]


@dataclass(frozen=True)
class SpecCall:
    """A spec, a function or a module, and the arguments of one call of it.

    Attributes:
        spec: the function or module.
        operands: what goes in: tensors among the arguments, then the module's parameters, then its buffers.
        tensors: their values.
    """

    spec: Callable[..., Any]
    operands: tuple[Operand, ...]
    tensors: tuple[torch.Tensor, ...]
    _leaves: Sequence[Any]
    _structure: Any

    @classmethod
    def of(cls, spec: Callable[..., Any], *args: Any, **kwargs: Any) -> SpecCall:
        """The call spec(*args, **kwargs); tensors may stand anywhere in trees of tuples, lists and dicts."""
        paths, structure = pytree.tree_flatten_with_path((args, kwargs))
        tensors = [(_argument_path(path), ARGUMENT, leaf) for path, leaf in paths if isinstance(leaf, torch.Tensor)]
        if isinstance(spec, torch.nn.Module):
            tensors += [(name, PARAMETER, tensor) for name, tensor in spec.named_parameters()]
            tensors += [(name, BUFFER, tensor) for name, tensor in buffers_of(spec).items()]
        operands = tuple(Operand(name, role, t.dtype, tuple(t.shape)) for name, role, t in tensors)
        return cls(spec, operands, tuple(t for *_, t in tensors), [leaf for _, leaf in paths], structure)

    def outputs(self, *tensors: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """What the spec returns for these tensors, and the tensors as they are after it.

        The spec works on copies, so `tensors` themselves are not written.
        """
        copies = [t.clone() for t in tensors]
        return [leaf for _, leaf in self.results(copies)], copies

    def results(self, tensors: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """The tensors that the spec returns, each with its place in the result. The spec may write `tensors`."""
        of_arguments = iter(tensors)
        leaves = [next(of_arguments) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self._structure)
        state = dict(zip(self._state_names(), of_arguments, strict=True))
        paths, _ = pytree.tree_flatten_with_path(self._call_spec(state, args, kwargs))
        return [(pytree.keystr(path), leaf) for path, leaf in paths if isinstance(leaf, torch.Tensor)]

    def _state_names(self) -> list[str]:
        return [operand.name for operand in self.operands if operand.role != ARGUMENT]

    def _call_spec(self, state: Mapping[str, torch.Tensor], args: Any, kwargs: Any) -> Any:
        if isinstance(self.spec, torch.nn.Module):
            return torch.func.functional_call(self.spec, dict(state), args, kwargs)
        return self.spec(*args, **kwargs)


def _argument_path(path: Any) -> str:
    """A path into (args, kwargs) as Python writes it: args[0][1], mask["left"]."""
    (_, *inner), keyword = path, path[0] == pytree.SequenceKey(1)
    if keyword:
        return f"{inner[0].key}{pytree.keystr(tuple(inner[1:]))}"
    return f"args{pytree.keystr(tuple(inner))}"


@contextlib.contextmanager
def preserve_attributes(spec: Any) -> Iterator[None]:
    """A context in which a spec is traced. After it plain attributes of a module have the tensors that they had before,
    because those that tracing puts there have no values.
    """
    modules = list(spec.modules()) if isinstance(spec, torch.nn.Module) else []
    before = [dict(vars(module)) for module in modules]
    try:
        yield
    finally:
        for module, was in zip(modules, before, strict=True):
            own = module.__dict__
            for name in [name for name, value in own.items() if isinstance(value, torch.Tensor)]:
                if name not in was:
                    del own[name]
                elif own[name] is not was[name]:
                    own[name] = was[name]


def buffers_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that a module keeps beside its parameters, by their paths: buffers, and those in plain attributes."""
    tensors = dict(module.named_buffers())
    ids = {id(tensor) for tensor in (*tensors.values(), *module.parameters())}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and id(value) not in ids:
                ids.add(id(value))
                tensors[f"{path}.{name}" if path else name] = value
    return tensors


def reason_of(err: Exception) -> str:
    """Why a rule cannot be applied, in words that help an author of PyTorch."""
    text = first_line(err)
    if isinstance(err, NoReadingError) and "numpy" not in text.lower():
        return text
    if isinstance(err, NoReadingError):  # Its advice is for authors of formulas in NumPy.
        return "the rule for it needs numbers that are known, and these depend on rounded ones; write it in another way"
    return f"its rule does not know such arguments ({type(err).__name__}: {text}); write it with other operations"


def first_line(err: Exception) -> str:
    """What an exception says, in one line."""
    return str(err).strip().partition("\n")[0]
