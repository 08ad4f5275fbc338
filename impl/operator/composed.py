"""An op that is a kernel on CUDA and an expression on the CPU: the tangents of the norms and of softmax.

On CUDA such an op is an `Operator`, so that one kernel computes what the expression says in a dozen of torch's ops. On
the CPU a call evaluates the expression and nothing else. So its values, its derivatives and what a transform sees of it
are those of torch's ops, and it costs no dispatch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

from torch import Tensor

from ..gpu.launching import by_triton
from .expression import Expression
from .operator import Kernels, Operator, VmapRule
from .records import Record

Ts = TypeVarTuple("Ts")
Outputs = TypeVar("Outputs")


class Composed(Operator[*Ts, Outputs], Generic[*Ts, Outputs]):
    """An operator that is its expression on the CPU, unless the CPU's tensors go to the CUDA kernels."""

    def __init__(
        self, schema: str, expression: Callable[[Record], Outputs], cuda: Callable[[*Ts], Outputs | None],
        fake: Callable[[Record], Outputs], vmap: VmapRule, *, outputs: tuple[str, ...] | None = None,
    ) -> None:  # fmt: skip
        """Registers the op.

        Args:
            schema: as for `Operator`.
            expression: the record of the arguments in, the outputs out, in their shapes and dtypes; differentiable.
            cuda: the kernel, which computes what the expression does; None for a call that has nothing for it.
            fake: the record of the arguments in, outputs of the right shapes, dtypes and strides out.
            vmap: the rule for a batch of calls of the kernel. The expression needs none.
            outputs: names of the outputs, where the schema names none.
        """
        self._expression = expression
        self._composed = True

        def composition(*args: *Ts) -> Outputs:
            record = self.arguments(args)
            values: Any = expression(record)
            like: Any = fake(record)
            # An op must return new tensors, in the strides of its fake. An expression may return a tangent unchanged.
            addresses = [t.data_ptr() for t in args if isinstance(t, Tensor) and not t._is_zerotensor()]
            if isinstance(values, Tensor):
                return cast(Outputs, _in_own_memory(values, like, addresses))
            laid = tuple(_in_own_memory(value, place, addresses) for value, place in zip(values, like, strict=True))
            return cast(Outputs, laid)

        def host_code(*args: *Ts) -> Outputs:
            values = cuda(*args)
            return composition(*args) if values is None else values

        name = schema[: schema.index("(")]
        kernels: Kernels[*Ts, Outputs] = Kernels(composition, by_triton(name, composition)(host_code), fake)
        super().__init__(schema, kernels, vmap, Expression(expression), outputs=outputs)  # type: ignore[arg-type]

    def __call__(self, *args: *Ts) -> Outputs:
        """The op's outputs, differentiable: on the CPU from the expression, else as an operator's."""
        first: Any = args[self._first_tensor]
        if first.is_cpu and self._composed:
            return self._expression(self.arguments(args))
        return super().__call__(*args)

    def _serve_by_cuda_kernel(self, key: str) -> None:
        super()._serve_by_cuda_kernel(key)
        self._composed &= key != "CPU"


def _in_own_memory(value: Tensor | None, like: Tensor | None, addresses: list[int]) -> Tensor | None:
    """A value in the strides of `like`, in memory that no argument has."""
    if value is None or like is None or (value.stride() == like.stride() and value.data_ptr() not in addresses):
        return value
    return like.copy_(value)
