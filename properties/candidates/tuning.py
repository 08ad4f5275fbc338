"""What a tuner asks of a configuration before it takes its time: does it lie where the spec allows it?

What is hard here: a tuner hands over results, and what is right of them depends on the inputs. Helion calls a baseline
with the inputs, so the baseline is a method of the check, which keeps them. Triton's tuner has the arguments by name,
and all configurations write the same memory. So each begins with what lay there before the first, else a forgotten tail
would find the result of another configuration.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...oracles.bound.terms import Terms, terms, terms_of_compiled
from ...oracles.op.declaration import is_float
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import Violation
from .arguments import CallArguments, Tensor
from .assertion import CallOfSpec
from .conformance import DEFAULT
from .specification import SpecError, Specification, specification

_LOG = logging.getLogger("opassay")


def accuracy_check(spec: Any, *, contract: str | Terms = DEFAULT) -> AccuracyCheck:
    """A check for tuners of kernels: no configuration is taken whose results no evaluation of the spec gives.

    Args:
        spec: what the kernel means, of its arguments: as for `opassay.bound`. contract: what it may do, besides what
            Triton's compiler makes of functions and products.

    Raises:
        SpecError: `spec` is none. ValueError: `contract` is no name of terms.

    Example:
        >>> check = opassay.accuracy_check(reference)  # doctest: +SKIP
        >>> @helion.kernel(autotune_baseline_fn=check.baseline, autotune_baseline_accuracy_check_fn=check)
        >>> @check.of_triton(inputs=("X", "W"), outputs=("Y",))  # above @triton.autotune
    """
    return AccuracyCheck(specification(spec), terms_of_compiled(terms(contract)))


class AccuracyCheck:
    """The check, called as Helion calls it; the spec is read once for the inputs of one tuning."""

    def __init__(self, spec: Specification, allowed: Terms) -> None:
        self._spec, self._allowed = spec, allowed
        self._call: CallOfSpec | None = None

    def baseline(self, *args: Any) -> Any:
        """What the spec gives, for `autotune_baseline_fn`; the arguments are those of the checks that follow.

        Raises:
            SpecError: the spec cannot be read, or gives tensors and writes others, of which one alone would be held.
        """
        self.read(args)
        return self._spec.call_at(self._spec.state, args)

    def read(self, args: Sequence[Any]) -> None:
        """Take the arguments of the checks that follow, as copies; errors are those of `baseline`."""
        self._call = CallOfSpec(self._spec, CallArguments.of(args).copied(), self._allowed)
        if self._call.run.outputs and self._call.run.writes:
            raise SpecError(f"{self._spec.name} gives tensors and writes others, need a spec that does one of them")

    def __call__(self, actual: Any, expected: Any) -> None:
        """Assert that a configuration's results lie where the spec allows them, whatever the baseline gave.

        Args:
            actual: the results; of a spec that gives none, the arguments after the call. expected: those of `baseline`.

        Raises:
            AssertionError: they do not; the text is a card. RuntimeError: `baseline` has not been called.
        """
        if self._call is None:
            raise RuntimeError("accuracy_check: has no inputs; autotune_baseline_fn has to be the check's .baseline")
        if not self._call.run.outputs and actual is not None:
            tensors = CallArguments.of(actual).tensors
            actual = tuple(tensors[place] for place in self._call.run.writes if isinstance(place, int))
        if actual is not None and (wrong := self.find_wrong(actual)):
            raise AssertionError(f"{self._spec.name}: {wrong}")

    def find_wrong(self, outputs: Any) -> Violation | None:
        """What is wrong with results; nothing is where nothing is known of them, which is logged."""
        assert self._call is not None
        wrong = self._call.hold(outputs).violation
        if wrong is None or wrong.code is not Code.MOSTLY_NOT_JUDGED:
            return wrong
        _LOG.warning("%s: %s", self._spec.name, wrong.title)
        return None

    def of_triton(self, inputs: Sequence[str], outputs: Sequence[str]) -> Callable[[Any], Any]:
        """A decorator above `triton.autotune`, by which a wrong configuration takes an infinite time.

        Args:
            inputs: names of the kernel's arguments that the spec takes, in order. outputs: of those for what it gives.

        Raises:
            TypeError: what is below is no tuner. ValueError: its kernel has no argument of a name.
            AssertionError: at a launch, no configuration is right; the text is the card of the first.
        """

        def decorate(tuner: Any) -> Any:
            if not hasattr(tuner, "configs"):
                raise TypeError(f"of_triton: got a {type(tuner).__name__}, need what triton.autotune gives")
            unknown = [name for name in (*inputs, *outputs) if name not in tuner.arg_names]
            if unknown:
                raise ValueError(f"of_triton: got {unknown[0]!r}, need arguments of the kernel: {tuner.arg_names}")
            _TunerHooks(self, tuner, tuple(inputs), tuple(outputs))
            return tuner

        return decorate


class _TunerHooks:
    """What runs in place of three methods of a tuner of Triton."""

    def __init__(self, check: AccuracyCheck, tuner: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self._check, self._tuner, self._inputs, self._outputs = check, tuner, inputs, outputs
        self._bench, self._post_hook = tuner._do_bench, tuner.post_hook
        self._is_timing = True
        tuner.run, tuner._do_bench, tuner.post_hook = self.run, self.bench, self.post_hook

    def run(self, *args: Any, **kwargs: Any) -> Any:
        self._named = dict(zip(self._tuner.arg_names, args, strict=False)) | kwargs
        self._before: dict[str, Tensor] = {}
        self._wrong: list[Violation] = []
        launched = type(self._tuner).run(self._tuner, *args, **kwargs)
        if self._wrong and len(self._wrong) == len(self._tuner.configs_timings):
            raise AssertionError(f"{self._tuner.base_fn.__name__}, in every configuration: {self._wrong[0]}")
        return launched

    def post_hook(self, named: Mapping[str, Any], exception: Any) -> Any:
        """It sees what a launch gave before the tuner restores arguments."""
        if not self._is_timing:
            self._after = {name: named[name].clone() for name in self._outputs}
            self._choice = ", ".join(f"{name}={value}" for name, value in named.items() if name not in self._named)
        return self._post_hook(named, exception=exception)

    def bench(self, launch: Callable[[], Any], quantiles: Sequence[float]) -> Any:
        if not self._before:
            self._begin()
        self._put(self._before)
        self._is_timing = False
        try:
            launch()
        finally:
            self._is_timing = True
        self._put(self._before)
        if wrong := self._check.find_wrong(self._form(self._after)):
            _LOG.warning("%s with %s: %s", self._tuner.base_fn.__name__, self._choice, wrong.title)
            self._wrong.append(wrong)
            return [math.inf] * len(quantiles)
        if self._bench is None:
            from triton.runtime.driver import driver

            self._bench = driver.active.get_benchmarker()
        return self._bench(launch, quantiles=quantiles)

    def _begin(self) -> None:
        """Keep what arguments hold; outputs that hold what is right already, as used memory may, hold NaN instead."""
        self._check.read([self._named[name] for name in self._inputs])
        named = {name: self._named[name] for name in (*self._inputs, *self._outputs)}
        self._before = {name: value.clone() for name, value in named.items() if isinstance(value, Tensor)}
        read = {_memory_of(named[name]) for name in self._inputs}
        own = [name for name in self._outputs if _memory_of(named[name]) not in read and is_float(named[name])]
        if own and self._check.find_wrong(self._form(self._before)) is None:
            self._before |= {name: torch.full_like(self._before[name], math.nan) for name in own}

    def _put(self, values: Mapping[str, Tensor]) -> None:
        for name, value in values.items():
            self._named[name].copy_(value)

    def _form(self, values: Mapping[str, Tensor]) -> Any:
        outputs = tuple(values[name] for name in self._outputs)
        return outputs[0] if len(outputs) == 1 else outputs


def _memory_of(value: Any) -> int | None:
    return value.untyped_storage().data_ptr() if isinstance(value, Tensor) else None
