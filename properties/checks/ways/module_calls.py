"""Modules as implementations of an op, and what is asked of their state.

What this is for: users meet most of these ops as modules of `torch.nn`. A module that is built of a call's arguments,
and called with them, is an implementation like any other; but it also has a state: it is written and read back, counts
what it has seen, and behaves in one way in training and in another one in evaluation.
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

#: So many batches are seen where the mean over all of them is kept.
BATCHES = 3


@dataclass(frozen=True)
class Built:
    """A module for one call.

    Attributes:
        module: of the call's numbers and shapes. state: its parameters and buffers, by name; those that are None it has
            not. operands: what it is called with. result: what its user converts the output to, if anything.
    """

    module: torch.nn.Module
    state: Mapping[str, Tensor | None]
    operands: tuple[Any, ...]
    result: torch.dtype | None = None

    def given(self) -> dict[str, Tensor]:
        """The parameters and buffers that there are."""
        return {name: value for name, value in self.state.items() if value is not None}

    def stateful(self) -> torch.nn.Module:
        """The module, with copies of the parameters and buffers as its own."""
        for name, value in self.given().items():
            kept = value.detach().clone()
            buffer = name in dict(self.module.named_buffers())
            setattr(self.module, name, kept if buffer else torch.nn.Parameter(kept))
        return self.module


@dataclass(frozen=True)
class ModuleSubject:
    """An implementation that builds a module of the arguments of each call, and calls it.

    Attributes:
        build: the arguments of the op, in order -> the module.
    """

    build: Callable[..., Built]

    def __call__(self, *args: Any) -> Any:
        built = self.build(*args)
        # Nothing is copied into the module, so that transforms see the very tensors, and writes reach them.
        output = torch.func.functional_call(built.module, built.given(), built.operands)
        return output if built.result is None else output.to(built.result)


def state_of_module(judge: Judge, sample: Sample) -> None:
    """What a module keeps: written and read back, in training and in evaluation; nothing of what is no module."""
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
        found: Tensor = judge.call(module, *operands, what=what)
    return found


def _round_trip(judge: Judge, subject: ModuleSubject, sample: Sample) -> None:
    """A module that reads the state of another one gives what that one gives, and the state is whole."""
    built = subject.build(*sample.args)
    module = built.stateful().eval()
    # Copies stand for what is written to a file and read from it again.
    written = {name: value.clone() for name, value in module.state_dict().items()}
    other = subject.build(*sample.args).module.eval()
    missing = other.load_state_dict(written, strict=False)
    lost = [
        *missing.missing_keys,
        *missing.unexpected_keys,
        *(n for n in built.given() if n not in written),
    ]
    what = "state_dict, copied and read back"
    if lost:
        raise judge.broken(Code.ATTRIBUTE, f"{lost[0]} is not in it", where=what)
    first, second = (_call(judge, one, built.operands, "eval") for one in (module, other))
    if not same_results(first, second):
        raise judge.broken(Code.BITS, "the module that read it gives other bits", where=what)
    judge.tally.count(int(first.numel()))


def _evaluation_keeps(judge: Judge, subject: ModuleSubject, sample: Sample) -> None:
    """Evaluation changes no statistic and counts nothing."""
    # A module that was made for training shows whether `eval` takes it out of that.
    built = subject.build(*_change_module(judge, sample, training=True).args)
    module = built.stateful()
    before = {name: t.clone() for name, t in module.state_dict().items()}
    _call(judge, module.eval(), built.operands, "eval")
    for name, t in module.state_dict().items():
        if not torch.equal(t, before[name]) and not t.isnan().any():
            raise judge.broken(Code.MUTATED, f"evaluation changes {name}", where="eval")
    judge.tally.count(len(before))


def _mean_over_all(judge: Judge, subject: ModuleSubject, sample: Sample) -> None:
    """With momentum None the k-th batch has the weight 1 / k, and the batches are counted."""
    inputs = [_by_names(judge, sample)["input"], *(args[judge.op.arguments.index("input")] for args in sample.slices)]
    start = _change_module(judge, sample, training=True, momentum=None)
    if outputs_of(judge, _change_module(judge, start, momentum=0.5).args) is None:
        return  # one value per channel, which training refuses
    module = subject.build(*start.args).stateful().train()
    for number, batch in enumerate(inputs[:BATCHES], start=1):
        mean, var = (getattr(module, name).clone() for name in ("running_mean", "running_var"))
        what = f"batch {number} with momentum None"
        out = _call(judge, module, (batch,), what)
        if int(module.get_buffer("num_batches_tracked")) != number:
            wrong = f"num_batches_tracked is {int(module.get_buffer('num_batches_tracked'))}, need {number}"
            raise judge.broken(Code.ATTRIBUTE, wrong, where=what)
        now = _change_module(judge, start, input=batch, running_mean=mean, running_var=var, momentum=1.0 / number)
        got = [out, module.get_buffer("running_mean"), module.get_buffer("running_var")]
        judge.against(judge.path(now, (), got, "eager").expected(what), got, exactly=False)
