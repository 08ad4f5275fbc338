"""One implementation judged in one dtype under one contract."""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import opassay
from opassay.properties.candidates.question_plan import USUAL

from .problem import Function, Implementation, Problem

#: What is asked first of a wrong implementation; the rest only where this finds nothing.
_FIRST = ("FWD:given", "FWD:seeds", "VJP:grad")
#: Draws of arguments at which results are compared bit by bit.
_DRAWS = 3


@dataclass(frozen=True)
class ImplementationVerdict:
    """What the judge says of an implementation.

    Attributes:
        problem, title, right, dtype, contract: what was judged.
        verdict: of the judge; "suspect" where an accepting one has a suspicion, "raised" where the judge itself raised.
        questions: that are wrong, or suspect. text: of the first of these. ratio: error over bound, as its card says.
        shows: of a wrong one, whether its results and gradients differ in bits from those of every right one.
        why: of `Implementation`. seconds: that it took.
    """

    problem: str
    title: str
    right: bool
    dtype: str
    contract: str
    verdict: str
    questions: tuple[str, ...]
    text: str
    ratio: str
    shows: bool
    why: str
    seconds: float


def judge_one(problem: Problem, implementation: Implementation, dtype: str, contract: str) -> ImplementationVerdict:
    begun = time.perf_counter()
    terms = f"{contract}+{implementation.allows}" if implementation.allows else contract
    verdict, questions, text = _judge_each(problem, implementation, dtype, terms)
    ratio = re.search(r"([0-9.e+-]+) times (?:the|its) bound", text)
    return ImplementationVerdict(
        problem.name, implementation.title, implementation.right, dtype, terms, verdict, questions, text,
        ratio[1] if ratio else "", implementation.right or shows(problem, implementation, dtype),
        implementation.why, time.perf_counter() - begun,
    )  # fmt: skip


def _judge_each(
    problem: Problem, implementation: Implementation, dtype: str, contract: str
) -> tuple[str, tuple[str, ...], str]:
    result: Any = None
    # What is likely is asked of the values that were accepted in the same judgement; so all are asked again.
    for codes in ((),) if implementation.right else (_FIRST, USUAL):
        try:
            result = opassay.judge(
                implementation.build(dtype), problem.spec, lambda seed: problem.arguments(seed, dtype),
                contract=contract, questions=codes,
            )  # fmt: skip
        except Exception as err:
            return "raised", (), f"{type(err).__name__}: {err}"
        if result.verdict in ("rejected", "error"):
            break
    causes = result.causes or result.suspicions
    suspect = bool(result.suspicions) and not result.causes
    text = str(causes[0].wrong) if causes else result.error or "; ".join(result.weaknesses)
    verdict = "suspect" if suspect and result.verdict == "accepted" else str(result.verdict)
    return verdict, tuple(cause.question for cause in causes), text


def shows(problem: Problem, wrong: Implementation, dtype: str) -> bool:
    """Whether a wrong one's results or gradients have other bits than those of every right one, at some draw."""
    rights = [each for each in problem.implementations if each.right and dtype in each.dtypes and not each.why]
    makes: Sequence[Any] = [lambda: problem.spec, *(lambda each=each: each.build(dtype) for each in rights)]
    same = [True] * len(makes)
    for seed in range(_DRAWS):
        mine = _compare(problem, wrong.build(dtype), seed, dtype)
        for i, make in enumerate(makes):
            same[i] = same[i] and _same(mine, _compare(problem, make(), seed, dtype))
    return not any(same)


def differing(problem: Problem, implementation: Implementation) -> str:
    """How an implementation differs from its spec in float64, in results or gradients; empty where it does not.

    Lost digits are no difference: a share of 2^-30 of the largest element. A gradient that either has not is none, too.
    """
    for seed in range(_DRAWS):
        mine, need = (
            _compare(problem, _doubled(each), seed, "float64") for each in (implementation.make(), problem.spec)
        )
        if mine.raised or need.raised:
            return f"raises {mine.raised or need.raised}"
        if len(mine.values) != len(need.values):
            return f"{len(mine.values)} results, {len(need.values)} of the spec"
        for place, (a, b) in enumerate(zip(mine.all, need.all, strict=False)):
            if a is None or b is None:
                continue
            if a.shape != b.shape:
                return f"shape {tuple(a.shape)} of {tuple(b.shape)}"
            off, size = (float(t.double().abs().max()) if t.numel() else 0.0 for t in (a.double() - b.double(), b))
            if not off <= 2.0**-30 * size:
                return f"result {place} is off by {off:.3g} of {size:.3g}"
    return ""


def _doubled(function: Function) -> Function:
    return copy.deepcopy(function).double() if isinstance(function, torch.nn.Module) else function


@dataclass(frozen=True)
class CallEffects:
    """What a call shows: its results and what it wrote, and gradients; or the name of what it raises."""

    values: list[Tensor]
    gradients: list[Tensor | None]
    raised: str = ""

    @property
    def all(self) -> list[Tensor | None]:
        return [*self.values, *self.gradients]


def _compare(problem: Problem, function: Function, seed: int, dtype: str) -> CallEffects:
    function = copy.deepcopy(function) if isinstance(function, torch.nn.Module) else function
    args = problem.arguments(seed, dtype)
    try:
        with torch.no_grad():
            values = _tensors(function(*args))
    except Exception as err:
        return CallEffects([], [], type(err).__name__)
    values += [t.clone() for t in _tensors(args)]
    values += [t.clone() for t in function.buffers()] if isinstance(function, torch.nn.Module) else []
    args = problem.arguments(seed, dtype)
    leaves = [t.requires_grad_() for t in _tensors(args) if t.is_floating_point()]
    try:
        results = [t for t in _tensors(function(*args)) if t.requires_grad]
        cotangents = [torch.cos(torch.arange(t.numel())).reshape(t.shape).to(t.dtype) for t in results]
        gradients = list(torch.autograd.grad(results, leaves, cotangents, allow_unused=True))
    except Exception:  # it writes an argument, or torch has no gradient
        gradients = []
    return CallEffects(values, gradients)


def _tensors(tree: Any) -> list[Tensor]:
    return [t for t in pytree.tree_leaves(tree) if isinstance(t, Tensor)]


def _same(mine: CallEffects, other: CallEffects) -> bool:
    """Whether two calls show the same bits; a gradient that one of them has not is none of them."""
    if mine.raised or other.raised or len(mine.values) != len(other.values):
        return False
    pairs = zip(mine.all, other.all, strict=False)
    return all(a is None or b is None or _equal(a, b) for a, b in pairs)


def _equal(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return torch.equal(torch.nan_to_num(a.detach()), torch.nan_to_num(b.detach()))
