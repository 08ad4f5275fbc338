"""What is judged: the declaration of an op, and one input of it."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Unpack

import numpy as np
import torch

from ...reference.algorithms import parameters_of, require_names
from ...reference.dtypes import dtype_name as dtype_name
from ..bound.contract import EXP2
from .copies import copied, moved_to
from .documented import Documented
from .placement import COMPILED as COMPILED
from .placement import EXECUTED as EXECUTED
from .placement import INTERPRETED as INTERPRETED
from .placement import KERNELS as KERNELS
from .placement import OWN as OWN
from .placement import Devices, KernelRequest, Production, Ranks
from .promises import ArithmeticPromises, MemoryPromises, PromiseKeywords
from .transforms import with_implied

Tensor = torch.Tensor
Subject = Callable[..., Any]


def arithmetic_of(subject: str, device: str) -> str:
    """The device whose arithmetic a subject may use: kernels are a GPU's, on a CPU too."""
    return "cuda" if subject in KERNELS else device


class Stream(enum.IntEnum):
    """The streams of random numbers, one of each check. With other numbers an old case would get other choices."""

    LAYOUT = 3
    VMAP = 7
    RANKS = 8
    DEVICES = 9
    MEMORY = 10
    SPECIAL = 11
    NEEDS = 12
    SLICES = 13
    LAW = 17
    WORD = 39
    JACOBIAN = 40
    NEST = 41
    DIRECTIONS = 0xD1


#: The number of turns (`Sample.turn`): a multiple of the number of ways of SPECIAL, and of that of SIZE.
TURNS = 48


@dataclass(frozen=True)
class Sample:
    """One input: arguments in the order of the op's signature, and everything else a check needs.

    Attributes:
        args: tensors, numbers, tuples and None.
        seed: of the bulk data; tangents and cotangents are drawn from it.
        regime: name of the input regime.
        slices: further arguments of the same structure, one per slice of a batch.
        others: further arguments of other structures: of other shapes, dtypes and numbers.
        originals: copies of the arguments, at which the formula is read: no subject that writes its input reaches them.
    """

    args: tuple[Any, ...]
    seed: int = 0
    regime: str = "benign"
    slices: tuple[tuple[Any, ...], ...] = ()
    others: tuple[tuple[Any, ...], ...] = ()
    originals: tuple[Any, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "originals", tuple(map(copied, self.args)))

    @property
    def turn(self) -> int:
        """The number of this sample's way of asking, below `TURNS`: the samples of a cell take the ways in turn."""
        return self.seed % TURNS

    def generator(self, stream: Stream) -> Any:
        """A NumPy generator that depends on the seed and on the arguments: Hypothesis repeats seeds, not samples."""
        # A checksum is used, because Python's hash of text differs between processes, and a repeated case must draw the
        # same numbers in another process.
        return np.random.default_rng([self.seed, stream, zlib.crc32(repr(self.args).encode())])

    def seeded(self, stream: Stream, *more: int) -> Any:
        """A NumPy generator that depends on the seed alone, so that a sample that shrinks keeps its choices."""
        return np.random.default_rng([self.seed, stream, *more])

    def with_args(self, args: Sequence[Any]) -> Sample:
        return replace(self, args=tuple(args))

    def on(self, device: str) -> Sample:
        """The same with its tensors on a device; itself where they are there, so that `kept` stays as it was."""
        if all(value.device.type == device for value in self.args if isinstance(value, Tensor)):
            return self
        slices, others = (tuple(moved_to(device, args) for args in rows) for rows in (self.slices, self.others))
        return replace(self, args=moved_to(device, self.args), slices=slices, others=others)


@dataclass(frozen=True)
class Draft:
    """The structure of a sample: shapes, dtypes, regime, numbers; `fill` adds the bulk data from a generator.

    Attributes:
        fill: (generator) -> the arguments in order; for `declare`, also by name.
        regime: name of the input regime; names of several, joined by ", ".
        extents: of the axes that the op tells apart, by name ("rows", "channels"). Large samples are chosen by them,
            so that each axis is the long one in some sample.
        others: drafts of other structures, for checks that call the op with several in turn.
        values: (name, value) of every choice that made the draft, as text: ("weight", "None"). The samples of a cell
            are picked by these values.
        declared: by the same names, all values that could have been chosen.
    """

    fill: Callable[[Any], Any]
    regime: str
    extents: Mapping[str, int] = field(default_factory=dict)
    others: tuple[Draft, ...] = ()
    values: frozenset[tuple[str, str]] = frozenset()
    declared: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def sample(self, seed: int, slices: int = 0) -> Sample:
        """The sample of a seed; slice i is filled from (seed, i + 1)."""
        # Each slice has a generator of its own, so more slices begin with the same ones.
        args, *rest = (self.fill(np.random.default_rng([seed, i])) for i in range(slices + 1))
        others = tuple(draft.fill(np.random.default_rng([seed, 0, i])) for i, draft in enumerate(self.others))
        return Sample(args, seed, self.regime, tuple(rest), others)


@dataclass(frozen=True)
class Law:
    """A metamorphic relation: calls of the op, or of a derivative of it, whose results must agree.

    Attributes:
        name: the relation in a few words.
        calls: (args of the sample, rng) -> args of every call to make, or None where the law does not apply. It and
            `relate` get tensors of the host, on whatever device the op is judged.
        relate: (args of the sample, *outputs of each call) -> the two sides that must be equal, as tuples of tensors.
            Where the law is not exact, `relate` gets float64 and must be linear in the outputs.
        exact: whether the sides must be equal bit for bit; else within what the calls' bounds allow together.
        word: the derivative that is called, "jvp" and "vjp" steps innermost first; every call gets equal directions.
    """

    name: str
    calls: Callable[[tuple[Any, ...], Any], Sequence[tuple[Any, ...]] | None]
    relate: Callable[..., tuple[tuple[Any, ...], tuple[Any, ...]]]
    exact: bool
    word: tuple[str, ...] = ()

    @classmethod
    def pair(
        cls, name: str, transform: Callable[[tuple[Any, ...], Any], tuple[Any, ...] | None],
        relate: Callable[[tuple[Any, ...]], tuple[Any, ...]], exact: bool,
    ) -> Law:  # fmt: skip
        """The relation of two calls: f(transform(args)) = relate(f(args)); no law where `transform` gives None."""

        def calls(args: tuple[Any, ...], rng: Any) -> Sequence[tuple[Any, ...]] | None:
            changed = transform(args, rng)
            return None if changed is None else (args, changed)

        return cls(name, calls, lambda args, first, second: (second, relate(first)), exact)


@dataclass(frozen=True)
class Refusal:
    """Documented invalid input: `mutate` makes it from valid arguments; `error` and `mentions` must be raised.

    Where it is `short`, a tensor has fewer elements than are read or written. An implementation that does not promise
    to refuse it is not called with it, because it may write where other memory is. Where it is `in_elements`, a GPU
    asserts it after the call, which ends all further work of a process there, so it is asked on the CPU alone.
    """

    name: str
    mutate: Callable[[tuple[Any, ...]], tuple[Any, ...] | None]
    error: type[Exception]
    mentions: tuple[str, ...]
    short: bool = False
    in_elements: bool = False

    def ends_work_on(self, device: str) -> bool:
        return self.in_elements and device != "cpu"


@dataclass(frozen=True)
class Slices:
    """Where an op treats slices one by one, so that each has the same bits whatever others there are.

    Attributes:
        arguments: the axis of slices, by the name of an argument; arguments without one are shared by all slices.
        outputs: the axis of slices of every output that is not None; None where an output has none.
        counts: names of int arguments that say how many slices there are.
        required: the values that INV gives other arguments, so that it holds. least: the smallest integers. By name.
    """

    arguments: Mapping[str, int]
    outputs: tuple[int | None, ...]
    counts: tuple[str, ...] = ()
    required: Mapping[str, Any] = field(default_factory=dict)
    least: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Promises:
    """The promises of an op besides its values.

    Attributes:
        dtypes: (args) -> the dtype of every output that is not None.
        order: of the derivative that the op itself is; 1 for a backward op.
        nesting: the depth up to which WORD asks about every word of transforms, one by one.
        without: names of `transforms.OFFERS` that the op does not offer; questions that need one are not asked. Without
            "func" there is no "vmap" either, and derivatives are taken by autograd alone.
        invariant: (args, device) -> where slices are treated one by one (INV), or None where they are not. The device
            is "cuda" for kernels on a CPU, too, and "" where their bits may differ. Without it nothing is promised.
        specials: whether NaN, infinities, zeros and the largest numbers are in the domain of every argument.
        one_graph: whether torch.compile and torch.export take the op whole; else the graph may break around it.
        error_names: of the op; each of its errors begins with one of them and a colon; without names it need not.
        memory, arithmetic: see those records.
    """

    dtypes: Callable[[tuple[Any, ...]], tuple[torch.dtype, ...]]
    order: int = 0
    nesting: int = 0
    without: frozenset[str] = frozenset()
    invariant: Callable[[tuple[Any, ...], str], Slices | None] | None = None
    specials: bool = True
    one_graph: bool = True
    error_names: tuple[str, ...] = ()
    memory: MemoryPromises = field(default_factory=MemoryPromises)
    arithmetic: ArithmeticPromises = field(default_factory=ArithmeticPromises)

    def __post_init__(self) -> None:
        object.__setattr__(self, "without", with_implied(self.without))


class Keywords(PromiseKeywords, total=False):
    """What `declare` and `Op.changed` take by name: fields of `Promises`, of the records in it, and of `Production`.

    For `declare`, functions get arguments by name: `saved` also `wanted`, the names of those that require grad, and
    `invariant` also `device`; `aliases` gives names ("args[1]" for the second of `*args`); `kernels` may be True for
    those of the op's own name.
    """

    order: int
    nesting: int
    without: frozenset[str]
    invariant: Callable[..., Slices | None] | None
    specials: bool
    one_graph: bool
    error_names: tuple[str, ...]
    kernels: str | bool
    example: Callable[[Tensor], Tensor] | None
    ranks: Ranks | None
    devices: Devices | None
    request: KernelRequest


@dataclass(frozen=True)
class Op:
    """The declaration of an op: one production op, one formula, one record.

    Attributes:
        name: the public name.
        reference: the formula; its signature is the op's, in NumPy arrays.
        subjects: implementations by name; "opassay" is the production op. Where there is a "torch", there is also
            "compiled": what torch.compile with inductor makes of it.
        samples: (dtype name, kind) -> strategy of `Draft`s. Kinds are "ordinary"; "empty", where some tensor has no
            elements; "integers", where some tensor holds small integers times one power of two; and "large", where
            some tensor has more than 72 elements, and one axis is mostly the long one (`strategies.shapes`). A kind
            that cannot be offered raises `oracles.verdicts.violation.Unsupported`.
        differentiable: names of the arguments that the op is differentiable in.
        laws, refusals, promises, production: see those records.
        mutates: names of the arguments that a call writes. They are judged as outputs: what is judged is the function
            that copies them, calls the subject, and returns the copies after its outputs; so does the formula.
        resolved: (args) -> the arguments that the formula takes in place of these: a formula does not see dtypes, so a
            default that depends on one is a number there.
        documented: by subject, what it documents of itself where that is less than what the op promises.
    """

    name: str
    reference: Callable[..., Any]
    subjects: Mapping[str, Subject]
    samples: Callable[..., Any]
    differentiable: tuple[str, ...]
    promises: Promises
    laws: tuple[Law, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    mutates: tuple[str, ...] = ()
    production: Production = field(default_factory=Production)
    resolved: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda args: args
    documented: Mapping[str, Documented] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_names(self.promises.arithmetic.algorithms, self.reference, (EXP2,))

    def changed(self, **changes: Unpack[Keywords]) -> Op:
        """The same op with other promises, or another production."""
        own: dict[str, Any] = dict(changes)
        records: tuple[Any, ...] = (self.promises.memory, self.promises.arithmetic, self.production)
        memory, arithmetic, production = (
            replace(record, **{of.name: own.pop(of.name) for of in fields(record) if of.name in own})
            for record in records
        )
        promises = replace(self.promises, memory=memory, arithmetic=arithmetic, **own)
        return replace(self, promises=promises, production=production)

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the arguments, in order; that of `*args`, any number of arguments, is the last."""
        return parameters_of(self.reference)[0]

    def argument(self, position: int) -> str:
        """The declared name of the argument at a position: "args" for each of `*args`."""
        names, variadic = parameters_of(self.reference)
        return names[min(position, len(names) - 1)] if variadic else names[position]

    def label(self, position: int) -> str:
        """The name of the argument at a position, for messages: "args[1]" for the second of `*args`."""
        names, variadic = parameters_of(self.reference)
        first = len(names) - 1
        return f"{names[-1]}[{position - first}]" if variadic and position >= first else names[position]

    def differentiable_positions(self, args: Sequence[Any]) -> tuple[int, ...]:
        """Positions of the arguments that are differentiable and given."""
        return tuple(i for i, a in enumerate(args) if isinstance(a, Tensor) and self.argument(i) in self.differentiable)

    def has_subject(self, name: str) -> bool:
        """Whether the op declares a subject of this name, or one that it can be made from."""
        made_from = {COMPILED: "torch" in self.subjects, **dict.fromkeys(KERNELS, bool(self.production.kernels))}
        return name in self.subjects or made_from.get(name, False)

    def implementation(self, name: str) -> Subject:
        """The implementation of that name as it is; for "compiled", the function that is to be compiled."""
        return self.subjects[OWN if name in KERNELS else "torch" if self.is_compiled(name) else name]

    def subject(self, name: str) -> Subject:
        """The implementation of that name, `functional`."""
        return self.functional(self.implementation(name))

    def mutated_positions(self, args: Sequence[Any]) -> tuple[int, ...]:
        """Positions of the arguments that a call writes; an argument that is None is not among them."""
        return tuple(i for i, a in enumerate(args) if self.argument(i) in self.mutates and a is not None)

    def is_compiled(self, name: str) -> bool:
        """Whether every path of the subject is compiled before it is judged."""
        # An op may declare an implementation of its own under this name; that one is judged as it is.
        return name == COMPILED and name not in self.subjects

    def documented_by(self, name: str) -> Documented:
        """What a subject documents of itself; the compiled one documents what "torch" does."""
        return self.documented.get("torch" if self.is_compiled(name) else name, Documented())

    def functional(self, subject: Subject, copy: Callable[[Tensor], Tensor] = torch.clone) -> Subject:
        """A subject as a function without side effects: it writes to copies of arguments and returns them as well.

        Args:
            subject: the implementation. copy: makes the copies, which come after the outputs.
        """
        if not self.mutates:
            return subject
        positions = [i for i, name in enumerate(self.arguments) if name in self.mutates]

        def call(*args: Any) -> tuple[Any, ...]:
            arguments = list(args)
            for i in positions:
                arguments[i] = None if args[i] is None else copy(args[i])
            outputs = subject(*arguments)
            outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            return (*outputs, *(arguments[i] for i in positions))

        return call


def is_float(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point


def to_array(tensor: Tensor) -> Any:
    """The values of a floating tensor as float64, exactly."""
    # Forward AD makes ZeroTensors, which have no memory, so an array is made of a copy. `numpy(force=True)` of a
    # ZeroTensor that is not contiguous would give memory that was never written (torch 2.13).
    readable = tensor.detach().clone() if tensor._is_zerotensor() else tensor
    return readable.to("cpu", torch.float64).numpy(force=True)


def flat_outputs(outputs: Any) -> tuple[Any, ...]:
    """The outputs that are judged, in order: all but None and tensors of integers, bytes or truth values.

    An op gives None for an output that was masked out. A tensor of another dtype than a floating one has no error that
    could be bounded; a formula returns None in its place.
    """
    items = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return tuple(item for item in items if item is not None and (is_float(item) or not isinstance(item, Tensor)))
