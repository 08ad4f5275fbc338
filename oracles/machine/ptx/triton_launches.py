"""Triton kernels that are launched in their own way, `kernel[grid](...)`, compiled and executed as PTX.

What is hard here: the names of Triton that all launches go through are replaced, so that a process that does this
launches nothing on a GPU meanwhile. A tuner takes no times here: it takes the configuration that the account's variant
says, or the next one that fits the GPU, so that whoever calls somebody's function again and again has all tried.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Mapping
from typing import Any

import torch

from ...verdicts.violation import Code, Unsupported, Violation
from ..compiling import SHARED_MEMORY
from .account import ACCOUNT
from .executor import MOST_BLOCKS, Executor
from .parameters import Structure
from .space import WARP

#: Threads that a block has at most.
_THREADS = 1024


class TritonLaunches:
    """Executes what is launched.

    Args:
        architecture: of `compiling.CAPABILITIES`. executor: which executes them; by default one on tensors of the CPU.
    """

    def __init__(self, architecture: str, executor: Executor | None = None) -> None:
        self._executor, self._limit = executor or Executor(architecture), SHARED_MEMORY[architecture]
        self._tuned: set[tuple[object, ...]] = set()
        self._fit: dict[tuple[object, ...], bool] = {}

    def install(self) -> None:
        """Have all launches of this process executed here."""
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        self._compile, self._tune_and_run = JITFunction.run, Autotuner.run
        launches = self

        def run(function: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            return launches._run(function, args, grid, warmup, kwargs)

        def run_tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
            return launches._run_tuned(tuner, args, kwargs)

        JITFunction.run, Autotuner.run = run, run_tuned
        ACCOUNT.launchers |= {(JITFunction, "run"), (Autotuner, "run")}

    def uninstall(self) -> None:
        """Have launches be those of Triton again."""
        from triton.runtime.autotuner import Autotuner
        from triton.runtime.jit import JITFunction

        JITFunction.run, Autotuner.run = self._compile, self._tune_and_run
        ACCOUNT.launchers -= {(JITFunction, "run"), (Autotuner, "run")}

    def _run(self, function: Any, args: tuple[Any, ...], grid: Any, warmup: bool, kwargs: dict[str, Any]) -> Any:
        """In place of `JITFunction.run`."""
        binary = self._compile(function, *args, grid=grid, warmup=True, **kwargs)
        if warmup or binary is None:
            return binary
        self._require_room(binary)
        values = {p.name: p.default for p in function.params if p.has_default}
        values |= dict(zip(function.arg_names, args, strict=False))
        values |= {name: value for name, value in kwargs.items() if name in function.arg_names}
        self.execute(binary, tuple(grid(values)) if callable(grid) else tuple(grid), values)
        return binary

    def execute(self, binary: Any, sizes: tuple[int, ...], values: Mapping[str, Any]) -> None:
        """Execute what was compiled, and enter it in the account.

        Args:
            binary: of Triton. sizes: of the grid. values: of its arguments, by name.

        Raises:
            Violation, Unsupported: as `Executor.launch`.
        """
        if 0 in sizes:
            return
        if any(map(operator.gt, sizes, MOST_BLOCKS)):
            raise RuntimeError(f"Triton Error [CUDA]: invalid argument: the grid {sizes} of {binary.metadata.name}")
        name = binary.metadata.name
        try:
            _require_plain(binary)
            self._executor.execute(binary, sizes, {key: _pointed(value) for key, value in values.items()})
        except (Violation, Unsupported) as fault:
            if isinstance(fault, Unsupported):
                fault = Unsupported(fault.code, f"{name}: {fault}")
            ACCOUNT.enter(name, fault)
            raise fault from None
        ACCOUNT.enter(name)

    def _require_room(self, binary: Any) -> None:
        """Refuse what no GPU of the architecture launches, as Triton does."""
        from triton.runtime.errors import OutOfResources

        metadata = binary.metadata
        needs = (metadata.shared, self._limit, "shared memory"), (WARP * metadata.num_warps, _THREADS, "threads")
        for need, limit, name in needs:
            if need > limit:
                raise OutOfResources(need, limit, name)

    def _run_tuned(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """In place of `Autotuner.run`."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configurations = [*tuner.prune_configs(kwargs)] if len(tuner.configs) > 1 else tuner.configs
        first = ACCOUNT.variant.configuration % len(configurations)
        configuration = configurations[first]
        if len(configurations) > 1:
            name = tuner.base_fn.__name__
            ACCOUNT.configurations[name] = len(configurations)
            # Where none fits, the first one raises for all of them, as with Triton.
            in_turn = configurations[first:] + configurations[:first]
            configuration = next((each for each in in_turn if self._fits(tuner, args, kwargs, each)), configuration)
            ACCOUNT.choices[name] = str(configuration)
        full = {**tuner.nargs, **kwargs, **configuration.all_kwargs()}
        if len(configurations) > 1:
            self._tune(tuner, args, kwargs, configuration, full)
        if configuration.pre_hook is not None:
            configuration.pre_hook(full)
        tuner.best_config = configuration
        binary = tuner.fn.run(*args, **kwargs, **configuration.all_kwargs())
        tuner.nargs = None
        return binary

    def _fits(self, tuner: Any, args: tuple[Any, ...], kwargs: dict[str, Any], configuration: Any) -> bool:
        """Whether Triton's tuner would take the time of a configuration; what it does not is noted."""
        from triton.compiler.errors import CompileTimeAssertionFailure
        from triton.runtime.errors import OutOfResources, PTXASError

        full = {**tuner.nargs, **kwargs, **configuration.all_kwargs()}
        mark = (*_mark(tuner, full), str(configuration))
        if mark in self._fit:
            return self._fit[mark]
        if configuration.pre_hook is not None:
            configuration.pre_hook(full)
        try:
            self._require_room(tuner.fn.run(*args, **{**kwargs, "warmup": True}, **configuration.all_kwargs()))
            self._fit[mark] = True
        except (OutOfResources, CompileTimeAssertionFailure, PTXASError) as err:
            why = " ".join(f"{type(err).__name__}: {err}".split())
            ACCOUNT.unfit.setdefault(tuner.base_fn.__name__, {}).setdefault(str(configuration), why)
            self._fit[mark] = False
        return self._fit[mark]

    def _tune(self, tuner: Any, args: tuple[Any, ...], kwargs: Any, choice: Any, full: Mapping[str, Any]) -> None:
        """The launch by which a time is taken, once for each key: what it leaves in memory, the next one finds."""
        mark = _mark(tuner, full)
        if mark in self._tuned or ACCOUNT.far is not None:
            return
        self._tuned.add(mark)
        tuner.pre_hook(full)
        if choice.pre_hook is not None:
            choice.pre_hook(full)
        tuner.fn.run(*args, **kwargs, **choice.all_kwargs())
        tuner.post_hook(full, exception=None)
        tuner.pre_hook(full, reset_only=True)


def _mark(tuner: Any, full: Mapping[str, Any]) -> tuple[object, ...]:
    """What a tuner decides by: itself, its keys' values and the dtypes of the arguments."""
    key = [str(full[name]) for name in tuner.keys if name in full]
    return (id(tuner), *key, *(str(v.dtype) for v in full.values() if hasattr(v, "dtype")))


def _pointed(value: Any) -> Any:
    """The tensor whose memory an argument points into, and how far, where Triton would ask it for `data_ptr` alone.

    Raises:
        Unsupported: it holds no tensor.
    """
    if isinstance(value, torch.Tensor) or not hasattr(value, "data_ptr"):
        return value
    tensor = next((each for each in vars(value).values() if isinstance(each, torch.Tensor)), None)
    if tensor is None:
        raise Unsupported(Code.OPCODE, f"an argument of type {type(value).__name__} that holds no tensor")
    return Structure(struct.pack("<q", value.data_ptr() - tensor.data_ptr()), {0: tensor})


def _require_plain(binary: Any) -> None:
    """Refuse what a launch has besides blocks of threads and pointers."""
    metadata = binary.metadata
    clusters = getattr(metadata, "num_ctas", 1)
    if clusters != 1:
        raise Unsupported(Code.OPCODE, f"clusters of {clusters} blocks are not executed")
    kinds = [kind for kind in binary.src.signature.values() if not isinstance(kind, str)]
    if kinds:
        raise Unsupported(Code.OPCODE, f"an argument of type {kinds[0]} is not passed to PTX")
