"""The domain of a spec, derived by asking it in a copy of this process.

The domain proposes and the spec decides, with values: at sizes as small as the spec takes, where a call costs some
microseconds an operation. Stand-ins for tensors (FakeTensorMode) are asked only where no copy can be, or a call with
values is too much work: they are lax, and an operation takes ten times as long with them.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ....oracles.process.logs import FAKE_TENSORS, silent
from ....oracles.specs.autograd_calls import run_with_own_derivatives
from ....oracles.specs.tracing import READS_VALUES, without_fused_operations
from ...engine.limits import processor_seconds
from ..arguments import CallArguments, Inputs, Tensor, copied_state, defaults_of, floating
from ..results import are_finite, result_of
from ..specification import SpecError, Specification
from .copies import AnswerLog, CopyError, run_in_copies
from .declaration import Declaration, find_options, read_declaration
from .domain import Domain, fixed_domain, resize_all
from .facts import FEW, OF_SQUARES, SYMMETRIC, UPPER, can_hold, facts_of, find_facts, find_ranges, find_sign
from .input_rules import DomainError
from .integer_roles import Checked, IntegerRole, find_role, find_uses, is_integer, others_of, propose, with_largest
from .shape_search import OutOfTimeError, ShapeSearch, shrink
from .symbols import Axis, ShapeDomain, Shapes, shapes_of, sizes_of, with_shapes

#: What an exception says that a stand-in is the reason of, and not its shape.
_OF_STAND_INS = ("fake tensor", "data-dependent")
#: Processor seconds for the questions of integers, those of shapes, and all others; for those of shapes also so many
#: calls, of at most so many seconds: a network has few axes, and each question takes long.
_SECONDS, _CALLS, _MOST_SECONDS = 1.0, 24, 0.3
#: The most elements: of a call with values, of one beyond extents, of one asked in two sizes; and seconds beyond.
_MOST, _MOST_TOPS, _SMALL, _AT_ONCE = 2**24, 2**16, 2**10, 0.02
#: Draws of the inputs in which a fact must hold, and the most elements of all of them.
_DRAWS, _MOST_DRAWN = 6, 2**22
#: What begins the answer where the author's declaration clashes with the spec.
_CLASH = b"!"


def derive_domain(
    spec: Specification, arguments: CallArguments, draw: Callable[[int], Inputs] | None = None,
    seed_of: Callable[[int], int] = int,
) -> Domain:  # fmt: skip
    """The calls that a spec takes, beside one that is given, and what `draw` gives of the seeds of further numbers.

    Raises:
        DomainError: what the spec's author declares clashes with the given call, or the spec refuses it.
    """
    declaration = read_declaration(spec.domain, arguments.with_defaults(defaults_of(spec.function, arguments.args)))
    few = sum(t.numel() for t in arguments.tensors) <= _MOST_DRAWN
    if few and not spec.numpy and any(map(is_integer, arguments.tensors)):
        with contextlib.suppress(SpecError):
            spec.traced_at(arguments, spec.state)  # tells whether it reads values of integers
    call_of = None if draw is None else lambda number: CallArguments.of(draw(seed_of(number)))
    try:
        payload = run_in_copies(lambda log: _Derivation(spec, arguments, call_of, log, declaration).run())
    except CopyError as err:
        return fixed_domain(arguments.shapes, f"the spec was not asked for other calls: {err}")
    except RuntimeError:  # CUDA has started, so there are no copies; stand-ins are asked here.
        payload = _Derivation(spec, arguments, call_of, AnswerLog([]), declaration).run()
    if payload.startswith(_CLASH):
        raise DomainError(payload.removeprefix(_CLASH).decode())
    return replace(msgspec.msgpack.decode(payload, type=Domain), declaration=declaration)


class _Derivation:
    """One derivation, in a copy of the process; `draw` takes the number of a draw, and `log` asks with values."""

    def __init__(
        self, spec: Specification, arguments: CallArguments, draw: Callable[[int], CallArguments] | None,
        log: AnswerLog, declaration: Declaration,
    ) -> None:  # fmt: skip
        self._spec, self._log, self._declaration = spec, log, declaration
        self._writes: list[str | int] = [*spec.state]
        self._arguments = arguments.changed(lambda t: t.detach())
        self._tensors, self._shapes = self._arguments.tensors, shapes_of(arguments)
        self._draws = [self._arguments, *self._further_draws(draw)]
        self._roles: dict[int, IntegerRole] = {}
        self._facts: dict[int, tuple[str, ...]] = {}
        self._small = self._arguments  # the call around which questions are asked
        self._unread: dict[int, int | None] = {}

    def run(self) -> bytes:
        """The domain, encoded; or a text that begins with `_CLASH`."""
        with Checked(), without_fused_operations():
            try:
                return msgspec.msgpack.encode(self._run())
            except DomainError as err:
                return _CLASH + str(err).encode()

    def _run(self) -> Domain:
        few = self._log.asks and sum(t.numel() for t in self._tensors) <= _MOST
        with self._some_time():
            if few:
                self._find_roles()
        self._declare_roles()
        for i, t in enumerate(self._tensors):
            draws = [each.tensors[i] for each in self._draws]
            if t.is_floating_point() and (facts := find_facts(draws) or self._find_half(i, draws)):
                self._facts[i] = facts
        self._facts |= self._declaration.facts
        shapes = self._find_shapes()
        with self._some_time():
            for i, t in enumerate(self._small.tensors):
                if t.is_floating_point() and i not in self._facts:
                    draws = [each.tensors[i].double() for each in self._draws]
                    facts = find_ranges(functools.partial(self._takes_at, i), t.double(), draws)
                    self._facts |= {i: facts} if facts else {}
        defaults = defaults_of(self._spec.function, self._arguments.args)
        others = [i for i, t in enumerate(self._tensors) if t.is_floating_point() and i not in self._facts]
        signs = {i: words for i in others if (words := find_sign([each.tensors[i] for each in self._draws]))}
        domain, self._small = Domain(shapes, self._roles, self._facts, signs, defaults=defaults), self._arguments
        with self._some_time():
            if few:
                domain = replace(domain, proposals=tuple(self._find_proposals()))
                for place, values in self._find_options(domain):  # those before there is no more time
                    domain = replace(domain, options={**domain.options, place: values})
                self._require_declared(domain.shapes)
        return domain

    @contextlib.contextmanager
    def _some_time(self) -> Iterator[None]:
        """Give the questions in the block some time, and none of them an answer after it."""
        self._ends = processor_seconds() + _SECONDS
        with contextlib.suppress(OutOfTimeError):
            yield

    def _check_time(self) -> None:
        if processor_seconds() > self._ends:
            raise OutOfTimeError

    def _call(self, arguments: CallArguments) -> tuple[Tensor, ...]:
        """The outputs. Of the state only what calls write is copied, because a network has millions of parameters."""
        state, copies = self._spec.state, arguments.copied()
        own = copied_state({name: state[name] for name in self._writes if isinstance(name, str)})
        with torch.no_grad():
            result = run_with_own_derivatives(lambda: result_of(self._spec.call_at({**state, **own}, copies.args)))
        self._writes = [name for name, t in own.items() if t._version]
        self._writes += [i for i, t in enumerate(copies.tensors) if t._version]
        return result.tensors

    def _takes(self, arguments: CallArguments, numbers: bool = False, writes: Collection[Any] | None = None) -> bool:
        """Whether the spec takes these values, and perhaps gives finite numbers there, and writes nothing else."""

        def ask() -> None:
            outputs = self._call(arguments)
            for i, k in self._unread.items():
                if k is not None and outputs[k].shape != arguments.tensors[i].shape:
                    raise ValueError("a destination has another shape")
            more = set(self._writes).difference(self._writes if writes is None else writes)
            if more or (numbers and not are_finite(floating(outputs))):
                raise ValueError("it gives no number, or writes")

        self._check_time()
        return self._log.ask(ask)

    def _takes_stand_ins(self, shapes: Shapes) -> bool:
        """Whether the spec takes stand-ins of these shapes; ValueError where it reads values."""
        self._check_time()
        if any(0 in shape for shape in shapes):  # Some functions of torch end their process where nothing is there.
            return self._takes_values(shapes)
        with silent(FAKE_TENSORS), self._mode, torch.no_grad():
            tensors = [
                t if is_integer(t) and tuple(t.shape) == shape else torch.empty(shape, dtype=t.dtype, device=t.device)
                for t, shape in zip(self._tensors, shapes, strict=False)
            ]
            try:
                arguments = with_shapes(self._arguments, tensors, shapes)
                result_of(self._spec.call_at(dict(self._spec.state), arguments.args))
            except Exception as err:
                if isinstance(err, READS_VALUES) or any(words in str(err).lower() for words in _OF_STAND_INS):
                    raise ValueError from err
                return False
        return True

    @functools.cached_property
    def _mode(self) -> FakeTensorMode:
        return FakeTensorMode(allow_non_fake_inputs=True)

    def _takes_values(self, shapes: Shapes) -> bool:
        opened = [shapes[i] for i, role in self._roles.items() if role.kind == "offsets" and not role.span[0]]
        if {(0,), (1,)} & {*opened} or sum(map(math.prod, shapes)) > 2 * _MOST:  # a single 0 is no group
            return False
        if not all(can_hold(facts, shapes[i]) for i, facts in self._facts.items()):
            return False
        accepts = self._takes(self._at(shapes))
        if self._log.ended and not any(0 in shape for shape in shapes):
            raise CopyError("torch reads or writes beyond memory, perhaps also where it does not end the process")
        return accepts

    def _at(self, shapes: Shapes) -> CallArguments:
        resized = with_shapes(self._arguments, resize_all(self._small.tensors, shapes, self._roles), shapes)
        return self._declaration.settle(resized)

    def _find_half(self, place: int, draws: Sequence[Tensor]) -> tuple[str, ...]:
        """What holds of few numbers: of a matrix that the spec reads only one half of."""
        t = draws[0]
        words = tuple(word for word in facts_of(draws) if word in OF_SQUARES) if 1 < t.numel() < FEW else ()
        words = words[:-2] if words[:1] == (SYMMETRIC,) and words[-1] == UPPER else words  # a diagonal one by chance
        for cut in (torch.triu, lambda ones, d: ones.tril(-d)) if words else ():
            other = (t.double() + 3 * cut(torch.ones(t.shape), 1)).to(t.dtype)
            if not self._differs(self._arguments, self._with(place, other)):
                return words
        return ()

    def _find_unread(self) -> Iterator[tuple[int, int | None]]:
        """Tensors of which no number is read, each with the output of its shape: a candidate may write it there."""
        tensors, outputs = self._small.tensors, self._call(self._small)
        other = self._small.changed(lambda t: others_of(t) if t.is_floating_point() else t)  # 0 hides others
        for i, t in enumerate(tensors if len(tensors) > 1 else ()):
            back = other.with_tensors([t if i == n else x for n, x in enumerate(other.tensors)])
            pairs = (self._small, self._with(i, others_of(t))), (other, back)
            if t.numel() and not any(self._differs(*pair) for pair in pairs):
                yield i, next((k for k, y in enumerate(outputs) if y.shape == t.shape), None)

    def _reads(self, shapes: Shapes, axis: Axis, number: int) -> bool:
        """Whether the outputs change with so many that an axis has last; also where nobody can tell."""
        indexed = any(axis in role.into for role in self._roles.values() if role.below is not None and not role.rises)
        if indexed or sum(map(math.prod, shapes)) > _MOST_DRAWN:  # An index would say where it is read.
            return True
        (i, d), arguments = axis, self._at(shapes)
        fewer = [[n - number * ((j, e) == axis) for e, n in enumerate(shape)] for j, shape in enumerate(shapes)]
        differs = self._differs(arguments, self._at(tuple(map(tuple, fewer))))
        if differs or i >= len(self._tensors):  # What is not read may be the shape of an output.
            return differs
        *parts, last = (arguments.tensors[i].narrow(d, n, number) for n in range(shapes[i][d] - number + 1))
        if (free := i in self._roles and self._roles[i].kind == "numbers") or not is_integer(last):
            top = torch.iinfo(last.dtype).max // 2 if free else math.nan
            parts = [others_of(last), torch.full_like(last, top)]  # not the least, say
        others = [part for part in parts if not torch.equal(part, last)][:2]
        tensors, first = arguments.tensors, arguments.tensors[i].narrow(d, 0, shapes[i][d] - number)
        more = ([torch.cat([first, part], d) if j == i else t for j, t in enumerate(tensors)] for part in others)
        return not others or any(self._differs(arguments, arguments.with_tensors(each)) for each in more)

    def _differs(self, one: CallArguments, other: CallArguments) -> bool:
        """Whether the spec gives other values at the second call, or refuses it."""

        def ask() -> None:
            try:
                before, after = self._call(one), self._call(other)
            except Exception:  # of the spec, whatever it raises: what it refuses cannot be told from what it reads
                return
            pairs = zip(before, after, strict=True)
            if all(torch.equal(*(y.double().nan_to_num(7.0) for y in pair)) for pair in pairs):
                raise ValueError("it is not read")

        self._check_time()
        return self._log.ask(ask)

    def _takes_beyond(self, place: int, below: int, axis: Axis) -> bool:
        """Whether the spec takes the least value that it refuses where an axis is longer by one."""
        shapes = [[n + ((j, d) == axis) for d, n in enumerate(shape)] for j, shape in enumerate(self._shapes)]
        tensors = resize_all(self._tensors, tuple(map(tuple, shapes)))
        tensors[place] = with_largest(tensors[place], below)
        return self._takes(self._arguments.with_tensors(tensors))

    def _takes_at(self, place: int, values: Tensor) -> bool:
        """Whether the spec takes other values of one tensor."""
        return self._takes(self._with(place, values.to(self._tensors[place].dtype)))

    def _with(self, place: int, values: Tensor) -> CallArguments:
        return self._small.with_tensors([values if i == place else t for i, t in enumerate(self._small.tensors)])

    def _find_shapes(self) -> ShapeDomain:
        note = "other calls would have to be made with values, and are large"
        for search in [self._search_with_values] * self._log.asks + [self._search] * (not self._spec.numpy):
            with self._some_time(), contextlib.suppress(ValueError):
                try:
                    domain = search()
                except CopyError:
                    note = "the spec ends the process at other sizes"
                    break
                if domain is not None:
                    return domain
        return fixed_domain(self._arguments.shapes, note).shapes

    def _search_with_values(self) -> ShapeDomain | None:
        self._give_time(self._shapes)
        count, domains = sum(map(math.prod, self._shapes)), list[ShapeDomain]()
        small = self._shapes if self._declaration.terms else shrink(self._takes_values, self._shapes)
        tops = self._shapes if count <= _MOST_TOPS else small
        tops = tops if max(map(self._give_time, (small, tops))) <= _AT_ONCE else ()
        for start in dict.fromkeys((small, self._shapes)):
            self._small = with_shapes(self._arguments, resize_all(self._tensors, start, self._roles), start)
            with contextlib.suppress(ValueError, OutOfTimeError, *[CopyError] * len(domains)):
                self._unread = dict(self._find_unread())
                domains += filter(None, [self._search(start, tops).from_start(self._shapes)])
            if domains and (not domains[0].constant or count > _SMALL):  # Small windows leave little room.
                break
        return min(domains, key=lambda domain: len(domain.constant), default=None)

    def _give_time(self, shapes: Shapes) -> float:
        before = processor_seconds()
        self._takes_values(shapes)
        self._ends += _CALLS * min(seconds := processor_seconds() - before, _MOST_SECONDS)
        return seconds

    def _search(self, start: Shapes = (), tops: Shapes = ()) -> ShapeDomain:
        """The symbols, found with values around `start`, or with stand-ins around the given call."""
        ties = [role.into for role in self._roles.values() if role.kind == "offsets" and len(role.into) > 1]
        squares = [i for i, facts in self._facts.items() if set(facts) & set(OF_SQUARES)]
        ties += [tuple((i, len(self._shapes[i]) - n) for n in (2, 1)) for i in squares]
        known = [symbol for _, symbol in self._declaration.symbols(self._shapes)]
        fixed = [axis for axis, term in self._declaration.terms.items() if not term.symbol]
        fixed += [(i, d) for i, k in self._unread.items() if k is None for d in range(len(self._shapes[i]))]
        ask, reads = (self._takes_values, self._reads) if start else (self._takes_stand_ins, None)
        sizes = len(self._shapes) - len(self._tensors)
        return ShapeSearch(ask, start or self._shapes, reads, ties, known, fixed, sizes).run(tops)

    def _require_declared(self, domain: ShapeDomain) -> None:
        """DomainError where the spec refuses a call that is declared: another extent of a symbol."""
        for name, symbol in self._declaration.symbols(self._shapes):
            own = next((s for s in domain.symbols if symbol.moves[0][0] in s.axes), None)
            shapes = domain.resized({own: domain.extent(own) + max(own.step, 1)}) if own else ()
            if own and self._declaration.allows(shapes) and not self._takes_values(shapes):
                texts = " ".join(str(list(shape)) for shape in shapes)
                raise DomainError(f"domain: got another {name}: {texts}, need calls that {self._spec.name} takes")

    def _find_roles(self) -> None:
        uses: dict[int, set[str]] = {}
        if any(map(is_integer, self._tensors)) and not self._spec.numpy:
            with contextlib.suppress(Exception):
                uses = find_uses(lambda tensors: self._call(self._arguments.with_tensors(tensors)), self._tensors)
        outputs = self._call(self._arguments) if any(map(is_integer, self._tensors)) else ()
        for i, tensor in enumerate(self._tensors):
            if is_integer(tensor):
                draws = [each.tensors[i] for each in self._draws]
                extents = [((j, d), n) for j, s in enumerate(self._arguments.shapes) if j != i for d, n in enumerate(s)]
                takes = functools.partial(self._takes_at, i)
                role = find_role(takes, draws, uses.get(i, set()), extents, {n for y in outputs for n in y.shape})
                # Others have its extent by chance.
                if role.below is not None and not role.rises and len(role.into) > 1:
                    own = tuple(axis for axis in role.into if self._takes_beyond(i, role.below, axis))
                    role = replace(role, into=own or role.into)
                self._roles[i] = role

    def _declare_roles(self) -> None:
        for i, (kind, use, term) in self._declaration.integers.items():
            axes, limit = self._declaration.axes_of(term), term.at(self._declaration.values(self._shapes))
            role = replace(self._roles.get(i, IntegerRole(kind)), kind=kind, rises=kind == "offsets")
            into, sums_to = ((), axes) if use == "summing to" else (axes, ())
            below = limit if use == "below" else role.below
            self._roles[i] = replace(role, into=into, sums_to=sums_to, below=below) if use else role

    def _find_proposals(self) -> Iterator[tuple[int, str]]:
        outputs = self._call(self._arguments) if self._roles else ()
        whole = not any(y.is_floating_point() or y.is_complex() for y in outputs)
        for i, tensor in enumerate(self._tensors):
            role = self._roles.get(i)
            flat = [each.tensors[i].reshape(-1) for each in self._draws if tensor.dtype == torch.bool]
            is_mask = flat and len(torch.cat(flat).unique()) < 2  # all are one in every draw
            for word, values in propose(role, tensor, whole) if role or is_mask else ():
                if self._takes(self._with(i, values), numbers=True):
                    yield i, word

    def _find_options(self, domain: Domain) -> Iterator[tuple[int, tuple[Any, ...]]]:
        tied = {i for symbol in domain.shapes.symbols for i, _ in symbol.axes}
        sizes = {leaf for i, leaf in enumerate(sizes_of(self._arguments), len(self._tensors)) if i in tied}
        spelled = self._arguments.with_defaults(domain.defaults)
        others = [i for i, leaf in enumerate(spelled.leaves) if not isinstance(leaf, Tensor) and i not in sizes]
        if not others:  # A call of a network takes seconds.
            return
        outputs, writes, spec = self._call(self._arguments), list(self._writes), self._spec.function
        shapes = list(dict.fromkeys([*self._arguments.shapes, *(tuple(y.shape) for y in outputs)]))
        takes, known = functools.partial(self._takes, numbers=True, writes=writes), self._declaration.options
        for i in others:
            options = known[i] if i in known else tuple(find_options(i, spelled, spec, shapes, takes, self._differs))
            if options or i in known:
                yield i, options

    def _further_draws(self, draw: Callable[[int], CallArguments] | None) -> Iterator[CallArguments]:
        """Further draws of the inputs, of the structure of the given ones."""
        if draw is None or not self._log.asks or sum(t.numel() for t in self._tensors) > _MOST_DRAWN // _DRAWS:
            return
        kinds = [(t.dtype, t.ndim) for t in self._tensors]
        for number in range(1, _DRAWS):
            with contextlib.suppress(Exception):
                other = draw(number).changed(lambda t: t.detach())
                if [(t.dtype, t.ndim) for t in other.tensors] == kinds:
                    yield other
