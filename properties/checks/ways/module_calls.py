"""Modules as implementations of an op, and the checks of their state.

What this is for: users meet most of these ops as modules of `torch.nn`. A module that is built of a call's arguments,
and called with them, is an implementation like any other. But a module also has a state: it is saved and loaded, it
counts batches, and it changes in training and not in evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor
from ....oracles.verdicts.verdict import Code
from ..agreement import outputs_of

#: How many batches a module with momentum None is trained on.
BATCHES = 3


@dataclass(frozen=True)
class ModuleCall:
    """A module for one call.

    Attributes:
        module: built of the call's numbers and shapes. state: its parameters and buffers, by name; None for one that it
            does not have. operands: its arguments. result: the dtype to which its user converts the output, if any.
    """

    module: torch.nn.Module
    state: Mapping[str, Tensor | None]
    operands: tuple[Any, ...]
    result: torch.dtype | None = None

    def tensors(self) -> dict[str, Tensor]:
        """The parameters and buffers that are not None."""
        return {name: value for name, value in self.state.items() if value is not None}

    def load(self) -> torch.nn.Module:
        """The module, with copies of the parameters and buffers."""
        for name, value in self.tensors().items():
            copy = value.detach().clone()
            buffer = name in dict(self.module.named_buffers())
            setattr(self.module, name, copy if buffer else torch.nn.Parameter(copy))
        return self.module


@dataclass(frozen=True)
class ModuleSubject:
    """An implementation that builds a module of the arguments of each call, in order, and calls it."""

    build: Callable[..., ModuleCall]

    def __call__(self, *args: Any) -> Any:
        built = self.build(*args)
        # `functional_call` copies nothing into the module, so that transforms see these tensors, and writes reach them.
        output = torch.func.functional_call(built.module, built.tensors(), built.operands)
        return output if built.result is None else output.to(built.result)


def check_module_state(judge: Judge, sample: Sample) -> None:
    """Judge the state of a module: saved and loaded, in evaluation and in training; other subjects have none."""
    subject = judge.op.implementation(judge.subject_name)
    if not isinstance(subject, ModuleSubject):
        return
    _round_trip(judge, subject, sample)
    if "running_mean" in judge.op.arguments and _by_names(judge, sample)["running_mean"] is not None:
        _evaluation_keeps(judge, subject, sample)
        _mean_over_all(judge, subject, sample)


def _by_names(judge: Judge, sample: Sample) -> dict[str, Any]:
    return dict(zip(judge.op.arguments, sample.args, strict=True))


def _change_module(judge: Judge, sample: Sample, **changes: Any) -> Sample:
    return sample.with_args(list((_by_names(judge, sample) | changes).values()))


def _call(judge: Judge, module: torch.nn.Module, operands: tuple[Any, ...], what: str) -> Tensor:
    with torch.no_grad():
        output: Tensor = judge.call(module, *operands, what=what)
    return output


def _round_trip(judge: Judge, subject: ModuleSubject, sample: Sample) -> None:
    """Violation unless a module with the loaded state of another one has the same outputs, and no state is missing."""
    built = subject.build(*sample.args)
    module = built.load().eval()
    # The copies stand for a state that is saved to a file and loaded again.
    state = {name: value.clone() for name, value in module.state_dict().items()}
    other = subject.build(*sample.args).module.eval()
    missing = other.load_state_dict(state, strict=False)
    lost = [*missing.missing_keys, *missing.unexpected_keys, *(n for n in built.tensors() if n not in state)]
    what = "state_dict, copied and read back"
    if lost:
        raise judge.violation(Code.ATTRIBUTE, f"{lost[0]} is not in it", where=what)
    first, second = (_call(judge, one, built.operands, "eval") for one in (module, other))
    if not same_results(first, second):
        raise judge.violation(Code.BITS, "the module that read it gives other bits", where=what)
    judge.tally.count(int(first.numel()))


def _evaluation_keeps(judge: Judge, subject: ModuleSubject, sample: Sample) -> None:
    """Violation where evaluation changes a statistic or the count of batches."""
    # The module is built for training, so that this shows whether `eval` ends it.
    built = subject.build(*_change_module(judge, sample, training=True).args)
    module = built.load()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    _call(judge, module.eval(), built.operands, "eval")
    for name, t in module.state_dict().items():
        if not torch.equal(t, before[name]) and not t.isnan().any():
            raise judge.violation(Code.MUTATED, f"evaluation changes {name}", where="eval")
    judge.tally.count(len(before))


def _mean_over_all(judge: Judge, subject: ModuleSubject, sample: Sample) -> None:
    """Violation unless with momentum None the k-th batch has the weight 1 / k, and the batches are counted."""
    inputs = [_by_names(judge, sample)["input"], *(args[judge.op.arguments.index("input")] for args in sample.slices)]
    start = _change_module(judge, sample, training=True, momentum=None)
    if outputs_of(judge, _change_module(judge, start, momentum=0.5).args) is None:
        return  # one value per channel, which training refuses
    module = subject.build(*start.args).load().train()
    for number, batch in enumerate(inputs[:BATCHES], start=1):
        mean, var = (getattr(module, name).clone() for name in ("running_mean", "running_var"))
        what = f"batch {number} with momentum None"
        out = _call(judge, module, (batch,), what)
        if int(module.get_buffer("num_batches_tracked")) != number:
            wrong = f"num_batches_tracked is {int(module.get_buffer('num_batches_tracked'))}, need {number}"
            raise judge.violation(Code.ATTRIBUTE, wrong, where=what)
        now = _change_module(judge, start, input=batch, running_mean=mean, running_var=var, momentum=1.0 / number)
        got = [out, module.get_buffer("running_mean"), module.get_buffer("running_var")]
        judge.against(judge.path(now, (), got, "eager").expected(what), got, exactly=False)
