"""Paths: one word of transforms at one sample, applied to an implementation and to the formula alike.

What this is for: nearly every check compares T(F)(x), which torch runs, with T(f)(x), which our own arithmetic runs.
Both sides must get the same operands: the op's own tensors, batched where the word has a vmap step, and then a
tangent or a cotangent for every step that differentiates. A `Path` makes these operands once and gives them to both
sides.

What is hard here: how many directions there are, and of which shapes, follows from the word and from the shapes of
the op's outputs, step by step (`signature`). So the op must have been called once, without any transform, before
there can be a path. Directions are drawn from the sample's seed alone, in the order of the operands: a replayed case
gets the directions that it had, and a check that drew them in another order would judge old case files at other
numbers.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from ...reference.algorithms import algorithm_of, algorithms
from ..specs.tracing import SpecFormula
from .bits import same_bits
from .copies import copied
from .declaration import OWN, Op, Sample, Stream, Tensor, flat_outputs, is_float, to_array
from .script import ScriptMaker
from .transforms import ENGINES, REFERENCE, Engine, Vmap, Word, along, derivative_order, path_name


@dataclass(frozen=True)
class Like:
    """Shape and dtype of a tensor that is still to be drawn: `Like((2, 3), torch.float32)` of a 2 x 3 cotangent."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def batched(self, size: int) -> Like:
        """The same with a batch axis in front."""
        return Like((size, *self.shape), self.dtype)


def signature(
    word: Word, inputs: Sequence[Tensor], outputs: Sequence[Tensor], passive: Sequence[Tensor] = ()
) -> list[Like]:
    """The operands of T(f): passive ones and the inputs of `f`, batched where the word says so, and all directions."""
    before = [Like(tuple(t.shape), t.dtype) for t in passive]
    ins = [Like(tuple(t.shape), t.dtype) for t in inputs]
    outs = [Like(tuple(t.shape), t.dtype) for t in outputs]
    for step in word:
        if isinstance(step, Vmap):
            # Directions of the steps further in are inputs of the function that vmap is applied to, so they get a
            # batch axis as the op's own inputs do.
            dims = step.in_dims(len(before), len(ins))
            both = [t if d is None else t.batched(step.size) for t, d in zip(before + ins, dims, strict=True)]
            before, ins = both[: len(before)], both[len(before) :]
            outs = [like.batched(step.size) for like in outs]
        elif step == "jvp":
            ins = ins + ins
        else:
            ins, outs = ins + outs, ins
    return before + ins


def draw_directions(likes: Sequence[Like], seed: int, device: Any = "cpu") -> list[Tensor]:
    """Standard normal directions, rounded to their dtype, from a seed."""
    # Numbers are drawn in float64 on the host and then rounded and moved, so one seed means the same directions on
    # every device, and in every dtype but for the rounding.
    rng = np.random.default_rng([seed, Stream.DIRECTIONS])
    return [torch.from_numpy(np.asarray(rng.standard_normal(t.shape))).to(device, t.dtype) for t in likes]


def in_arguments(
    function: Callable[..., Any], args: Sequence[Any], positions: Sequence[int]
) -> Callable[..., tuple[Any, ...]]:
    """The judged outputs of a function, as a function of the arguments at some positions.

    Args:
        function: of all arguments. args: all arguments, which stay fixed elsewhere. positions: those that vary.
    """

    def f(*operands: Any) -> tuple[Any, ...]:
        arguments = list(args)
        for i, operand in zip(positions, operands, strict=True):
            arguments[i] = operand
        return flat_outputs(function(*arguments))

    return f


class Problem:
    """An op at given arguments: its floating tensors are operands, the other arguments are constants.

    Attributes:
        wrt: positions of the arguments that derivatives are taken in. fixed: those of the other floating tensors.
        args: the arguments, which subjects get. formula_args: copies of them, at which the formula is read, so that a
            subject cannot change them; with defaults in place of what the formula does not see (`Op.resolved`).
    """

    def __init__(self, op: Op, args: Sequence[Any], copies: Sequence[Any] | None = None) -> None:
        """
        Args:
            op: the op. args: its arguments. copies: of the arguments (`Sample.kept`); `args` themselves by default.
        """
        self.op = op
        self.args = tuple(args)
        self.formula_args = op.resolved(self.args if copies is None else tuple(copies))
        self.wrt = tuple(op.differentiable_positions(args))
        self.fixed = tuple(i for i, a in enumerate(args) if is_float(a) and i not in self.wrt)

    @property
    def inputs(self) -> list[Tensor]:
        """The operands that derivatives are taken in."""
        return [self.args[i] for i in self.wrt]

    @property
    def passive(self) -> list[Tensor]:
        """The operands that no derivative is taken in."""
        return [self.args[i] for i in self.fixed]

    def subject(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """An implementation as a function of `inputs`."""
        return functools.partial(self.operation(function), *self.passive)

    def operation(self, function: Callable[..., Any]) -> Callable[..., tuple[Any, ...]]:
        """An implementation as a function of `passive` and then `inputs`."""
        return in_arguments(function, self.args, (*self.fixed, *self.wrt))

    def formula(self, word: Word, outputs: int) -> Callable[..., tuple[Any, ...]]:
        """T(f) for the op's formula, as a function of reading arrays: `passive`, `inputs`, directions."""

        at, passive = (*self.fixed, *self.wrt), len(self.fixed)
        # Every algorithm that the formula declares is taken along the same word, because an evaluation may use any of
        # them and the bound has to cover it.
        first, *others = (
            along(
                REFERENCE,
                word,
                in_arguments(_of_arrays(algorithm, self.formula_args), self.formula_args, at),
                len(self.wrt),
                outputs,
                passive,
            )
            for algorithm in (self.op.reference, *algorithms(self.op.reference, self.op.promises.arithmetic.algorithms))
        )

        def path(*arrays: Any) -> tuple[Any, ...]:
            return first(*arrays)

        for other in others:
            algorithm_of(path)(other)
        return path

    def arrays(self) -> list[Any]:
        """The operands of the op as float64 arrays, in the order in which `formula` takes them."""
        return [to_array(self.formula_args[i]) for i in (*self.fixed, *self.wrt)]


def _of_arrays(formula: Callable[..., Any], arguments: Sequence[Any]) -> Callable[..., Any]:
    """The formula as a function that turns arguments that are tensors, such as indices, into NumPy arrays.

    A formula that is a spec is read in the dtypes of `arguments`.
    """
    formula = formula.for_arguments(arguments) if isinstance(formula, SpecFormula) else formula

    return lambda *args: formula(*(a.detach().cpu().numpy() if isinstance(a, Tensor) else a for a in args))


@dataclass(frozen=True)
class Expected:
    """What outputs are judged against: a formula at given operands, and the names of its outputs in messages.

    Attributes:
        formula: gives the outputs as reading arrays, for operands that are reading arrays.
        operands: the float64 arrays that the formula is read at.
        names: of the outputs. path: the name of the path.
        order: how many steps of the path differentiate; the contract allows more roundings for a higher order.
        make_script: makes the lines of a program that computes the outputs; None where no program can.
        wide: whether an argument asks for float64; then outputs of that dtype must be computed in float64 throughout.
        native: computes what torch's own evaluation of the formula gives at the operands; None for another formula.
    """

    formula: Callable[..., Any]
    operands: Sequence[Any]
    names: Sequence[str]
    path: str
    order: int = 0
    make_script: ScriptMaker | None = None
    wide: bool = False
    native: Callable[[], tuple[Tensor, ...]] | None = None

    @functools.cached_property
    def finite(self) -> bool:
        """Whether every operand is finite, and has elements.

        A mean over no elements is 0 / 0 in every evaluation. So its NaN is certain, and no singularity that a rounded
        evaluation could miss by a hair, as a NaN that comes from finite operands may be.
        """
        return all(o.size and np.isfinite(o).all() for o in self.operands)

    def cost(self, outputs: int) -> int:
        """The approximate number of mpmath operations of an exact reading: elements x 4^order.

        Args:
            outputs: the number of elements of the outputs; more than those of the operands where operands broadcast.
        """
        elements = sum(int(np.size(o)) for o in self.operands)
        return max(elements, outputs) * int(4**self.order)


@dataclass(frozen=True)
class Path:
    """One word of transforms of an op at one sample.

    Attributes:
        problem: the op at the sample's arguments.
        word: the steps, innermost first. engine: who takes them for the implementation, a name of `ENGINES`.
        primal: the outputs of the op itself.
        own: the op's operands, passive ones first, batched where the word says so.
        directions: the tangents and cotangents, in the order in which the word takes them.
        copies, direction_copies: of `own` and of the directions. The formula is read at these, because a subject may
            write to its operands.
        around: where the op is not called plainly, the lines of a program that define `call` by `op`; else empty.
        compiled: whether the op, or the transformed function, is compiled.
    """

    problem: Problem
    word: Word
    engine: str
    primal: tuple[Tensor, ...]
    own: tuple[Tensor, ...]
    directions: tuple[Tensor, ...]
    copies: tuple[Tensor, ...]
    around: tuple[str, ...] = ()
    compiled: bool = False
    direction_copies: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction_copies", tuple(map(copied, self.directions)))

    @classmethod
    def draw(
        cls, op: Op, sample: Sample, word: Word, primal: Sequence[Tensor], engine: str = "func", device: Any = "cpu"
    ) -> Path:
        """The path of a word at a sample, its directions drawn from the sample's seed.

        Args:
            op, sample: what is transformed, and where.
            word: the steps, innermost first.
            primal: the outputs of the op itself at the sample; their shapes are those of the cotangents.
            engine: a name of `ENGINES`.
            device: where the directions are put.
        """
        problem = Problem(op, sample.args, sample.originals)
        likes = signature(word, problem.inputs, primal, problem.passive)
        count = len(problem.fixed) + len(problem.wrt)
        directions = draw_directions(likes[count:], sample.seed, device)
        own = _batched(problem, (sample.args, *sample.slices), likes[:count])
        copies = _batched(problem, (sample.originals, *sample.slices), likes[:count])
        return cls(problem, word, engine, tuple(primal), tuple(own), tuple(directions), tuple(copies))

    def with_op(self, op: Op) -> Path:
        """The same path of an op that differs in its promises alone."""
        return replace(self, problem=Problem(op, self.problem.args, self.problem.formula_args))

    def along(self, word: Word, directions: Sequence[Tensor]) -> Path:
        """The path of another word, without vmap, at the same operands and with given directions."""
        return replace(self, word=word, directions=tuple(directions))

    @property
    def name(self) -> str:
        """The word and who takes its steps, for messages."""
        return path_name(self.word, self.engine)

    @property
    def operands(self) -> tuple[Tensor, ...]:
        """The operands of the transformed function: those of the op, then the directions."""
        return (*self.own, *self.directions)

    @property
    def order(self) -> int:
        """How many steps differentiate."""
        return derivative_order(self.word)

    def names(self) -> list[str]:
        """Names of the outputs, for messages: `out[0]`, `d_weight`, `t_out[0]`."""
        ins = [self.problem.op.label(i) for i in self.problem.wrt]
        outs = output_names(len(self.primal))
        for step in self.word:
            if step == "jvp":
                ins, outs = ins + [f"t_{n}" for n in ins], [f"t_{n}" for n in outs]
            elif step == "vjp":
                ins, outs = ins + [f"c_{n}" for n in outs], [f"d_{n}" for n in ins]
        return outs

    def transformed(self, operation: Callable[..., Any], engine: Engine | None = None) -> Callable[..., Any]:
        """T(F), a function of `operands`, for an `operation` of passive operands and then inputs (`Problem`)."""
        engine = ENGINES[self.engine] if engine is None else engine
        problem = self.problem
        return along(engine, self.word, operation, len(problem.wrt), len(self.primal), len(problem.fixed))

    def formula(self) -> Callable[..., tuple[Any, ...]]:
        """T(f), a function of reading arrays."""
        return self.problem.formula(self.word, len(self.primal))

    def arrays(self) -> list[Any]:
        """The operands as float64 arrays, with the values that they had before any subject ran."""
        return [to_array(t) for t in (*self.copies, *self.direction_copies)]

    def expected(self, name: str = "", *, make_script: ScriptMaker | None = None) -> Expected:
        """The formula along this path at its operands, against which outputs are judged.

        Args:
            name: of the path, where it is not that of the word.
            make_script: makes the lines of a program that computes the outputs (`programs.along.defer_script`).
        """
        wide = any(argument is torch.float64 for argument in self.problem.args)
        native = self.problem.op.documented_by(OWN).native and self.run_native
        return Expected(
            self.formula(), self.arrays(), self.names(), name or self.name, self.order, make_script, wide, native
        )

    def run_native(self) -> tuple[Tensor, ...]:
        """The outputs of torch's own evaluation (`Documented.native`), at the operands of the subject, as they lie.

        It gets a copy of what the subject has written.
        """
        problem, native = self.problem, self.problem.op.documented_by(OWN).native
        assert native is not None
        places = (*problem.fixed, *problem.wrt)
        operation = in_arguments(problem.op.functional(native), tuple(map(copied, problem.formula_args)), places)
        pairs = zip(self.operands, (*self.copies, *self.direction_copies), strict=True)
        operands = (t if same_bits(t, copy) else copied(copy) for t, copy in pairs)
        outputs: tuple[Tensor, ...] = self.transformed(operation)(*operands)
        return outputs


def _batched(problem: Problem, rows: Sequence[Sequence[Any]], likes: Sequence[Like]) -> list[Tensor]:
    """The operands of a problem with the batch axes that `likes` asks for: a different row of arguments in each."""
    out = []
    for i, like in zip((*problem.fixed, *problem.wrt), likes, strict=True):
        tensor = rows[0][i]
        sizes = like.shape[: len(like.shape) - tensor.ndim]
        # A word needs as many slices as the sizes of its vmap steps multiply to, the sample itself included. The table
        # of properties (`Property.slices`) asks for enough of them; with fewer, the reshape below would fail.
        every = [args[i] for args in rows]
        out.append(torch.stack(every[: math.prod(sizes)]).reshape(like.shape) if sizes else tensor)
    return out


def output_names(outputs: int) -> list[str]:
    """Names of an op's own outputs, for messages: `out`, or `out[0]`, `out[1]`, where there are several."""
    return [f"out[{i}]" for i in range(outputs)] if outputs > 1 else ["out"]
