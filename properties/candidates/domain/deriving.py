"""The domain of a spec, derived by asking it in a copy of this process.

The domain proposes and the spec decides: with stand-ins for tensors (FakeTensorMode), which cost no arithmetic, and, as
these are lax, some calls are confirmed with values. If one of them is refused, everything is asked with values.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ....oracles.specs.tracing import READS_VALUES, without_fused_operations
from ...engine.limits import processor_seconds
from ..arguments import CallArguments, Inputs, Tensor
from ..host.calls import floating
from ..inputs import stand_in
from ..results import are_finite, result_of
from ..specification import SpecError, Specification
from .copies import AnswerLog, CopyError, run_in_copies
from .declaration import Declaration, DomainError, read_declaration
from .domain import Domain, fixed_domain, resize_all
from .facts import OF_SQUARES, find_facts
from .integer_roles import Checked, IntegerRole, find_role, find_uses, is_integer, propose
from .options import propose_options, value_of
from .shape_search import OutOfTimeError, ShapeSearch
from .symbols import Axis, ShapeDomain, Shapes

#: What an exception says that a stand-in is the reason of, and not its shape.
_OF_STAND_INS = ("fake tensor", "data-dependent")
#: Processor seconds for all questions.
_SECONDS = 1.0
#: Calls of the derived shapes that are confirmed with values; steps from the least extent that they draw from.
_CONFIRMED, _STEPS = 6, (0, 1, 2, 3, 4, 6, 9)
#: The most elements of given tensors with which questions are asked with values.
_MOST = 2**22
#: Draws of the inputs in which a fact must hold.
_DRAWS = 6
#: What begins the answer where the author's declaration clashes with the spec.
_CLASH = b"!"


class _NeedsValuesError(Exception):
    """Stand-ins cannot answer, because the spec reads values."""


class _DangerousError(Exception):
    """The spec ends its process at other sizes: torch reads or writes beyond memory, perhaps also where it does not."""


def derive_domain(
    spec: Specification, arguments: CallArguments, draw: Callable[[int], Inputs] | None = None,
    seed_of: Callable[[int], int] = int,
) -> Domain:  # fmt: skip
    """The calls that a spec takes.

    Args:
        spec, arguments: the spec, and one call that it takes. draw: (seed) -> other inputs, or None.
        seed_of: (number of a draw) -> its seed.

    Raises:
        DomainError: what the spec's author declares clashes with the given call, or the spec refuses it.
    """
    with FakeTensorMode():  # What torch imports with the first stand-in, each copy would import again.
        torch.empty(1)
    declaration = read_declaration(spec.domain, arguments)
    has_integers = not spec.numpy and any(is_integer(t) for t in arguments.tensors)
    if has_integers and sum(t.numel() for t in arguments.tensors) <= _MOST:
        with contextlib.suppress(SpecError):
            spec.traced_at(arguments, spec.state)  # tells whether it reads values of integers

    def draw_arguments(number: int) -> CallArguments:
        if draw is None:
            raise LookupError("nothing draws inputs")
        return CallArguments.of(draw(seed_of(number)))

    try:
        payload = run_in_copies(lambda log: _Derivation(spec, arguments, draw_arguments, log, declaration).run())
    except CopyError as err:
        return fixed_domain(arguments.shapes, f"the spec was not asked for other calls: {err}")
    except RuntimeError:  # CUDA has started, so there are no copies; stand-ins are asked here.
        payload = _Derivation(spec, arguments, draw_arguments, AnswerLog([]), declaration).run()
    if payload.startswith(_CLASH):
        raise DomainError(payload.removeprefix(_CLASH).decode())
    return replace(msgspec.msgpack.decode(payload, type=Domain), declaration=declaration)


def safe_calls(
    spec: Specification, calls: Iterable[CallArguments], at_once: int = _CONFIRMED
) -> Iterator[CallArguments]:
    """The calls that do not end the process: torch reads beyond memory at some integers that are no indices.

    Calls without integers are safe, as their domain was asked. So many calls are asked in one copy of this process.
    """
    rest = iter(calls)
    while some := list(itertools.islice(rest, at_once)):
        if not any(is_integer(t) for each in some for t in each.tensors):
            yield from some
            continue
        ask = functools.partial(takes_each, spec, [stand_in(each) for each in some])
        with contextlib.suppress(RuntimeError):
            yield from (each for each, accepted in zip(some, run_in_copies(ask), strict=True) if accepted)


def takes_each(spec: Specification, calls: Sequence[CallArguments], log: AnswerLog) -> bytes:
    """A byte for each call: 1 where the spec takes it."""
    with Checked():
        return bytes(log.ask(functools.partial(spec.outputs, each, spec.state)) for each in calls)


class _Derivation:
    """One derivation, in a copy of the process.

    Args:
        spec, arguments: see `derive_domain`. draw: (number) -> arguments; raises where there are none.
        log: asks questions with values. declaration: what the spec's author says.
    """

    def __init__(
        self, spec: Specification, arguments: CallArguments, draw: Callable[[int], CallArguments], log: AnswerLog,
        declaration: Declaration,
    ) -> None:  # fmt: skip
        self._spec, self._log, self._declaration = spec, log, declaration
        self._ends = processor_seconds() + _SECONDS
        self._arguments = arguments.changed(lambda t: t.detach())
        self._tensors, self._shapes = self._arguments.tensors, tuple(arguments.shapes)
        self._draws = [self._arguments, *self._further_draws(draw)]
        self._roles: dict[int, IntegerRole] = {}
        self._facts: dict[int, tuple[str, ...]] = {}
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)

    def run(self) -> bytes:
        """The domain, encoded; or a text that begins with `_CLASH`."""
        with (
            Checked(),
            without_fused_operations(),
        ):
            try:
                return msgspec.msgpack.encode(self._run())
            except DomainError as err:
                return _CLASH + str(err).encode()

    def _run(self) -> Domain:
        few = self._log.asks and sum(t.numel() for t in self._tensors) <= _MOST
        with contextlib.suppress(OutOfTimeError):
            if few:
                self._find_roles()
        self._declare_roles()
        for i, t in enumerate(self._tensors):
            if t.is_floating_point() and (facts := find_facts([each.tensors[i] for each in self._draws])):
                self._facts[i] = facts
        self._facts |= self._declaration.facts
        domain = Domain(self._find_shapes(few), self._roles, self._facts)
        with contextlib.suppress(OutOfTimeError):
            if few:
                domain = replace(domain, proposals=tuple(self._find_proposals()))
                domain = replace(domain, options=dict(self._find_options()))
                self._require_declared(domain.shapes)
        return domain

    # ------------------------------------------------------------------------------------------------------ asking

    def _check_time(self) -> None:
        if processor_seconds() > self._ends:
            raise OutOfTimeError

    def _call(self, leaves_of: CallArguments) -> tuple[Tensor, ...]:
        return self._spec.outputs(leaves_of, self._spec.state)

    def _takes(self, arguments: CallArguments) -> bool:
        """Whether the spec takes these values."""
        self._check_time()
        return self._log.ask(lambda: self._call(arguments))

    def _takes_stand_ins(self, shapes: Shapes) -> bool:
        """Whether the spec takes stand-ins of these shapes.

        Raises:
            _NeedsValuesError: it reads values.
        """
        self._check_time()
        if any(0 in shape for shape in shapes):  # Some functions of torch end their process where nothing is there.
            return self._takes_values(shapes)
        with self._mode:
            tensors = [
                t if is_integer(t) and tuple(t.shape) == shape else torch.empty(shape, dtype=t.dtype, device=t.device)
                for t, shape in zip(self._tensors, shapes, strict=True)
            ]
            try:
                with torch.no_grad():
                    result_of(self._spec.call_at(dict(self._spec.state), self._arguments.with_tensors(tensors).args))
            except Exception as err:
                if isinstance(err, READS_VALUES) or any(words in str(err).lower() for words in _OF_STAND_INS):
                    raise _NeedsValuesError from err
                return False
        return True

    def _takes_values(self, shapes: Shapes) -> bool:
        if sum(map(math.prod, shapes)) > 2 * _MOST:
            return False
        accepts = self._takes(self._at(shapes))
        if self._log.ended and not any(0 in shape for shape in shapes):
            raise _DangerousError
        return accepts

    def _at(self, shapes: Shapes) -> CallArguments:
        return self._arguments.with_tensors(resize_all(self._tensors, shapes, self._roles))

    # ------------------------------------------------------------------------------------------------------ shapes

    def _find_shapes(self, few: bool) -> ShapeDomain:
        try:
            return self._search_shapes(few)
        except _DangerousError:
            return fixed_domain(self._shapes, "the spec ends the process at other sizes").shapes

    def _search_shapes(self, few: bool) -> ShapeDomain:
        ties = [role.into for role in self._roles.values() if role.kind == "offsets" and len(role.into) > 1]
        ties += [
            tuple((i, len(self._shapes[i]) - n) for n in (2, 1))
            for i, facts in self._facts.items()
            if set(facts) & set(OF_SQUARES)
        ]
        reads, axes = self._reads if few else None, self._declaration.terms.items()
        known = [symbol for _, symbol in self._declaration.symbols(self._shapes)]
        fixed = [axis for axis, term in axes if not term.symbol]

        def search(ask: Callable[[Shapes], bool]) -> ShapeDomain:
            return ShapeSearch(ask, self._shapes, reads, ties, known, fixed).run()

        if not self._spec.numpy:
            with contextlib.suppress(_NeedsValuesError, ValueError):
                domain = search(self._takes_stand_ins)
                if not few or self._is_confirmed(domain):
                    return domain
        if not few:
            return fixed_domain(self._shapes, "other calls would have to be made with values, and are large").shapes
        try:
            return search(self._takes_values)
        except (ValueError, OutOfTimeError):
            return fixed_domain(self._shapes, "the spec refuses copies of the given call").shapes

    def _is_confirmed(self, domain: ShapeDomain) -> bool:
        """Whether the spec takes calls of the shapes with values, where stand-ins are taken."""
        rng = random.Random(1)  # The same calls whatever the judgement draws.
        with contextlib.suppress(OutOfTimeError):
            for _ in range(_CONFIRMED if domain.symbols else 0):
                extents = {s: s.least + s.step * rng.choice(_STEPS) for s in domain.symbols}
                shapes = domain.resized(extents, domain.base)
                if self._takes_stand_ins(shapes) and not self._takes_values(shapes):
                    return False
        return True

    def _reads(self, shapes: Shapes, axis: Axis, number: int) -> bool:
        """Whether the outputs change with so many that an axis has last; also where nobody can tell."""
        if sum(map(math.prod, shapes)) > _MOST:
            return True
        (i, d), arguments = axis, self._at(shapes)
        last, first = (arguments.tensors[i].narrow(d, n, number) for n in (shapes[i][d] - number, 0))
        if is_integer(last) and torch.equal(last, first):
            return True

        def ask() -> None:
            if is_integer(last):
                other = first
            else:
                other = ~last if last.dtype == torch.bool else (last.float() + 0.37).to(last.dtype)
            tensors = list(arguments.tensors)
            tensors[i] = tensors[i].clone()
            tensors[i].narrow(d, shapes[i][d] - number, number).copy_(other)
            try:
                before, after = self._call(arguments), self._call(arguments.with_tensors(tensors))
            except SpecError:
                return
            if all(map(_are_same, before, after)):
                raise ValueError("it is not read")

        self._check_time()
        return self._log.ask(ask)

    def _require_declared(self, domain: ShapeDomain) -> None:
        """DomainError where the spec refuses a call that is declared: another extent of a symbol."""
        for name, symbol in self._declaration.symbols(self._shapes):
            own = next((s for s in domain.symbols if symbol.moves[0][0] in s.axes), None)
            if own is None:
                continue
            shapes = domain.resized({own: domain.extent(own) + max(own.step, 1)})
            if self._declaration.allows(shapes) and not self._takes_values(shapes):
                texts = " ".join(str(list(shape)) for shape in shapes)
                raise DomainError(f"domain: got another {name}: {texts}, need calls that {self._spec.name} takes")

    # ---------------------------------------------------------------------------------------------------- integers

    def _find_roles(self) -> None:
        uses: dict[int, set[str]] = {}
        if any(map(is_integer, self._tensors)) and not self._spec.numpy:
            with contextlib.suppress(Exception):
                uses = find_uses(lambda tensors: self._call(self._arguments.with_tensors(tensors)), self._tensors)
        for i, tensor in enumerate(self._tensors):
            if is_integer(tensor):
                draws = [each.tensors[i] for each in self._draws]
                extents = [((j, d), n) for j, s in enumerate(self._shapes) if j != i for d, n in enumerate(s)]
                self._roles[i] = find_role(functools.partial(self._takes_at, i), draws, uses.get(i, set()), extents)

    def _declare_roles(self) -> None:
        for i, (kind, use, term) in self._declaration.integers.items():
            axes, limit = self._declaration.axes_of(term), term.at(self._declaration.values(self._shapes))
            role = replace(self._roles.get(i, IntegerRole(kind)), kind=kind, rises=kind == "offsets")
            into, sums_to = ((), axes) if use == "summing to" else (axes, ())
            below = limit if use == "below" else role.below
            self._roles[i] = replace(role, into=into, sums_to=sums_to, below=below) if use else role

    def _takes_at(self, place: int, values: Tensor) -> bool:
        """Whether the spec takes other values of one tensor."""
        return self._takes(self._with(place, values))

    def _with(self, place: int, values: Tensor) -> CallArguments:
        tensors = list(self._tensors)
        tensors[place] = values
        return self._arguments.with_tensors(tensors)

    def _find_proposals(self) -> Iterator[tuple[int, str]]:
        for i, role in self._roles.items():
            for word, values in propose(role, self._tensors[i]):
                if self._gives_numbers(self._with(i, values)):
                    yield i, word

    # ------------------------------------------------------------------------------------------- options and facts

    def _find_options(self) -> Iterator[tuple[int, tuple[Any, ...]]]:
        leaves, rng = self._arguments.leaves, torch.Generator().manual_seed(0)
        shapes = list(dict.fromkeys([*self._shapes, *(tuple(y.shape) for y in self._call(self._arguments))]))

        def fill(zeros: Tensor) -> Tensor:
            return torch.randn(zeros.shape, generator=rng).to(zeros.dtype)

        for i, leaf in enumerate(leaves):
            if isinstance(leaf, Tensor):
                continue
            if i in self._declaration.options:
                yield i, self._declaration.options[i]
                continue
            options = []
            for option in propose_options(leaf, shapes):
                if self._gives_numbers(with_leaf(self._arguments, i, value_of(option, leaves, fill))):
                    options.append(option)
            if options:
                yield i, tuple(options[:3])

    def _gives_numbers(self, arguments: CallArguments) -> bool:
        """Whether the spec takes a call, and gives finite numbers there."""

        def ask() -> None:
            if not are_finite(floating(self._call(arguments))):
                raise ValueError("it gives no number")

        self._check_time()
        return self._log.ask(ask)

    def _further_draws(self, draw: Callable[[int], CallArguments]) -> Iterator[CallArguments]:
        """Further draws of the inputs, of the structure of the given ones."""
        if not self._log.asks or sum(t.numel() for t in self._tensors) > _MOST // _DRAWS:
            return
        kinds = [(t.dtype, t.ndim) for t in self._tensors]
        for number in range(1, _DRAWS):
            with contextlib.suppress(Exception):
                other = draw(number).changed(lambda t: t.detach())
                if [(t.dtype, t.ndim) for t in other.tensors] == kinds:
                    yield other


def with_leaf(arguments: CallArguments, place: int, value: Any) -> CallArguments:
    """The arguments with another value of one leaf."""
    leaves = list(arguments.leaves)
    leaves[place] = value
    return CallArguments(tuple(leaves), arguments.structure, arguments.names)


def _are_same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one.double().nan_to_num(7.0), other.double().nan_to_num(7.0))
