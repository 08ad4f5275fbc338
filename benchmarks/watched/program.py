"""A program to be watched: a module, its loss, its optimizers, and a step of training."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

#: A step's gradients are scaled to this norm where they are larger, as programs do.
LARGEST_NORM = 0.5

Loss = Callable[[Any], Tensor]
Choice = Callable[[Iterable[Tensor]], Optimizer]

adamw = functools.partial(functools.partial, torch.optim.AdamW, lr=1e-3, weight_decay=0.01)
sgd = functools.partial(functools.partial, torch.optim.SGD, lr=1e-2, momentum=0.9, nesterov=True, weight_decay=0.01)
ADAMW_LIST, ADAMW_FUSED, ADAMW_LOOP = adamw(foreach=True), adamw(fused=True), adamw(foreach=False)
SGD_LIST, SGD_FUSED, SGD_LOOP = sgd(foreach=True), sgd(fused=True), sgd(foreach=False)


@dataclass
class Program:
    """A module with random weights and what is done with it.

    Attributes:
        module: of any dtype; `become` changes it.
        loss: the forward pass, of the module. Its inputs have the dtype that the module has then.
        choice: makes the optimizer of the module's parameters.
        second: the loss of the second of two parts, `module.parts()`, which are trained in turn; `loss` is the first's.
        autocast: whether the forward pass runs under autocast to bfloat16.
        states: of the module before each loss of the last step.
        prescribed: the states to take in place of one's own, so that a loss has the parameters of another program.
    """

    module: nn.Module
    loss: Loss
    choice: Choice = ADAMW_LIST
    second: Loss | None = None
    autocast: bool = False
    optimizers: list[Optimizer] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    prescribed: list[dict[str, Any]] = field(default_factory=list)

    def become(self, dtype: torch.dtype, autocast: bool) -> None:
        """Gives the module its dtype, and makes the optimizers."""
        self.module.to(dtype)
        self.autocast = autocast
        parts = self.module.parts() if self.second is not None else [self.module]
        trained = [[p for p in part.parameters() if p.requires_grad] for part in parts]
        self.optimizers = [self.choice(parameters) for parameters in trained if parameters]

    def step(self) -> float:
        """Forward, backward, clipped gradients and a step of each optimizer in turn; the sum of losses."""
        total, self.states = 0.0, []
        for compute_loss, optimizer in zip((self.loss, self.second), self.optimizers, strict=False):
            assert compute_loss is not None
            if self.prescribed:
                self.module.load_state_dict(self.prescribed.pop(0))
            if self.second is not None:
                self.states.append(copy.deepcopy(self.module.state_dict()))
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
                loss = compute_loss(self.module)
            loss.backward()
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, LARGEST_NORM)
            optimizer.step()
            total += float(loss.detach())
        return total

    def exact(self) -> Program:
        """A copy as it stands, in float64: parameters, buffers, and what the optimizers keep."""
        program = copy.deepcopy(self)
        program.autocast = False
        program.module.double()
        for optimizer in program.optimizers:
            for state in optimizer.state.values():
                state.update({name: _double(value) for name, value in state.items() if name != "step"})
        return program


def _double(value: Any) -> Any:
    return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value


def dtype_of(module: nn.Module) -> torch.dtype:
    """The dtype of a module's first floating parameter."""
    return next(p.dtype for p in module.parameters() if p.is_floating_point())


def draws(seed: int = 1) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Functions that draw normal numbers of a shape, and integers below a number, from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def below(end: int, *shape: int) -> Tensor:
        return torch.randint(0, end, shape, generator=generator)

    return normal, below
