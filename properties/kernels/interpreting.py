"""What the process of `interpreted` does once, before its first question: it becomes a machine that runs kernels."""

from __future__ import annotations

import importlib


def install() -> None:
    """Have this process interpret the kernels of all ops, on tensors of the CPU, for good."""
    from ...oracles.machine import interpreter  # not at the top: only this process becomes such a machine

    interpreter.prepare()
    from ...impl.gpu import launching  # imports no kernel; those must be imported after the line above
    from ...impl.operator.operator import Operator

    importlib.import_module("opassay.impl")  # registers the ops
    launching.put_on(interpreter.Machine())
    for operator in Operator.registry.values():
        if operator.kernels.cuda is not operator.kernels.cpu:
            operator.serve_cpu_by_cuda_kernel()
