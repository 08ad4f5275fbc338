"""Calls of whole tensors as ranks get them, and what all ranks answer as one answer.

What is the same on several ranks must have the same bits there: where it has not is kept, for a question of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch

from ...oracles.op.bits import different, same_bits
from ...oracles.verdicts.violation import Code, Violation
from .arguments import Tensor
from .host.calls import Answer, BackwardCall, CandidateCall, Pulled, Repeat, WrittenTensors
from .layouts import Placing
from .placements import RETURN, Lying, PartsError, Placements

#: What a rank says when another has failed, by the judge's wire and by those of torch: no cause of anything.
_FOLLOWS, _LOST = (
    "RankError: ",
    re.compile(r"(RuntimeError|Dist\w+Error): .*(gloo/|NCCL|Connection (closed|reset)|Timed out waiting|Broken pipe)"),
)


@dataclass(frozen=True)
class CallNames:
    """The names by which placements are found: of the tensor arguments, and of the outputs, with their dtypes."""

    tensors: Sequence[str] = ()
    outputs: Sequence[tuple[str, torch.dtype]] = ()

    def tensor(self, i: int) -> str:
        return self.tensors[i] if i < len(self.tensors) else ""

    def output(self, i: int) -> str:
        return self.outputs[i][0] if i < len(self.outputs) else RETURN


@dataclass
class CallParts:
    """How calls are cut, and answers put together.

    Attributes:
        placements: how whole tensors lie. names: see there.
        replicas: where ranks that must have the same have other bits, in words. compared: of how many elements.
        calls: how many answers there were.
    """

    placements: Placements
    names: CallNames = field(default_factory=CallNames)
    replicas: list[str] = field(default_factory=list)
    compared: int = 0
    calls: int = 0

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.placements.size

    def cut(self, call: CandidateCall, rank: int) -> CandidateCall:
        """A call as a rank gets it."""
        cut, tensors = self.placements.cut, call.arguments.tensors
        own = iter([cut(t, self.placements.of(self.names.tensor(i)), rank) for i, t in enumerate(tensors)])
        leaves = [next(own).contiguous() if isinstance(leaf, Tensor) else leaf for leaf in call.leaves]
        state = {name: cut(t, self.placements.of(name), rank) for name, t in call.state.items()}
        destinations = [
            (self.placements.cut_shape(shape, self.placements.of(self.names.output(i)), rank), dtype)
            for i, (shape, dtype) in enumerate(call.destinations)
        ]
        placing = Placing(destinations=call.placing.destinations)
        if call.placing.strides and not call.placing.memories:
            shapes = [leaf.shape for leaf in leaves if isinstance(leaf, Tensor)]
            pairs = zip(tensors, call.placing.strides, shapes, strict=True)
            strides = [_cut_strides(t.shape, was, part) for t, was, part in pairs]
            placing = msgspec.structs.replace(placing, strides=strides)
        return msgspec.structs.replace(
            call, leaves=leaves, state=state, destinations=destinations, placing=placing,
            backward=None if call.backward is None else self._cut_backward(call.backward, rank),
            sequel=msgspec.structs.replace(call.sequel, fetched=False),
        )  # fmt: skip

    def _cut_backward(self, backward: BackwardCall, rank: int) -> BackwardCall:
        floats = [name for name, dtype in self.names.outputs if dtype.is_floating_point] or [RETURN]
        pairs = [(g, floats[i] if i < len(floats) else RETURN) for i, g in enumerate(backward.cotangents)]
        placements = self.placements
        cotangents = [
            placements.cut(g, placements.of_cotangent(name), rank) * placements.share_of_cotangent(name)
            for g, name in pairs
        ]
        strides = backward.strides and [
            _cut_strides(g.shape, was, part.shape)
            for g, was, part in zip(backward.cotangents, backward.strides, cotangents, strict=True)
        ]
        return msgspec.structs.replace(
            backward, cotangents=[g.contiguous() for g in cotangents], strides=strides, rows=[], having=[]
        )

    def join(
        self, call: CandidateCall, parts: Sequence[CandidateCall], answers: Sequence[Answer]
    ) -> tuple[Answer, Sequence[Tensor]]:
        """The answer of all ranks, and the outputs, also where the answer leaves them to be fetched.

        Raises:
            PartsError: what they give is no part of anything. Violation: they do not come together.
        """
        self.calls += 1
        first = answers[0]
        if any(each.raised for each in answers):
            executed = next((each.executed for each in answers if each.executed), None)
            return Answer(raised=self._why_raised(answers), executed=executed), ()
        odd = next((r for r, each in enumerate(answers) if (each.form, each.plain) != (first.form, first.plain)), None)
        if odd is not None:
            kinds = [f"{each.form} {each.plain or ''}".rstrip() for each in (answers[odd], first)]
            raise PartsError(f"rank {odd} returns {kinds[0]}, and rank 0 {kinds[1]} (a * is a tensor)")
        names = [self.names.output(i) for i in range(len(first.outputs))]
        outputs = self.join_each([each.outputs for each in answers], names)
        buffers = self.join_each([each.writes.buffers for each in answers], call.sequel.writes.buffers)
        after = self._join_after(call, parts, [each.writes.after for each in answers])
        different_ones = self.join_each([each.repeat.different for each in answers], names)
        differs = min((each.repeat.differs for each in answers if each.repeat.differs), default=0)
        seconds = max(each.repeat.seconds for each in answers)
        executed = next((each.executed for each in answers if each.executed and each.executed.fault), first.executed)
        answer = msgspec.structs.replace(
            first,
            outputs=[] if call.sequel.fetched else outputs,
            shapes=[tuple(y.shape) for y in outputs] if call.sequel.fetched else [],
            writes=WrittenTensors(list(buffers), list(after)),
            repeat=Repeat(differs, list(different_ones), seconds),
            pulled=self._join_pulled(call, [each.pulled for each in answers]),
            earlier=list(self.join_each([each.earlier for each in answers], names)),
            changed=[f"rank {r}: {line}" for r, each in enumerate(answers) for line in each.changed],
            executed=executed,
        )
        return answer, outputs

    def _why_raised(self, answers: Sequence[Answer]) -> str:
        """What ranks raised: first what is a cause, and then what the others did.

        Raises:
            Violation: they do not come together.
        """
        texts = {rank: each.raised for rank, each in enumerate(answers) if each.raised}
        causes = [rank for rank, text in texts.items() if not (text.startswith(_FOLLOWS) or _LOST.match(text))]
        if not causes:
            # Nobody refuses anything: without a judge the ranks would wait, or take what was meant for another call.
            first, *lines = texts[next(iter(texts))].splitlines()
            if not first.startswith(_FOLLOWS):
                first = "; ".join(f"rank {each} {_describe_end(texts.get(each, ''))}" for each in range(self.size))
            raise Violation(Code.DIVERGENT, first.removeprefix(_FOLLOWS), tuple(lines))
        rank = causes[0]
        line, *more = texts[rank].splitlines()
        if len(texts) == self.size and len({text.splitlines()[0] for text in texts.values()}) == 1:
            return texts[rank]
        others = (each for each in range(self.size) if each != rank)
        ends = [f"rank {each} {_describe_end(texts.get(each, ''))}" for each in others]
        return "\n".join([f"{line} (rank {rank} of {self.size})", *ends, *more])

    def join_each(self, parts: Sequence[Sequence[Any]], names: Sequence[str]) -> list[Any]:
        """What the ranks have in each place, put together; None where a rank has none."""
        counts = {len(each) for each in parts}
        if len(counts) != 1 or len(parts) != self.size:
            return []
        return [self._join_one([each[i] for each in parts], name, self.placements.of(name))
                for i, name in enumerate(names[: counts.pop()])]  # fmt: skip

    def _join_after(
        self, call: CandidateCall, parts: Sequence[CandidateCall], after: Sequence[Sequence[Any]]
    ) -> list[Any]:
        """The arguments after the call: as they were where no rank has written its part, whose zeros may have signs."""
        if not all(after):
            return []
        whole = []
        for i, tensor in enumerate(call.arguments.tensors):
            was, now = [part.arguments.tensors[i] for part in parts], [each[i] for each in after]
            name = self.names.tensor(i)
            same = all(map(same_bits, was, now))
            whole.append(tensor if same else self._join_one(now, name, self.placements.of(name)))
        return whole

    def _join_one(self, parts: Sequence[Any], name: str, lying: Lying) -> Any:
        if any(part is None for part in parts):
            return None

        def note(rank: int, part: Tensor, first: Tensor) -> None:
            self._note_replica(name.replace(RETURN, "out"), rank, part, first)

        try:
            return self.placements.join(parts, lying, note)
        except PartsError as err:
            raise PartsError(f"{name.replace(RETURN, 'out')}: {err}") from err

    def _note_replica(self, name: str, rank: int, part: Tensor, first: Tensor) -> None:
        """Keep it where a rank has other bits than another that must have the same; zeros of other signs are equal."""
        self.compared += part.numel()
        apart = different(part, first) & ~((part == 0) & (first == 0))
        if bool(apart.any()):
            at = tuple(int(i) for i in apart.nonzero()[0])
            index = f"[{', '.join(map(str, at))}]" if at else ""
            text = f"rank {rank} has {part[at].item()!r} in {name}{index}, and another rank {first[at].item()!r}"
            count = f"{int(apart.sum())} of {apart.numel()} elements, call {self.calls}"
            self.replicas.append(f"{text}: {count}")

    def _join_pulled(self, call: CandidateCall, pulled: Sequence[Pulled]) -> Pulled:
        backward = call.backward
        if backward is None:
            return Pulled()
        floats = [self.names.tensor(i) for i, t in enumerate(call.arguments.tensors) if t.dtype.is_floating_point]
        inputs = [t for t in call.arguments.tensors if t.dtype.is_floating_point]
        operands = [(floats[i], inputs[i]) for i in backward.moving]
        operands += [(name, call.state.get(name)) for name in backward.wanted]  # type: ignore[misc]
        gradients = self._join_gradients([each.gradients for each in pulled], operands)
        if backward.rows and any(g is not None for g in gradients):
            having = [*backward.having, *[False] * len(gradients)]
            gradients = [g[backward.rows] if has and g is not None else g for g, has in zip(gradients, having)]  # noqa: B905
        again = self._join_gradients([each.again or each.gradients for each in pulled], operands)
        spent = next((each.spent for each in pulled if each.spent), "")
        changed = sorted({i for each in pulled for i in each.changed})
        return Pulled(gradients, again if any(each.again for each in pulled) else [], spent, changed)

    def _join_gradients(self, parts: Sequence[Sequence[Any]], operands: Sequence[tuple[str, Any]]) -> list[Any]:
        """The gradients that ranks have together: a rank that has none of an operand, while others do, has zeros."""
        if not any(parts):
            return []
        joined: list[Any] = []
        for i, (name, operand) in enumerate(operands):
            own = [each[i] if each else None for each in parts]
            if all(g is None for g in own) or operand is None:
                joined.append(None)
                continue
            lying = self.placements.of(name)
            zeros = [torch.zeros_like(self.placements.cut(operand, lying, rank)) for rank in range(self.size)]
            full = [zero if g is None else g for g, zero in zip(own, zeros, strict=True)]
            joined.append(self._join_one(full, f"d_{name}", self.placements.of_gradient(name)))
        return joined


def _describe_end(text: str) -> str:
    return f"raised {text.splitlines()[0]}" if text else "has returned"


def _cut_strides(shape: Sequence[int], strides: Sequence[int], part: Sequence[int]) -> list[int]:
    """Strides of a part as those of the whole: the same order of axes, and the same gaps between them."""
    result, whole_end, end = list(strides), 1, 1
    for axis in sorted(range(len(shape)), key=lambda i: strides[i]):
        if strides[axis] == 0 or shape[axis] < 2:
            continue
        result[axis] = end + (strides[axis] - whole_end)
        whole_end = strides[axis] * shape[axis]
        end = result[axis] * max(part[axis], 1)
    return result
