"""A spec: what is right, said by a plain PyTorch function or module, a NumPy formula, or the name of an op.

What this is for: whatever says what is right, the judge asks it the same three things: its outputs as balls, the balls
of its derivatives, and, where it can be run by torch, how many outputs there are and of which dtypes.

What is hard here: a module has parameters and buffers, which are operands like the arguments. So they are handed in by
their names, and a buffer that a call writes is one more output.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.rounding.reading import BoundQuestion
from ...oracles.bound.terms import Terms
from ...oracles.judge.holding import Reading
from ...oracles.op.declaration import dtype_name, is_float, to_array
from ...oracles.op.transforms import REFERENCE, along
from ...oracles.specs import (
    SpecCall,
    Traced,
    Traces,
    UntraceableError,
    Values,
    ValuesNeededError,
    check,
    preserve_attributes,
    trace,
    uncompiled,
)
from ...oracles.specs.autograd_calls import run_with_own_derivatives
from ...oracles.specs.block_scales import KernelFallback
from ...oracles.specs.calls import buffers_of
from ...oracles.specs.decisions import Decisions
from ...oracles.specs.evaluation import evaluating
from ...oracles.specs.lines import calls_spec
from ...oracles.specs.node_facts import drawing_nodes, why_without_derivatives
from ...oracles.verdicts.violation import error_lines, error_name
from ...reference.algorithms import algorithm_of, algorithms
from ...reference.array import Array, store
from ...reference.formats import FORMATS
from ...reference.missing import NoReadingError
from ..catalog.loading import load_op
from ..names import SelectionError
from .arguments import Args, CallArguments, State, Tensor, call, call_with_state, copied_state, device_of
from .numpy_specs import Formula, array_of, calls_numpy, name_of_function, values_of, with_algorithms
from .open_readings import with_choices
from .operand_parts import has_parts, state_in_parts
from .results import Result, SpecRun, first_homes, homes_of, incomparable, result_of


class SpecError(ValueError):
    """A spec that cannot be read; the text says why, and what to give instead."""


@dataclass(frozen=True, eq=False)
class Specification:
    """What is right.

    Attributes:
        name: for messages.
        function: of the arguments; of a module, the module itself.
        state: the parameters and buffers by name, as they were when the spec was given.
        parameters: names of those of the state that gradients are taken in: no frozen ones.
        numpy: whether the function is a NumPy formula. domain: which calls it takes, as its author declares it.
        autocast: whether it is called under autocast to bfloat16. evaluation: whether the module is put in evaluation.
        itself: whether it is the candidate, of which only relations of its own results are asked.
    """

    name: str
    function: Callable[..., Any]
    state: dict[str, Tensor] = field(default_factory=dict)
    parameters: frozenset[str] = frozenset()
    numpy: bool = False
    autocast: bool = False
    evaluation: bool = False
    itself: bool = False
    domain: Mapping[str, Any] = field(default_factory=dict)
    _traces: Traces[Traced] = field(default_factory=Traces)
    _fallback: KernelFallback = field(default_factory=KernelFallback)

    def run(self, arguments: CallArguments, state: State) -> SpecRun:
        """The outputs as torch computes them, on copies, and then what the call wrote.

        Raises:
            SpecError: the spec raises, or gives nothing that could be held.
        """
        self._check({**state, **{f"args[{i}]": t for i, t in enumerate(arguments.tensors)}})
        if self.numpy and has_parts(arguments.structure):
            raise SpecError(f"{self.name} is a formula in NumPy, need tensors of real numbers, none in pairs")
        result, own_arguments, own_state = self.result_at(arguments, state)
        if self.numpy and (len(result.tensors) == 1 or result.plain) and result.form != "*":
            # What the formula leaves out, and a tuple of one, say nothing of how a candidate gives the others.
            result = replace(result, form="", plain=())
        odd = incomparable(arguments.leaves, result)
        if odd:
            raise SpecError(f"{self.name} {odd}")
        self._check(dict(zip(result.names, result.tensors, strict=True)))
        places = self.find_writes(arguments, state)
        if not result.tensors and not places:
            raise SpecError(f"{self.name} gives {result.form} and writes no tensor: there is nothing to judge")
        values = tuple(own_state[place] if isinstance(place, str) else own_arguments.tensors[place] for place in places)
        names = [place if isinstance(place, str) else f"written {arguments.label(place)}" for place in places]
        shared = tuple(first_homes(homes_of(result.raw, own_arguments.tensors), arguments.tensors))
        own = tuple(home < 0 for home in homes_of(result.raw, list(own_state.values())))
        return SpecRun(result, (*result.names, *names), places, values, shared, own)

    def outputs(self, arguments: CallArguments, state: State) -> tuple[Tensor, ...]:
        """The outputs alone, as torch computes them on copies, which takes no trace; SpecError where it raises."""
        return self.result_at(arguments, state)[0].tensors

    def result_at(self, arguments: CallArguments, state: State) -> tuple[Result, CallArguments, dict[str, Tensor]]:
        """What a call gives, and the copies of arguments and state that it may have written; SpecError where it raises.

        Where torch has no kernel for a product of the spec, it and later calls take the one that is traced.
        """

        def run() -> tuple[Result, CallArguments, dict[str, Tensor]]:
            own_arguments, own_state = arguments.copied(), copied_state(state)
            return result_of(self.call_at(own_state, own_arguments.args)), own_arguments, own_state

        try:
            with torch.no_grad():
                return run_with_own_derivatives(run)
        except Exception as err:
            if self._fallback.turns_on(lambda: self.call_at(copied_state(state), arguments.copied().args)):
                return self.result_at(arguments, state)
            text = " ".join(error_lines(err))[:500]
            raise SpecError(f"{self.name} raises {error_name(err)}: {text}") from err

    def _check(self, named: Mapping[str, Tensor]) -> None:
        """Refuse tensors of which nothing can be said: complex ones, sparse ones, formats that are not judged."""
        with _reading(self.name):
            for name, tensor in named.items():
                check(name, tensor)

    def find_writes(self, arguments: CallArguments, state: State) -> tuple[str | int, ...]:
        """What the spec writes: names of parameters and buffers, and positions among the tensor arguments."""
        if self.numpy:
            return ()
        names, places = list(state), self.traced_at(arguments, state).written_inputs
        return tuple(names[i] if i < len(names) else i - len(names) for i in places)

    @calls_spec
    def call_at(self, state: State, args: Args) -> Any:
        """What the function gives for a state and arguments, which it may write."""
        if self.numpy:
            arrays = pytree.tree_map_only(Tensor, array_of, args)
            with np.errstate(all="ignore"):
                outputs = call(self.function, arrays)
            if not isinstance(outputs, (tuple, list)):
                return torch.from_numpy(np.array(outputs))
            return tuple(None if leaf is None else torch.from_numpy(np.array(leaf)) for leaf in outputs)
        device = device_of(pytree.tree_leaves((state, args)))
        # What torch.compile made is run as its original: to compile it may take a minute for each shape.
        autocast = torch.autocast(device, dtype=torch.bfloat16, enabled=self.autocast)
        evaluated = evaluating(self.function) if self.evaluation else contextlib.nullcontext()
        with uncompiled(traced=False), autocast, self._fallback.mode(), evaluated:
            if isinstance(self.function, torch.nn.Module):
                # A buffer that the module replaces stands in the very dictionary afterwards.
                return call_with_state(self.function, state if isinstance(state, dict) else dict(state), args)
            return call(self.function, args)

    def read(self, arguments: CallArguments, state: State, terms: Terms, sharp: bool = False) -> tuple[Reading, ...]:
        """The outputs as balls; one that is not floating as an array, or as a `Condition` where it depends on floats.

        Where more is computed from indices that rounding leaves open, all are an `OpenReading`.

        Args:
            arguments, state: where the spec is read. terms: what an evaluation may do.
            sharp: whether elements that are exact in every order of evaluation shall have no radius.

        Raises:
            SpecError: an operation has no reading.
        """

        def read(decisions: Decisions) -> Sequence[Reading]:
            with _reading(self.name):
                return self.question_at(arguments, state, terms, decisions=decisions).read(sharp)

        with _reading(self.name):
            return with_choices(read, lambda: self.traced_at(arguments, state).graph)

    def read_blocks(
        self, arguments: CallArguments, state: State, terms: Terms
    ) -> Iterator[tuple[slice, Sequence[Reading]]] | None:
        """The outputs as `read` gives them, for some rows after others; None where they are read as a whole."""
        with _reading(self.name):
            decisions = Decisions()
            blocks = self.question_at(arguments, state, terms, decisions=decisions).read_blocks()
        return None if decisions.open else blocks

    def read_still(self, arguments: CallArguments, state: State, terms: Terms) -> tuple[Reading, ...]:
        """The outputs for one draw of all numbers; arguments and errors as for `read`."""
        with _reading(self.name):
            return tuple(self.question_at(arguments, state, terms, decisions=Decisions(still=True)).read())

    def gradients(
        self, arguments: CallArguments, state: State, terms: Terms, wanted: Sequence[int],
        cotangents: Sequence[Tensor], picks: Mapping[str, Any] | None = None,
    ) -> tuple[Reading, ...]:  # fmt: skip
        """The balls of the gradients of the wanted operands.

        Args:
            arguments, state, terms: as for `read`.
            wanted: positions among the floating tensors of the state and then of the arguments.
            cotangents: one for each floating output.
            picks: the known choices of the call whose gradients these are.
        """

        def read(decisions: Decisions) -> Sequence[Reading]:
            with _reading(self.name):
                return self.question_of_gradients(arguments, state, terms, wanted, cotangents, decisions).read()

        with _reading(self.name):
            return with_choices(read, lambda: None, picks)

    def question_of_gradients(
        self, arguments: CallArguments, state: State, terms: Terms, wanted: Sequence[int],
        cotangents: Sequence[Tensor], decisions: Decisions | None = None,
    ) -> BoundQuestion:  # fmt: skip
        """What `gradients` reads; its `perturb` evaluates them with random rounding errors."""
        question = self.question_at(arguments, state, terms, order=1, decisions=decisions)
        # The operands that the spec writes follow its outputs, and have no cotangents.
        count = None if self.numpy else -len(self.traced_at(arguments, state).written_inputs) or None
        passive = [i for i in range(len(question.operands)) if i not in wanted]
        order = [*passive, *wanted]
        back = np.argsort(order)

        def reordered(*arrays: Any) -> tuple[Any, ...]:
            outputs = question.function(*(arrays[i] for i in back))[:count]
            return tuple(y for y in outputs if isinstance(y, Array))

        derived = along(REFERENCE, ("vjp",), reordered, len(wanted), len(cotangents), len(passive))
        operands = [*(question.operands[i] for i in order), *map(to_array, cotangents)]
        return BoundQuestion(derived, operands, question.contract)

    def dtype_of(self, arguments: CallArguments, state: State) -> str:
        """The dtype whose arithmetic is judged: the narrowest of the floating operands, or of the outputs."""
        names = {dtype_name(t.dtype) for t in (*state.values(), *arguments.tensors) if is_float(t)}
        if not names and not self.numpy:
            names = {dtype_name(dtype) for dtype in self.traced_at(arguments, state).dtypes}
        return min(names & set(FORMATS) or {"float32"}, key=lambda name: FORMATS[name].precision)

    def question_at(
        self, arguments: CallArguments, state: State, terms: Terms, order: int = 0, decisions: Decisions | None = None
    ) -> BoundQuestion:
        """The spec as a function of arrays of its floating operands, to be differentiated `order` times."""
        operands = [*state.values(), *arguments.tensors]
        floating = [i for i, t in enumerate(operands) if is_float(t)]
        contract = terms.contract(self.dtype_of(arguments, state), device_of(operands), order)
        # `inner` takes an array for each tensor of the state, and then for each one among the arguments.
        inner: Any = with_algorithms(self.function, arguments) if self.numpy else self.traced_at(arguments, state)
        inner = replace(inner, decisions=decisions) if isinstance(inner, Traced) else inner
        fixed = [None if i in floating else t.detach().cpu().numpy() for i, t in enumerate(operands)]
        casts = [terms.format_of_inputs(dtype_name(operands[i].dtype)) for i in floating]
        # The class of an array says which reading evaluates a spec, also one that rounds what it computes of integers
        # alone. So without floating operands there is an array that the spec does not see.
        unseen = [] if floating or self.numpy else [np.zeros(())]

        def function(*arrays: Any, of: Callable[..., Any] = inner) -> tuple[Any, ...]:
            operands = list(fixed)
            for i, fmt, array in zip(floating, casts, arrays, strict=False):
                operands[i] = array if fmt is None else store(array, fmt.name)
            outputs = of(*operands, like=arrays[0]) if unseen else of(*operands)
            return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)

        def first(*arrays: Any) -> tuple[Any, ...]:
            return function(*arrays)

        for other in algorithms(inner, contract.algorithms):
            algorithm_of(first)(functools.partial(function, of=other))
        return BoundQuestion(first, [*(values_of(operands[i]) for i in floating), *unseen], contract)

    def traced_at(self, arguments: CallArguments, state: State) -> Traced:
        """The trace of a torch spec at tensors of these shapes and dtypes; it returns outputs, then written operands.

        Raises:
            SpecError: the spec cannot be traced.
        """
        tensors = [*state.values(), *arguments.tensors]
        others = [leaf for leaf in arguments.leaves if not isinstance(leaf, Tensor)]
        kinds = [(tuple(t.shape), t.dtype, t.device) for t in tensors]
        form = repr([kinds, arguments.structure, others, self.autocast, self.evaluation])
        integers = [t.numpy(force=True) for t in tensors if not (t.is_floating_point() or t.is_complex())]
        return self._traces.at(form, integers, functools.partial(self._trace, arguments, state))

    def is_random(self, arguments: CallArguments, state: State) -> bool:
        """Whether the spec draws random numbers."""
        return not self.numpy and bool(drawing_nodes(self.traced_at(arguments, state).graph))

    def why_without_derivatives(self, arguments: CallArguments, state: State) -> str:
        """Why no derivative of the spec is judged; empty where derivatives are."""
        return "" if self.numpy else why_without_derivatives(self.traced_at(arguments, state).graph)

    def drawn_outputs(self, arguments: CallArguments, state: State) -> frozenset[int]:
        """Positions of the outputs that depend on random numbers."""
        graph = self.traced_at(arguments, state).graph
        (output,), nodes = graph.graph.find_nodes(op="output"), drawing_nodes(graph)
        return frozenset(i for i, node in enumerate(output.args[0]) if node in nodes)

    @property
    def reads_values(self) -> bool:
        """Whether a trace has read values of integers, on which shapes and positions of elements then depend."""
        return self._traces.reads_values

    def with_trace(self, other: Traced) -> Specification:
        """A copy that evaluates another trace in place of each of its own."""
        return replace(self, _traces=self._traces.all_as(other))

    def of_tensors(
        self, arguments: CallArguments, names: Sequence[str],
        function: Callable[[dict[str, Tensor], Args], Any],
    ) -> Callable[..., tuple[Tensor, ...]]:  # fmt: skip
        """A function of a state and arguments as a function of their tensors: first the state's, then the arguments'.

        Args:
            arguments: of the call. names: of the state. function: the function; `self.call_at` for the spec.
        """

        def flat(*tensors: Tensor) -> tuple[Tensor, ...]:
            own_state = dict(zip(names, tensors, strict=False))
            outputs = result_of(function(own_state, arguments.with_tensors(tensors[len(names) :]).args)).tensors
            for name, tensor in zip(names, tensors, strict=False):
                if own_state[name] is not tensor:  # The module assigned a new tensor: treated as a write in place.
                    tensor.copy_(self._replaced(name, own_state[name], tensor))
            return outputs

        return flat

    def _trace(self, arguments: CallArguments, state: State, values: Values) -> Traced:
        flat = self.of_tensors(arguments, list(state), self.call_at)
        call = SpecCall.of(flat, *(t.detach() for t in (*state.values(), *arguments.tensors)))
        try:
            with preserve_attributes(self.function):
                return trace(call, values)
        except ValuesNeededError:
            raise
        except UntraceableError as err:
            raise SpecError(f"{self.name} {next(iter(error_lines(err)), '')}") from err

    def _replaced(self, name: str, new: Tensor, old: Tensor) -> Tensor:
        if (new.shape, new.dtype) != (old.shape, old.dtype):
            raise SpecError(
                f"{self.name} leaves {name} with shape {tuple(new.shape)} and {new.dtype}, which had"
                f" {tuple(old.shape)} and {old.dtype}: give such a tensor back as a result"
            )
        return new


def specification(spec: Any) -> Specification:
    """A spec of any kind.

    Args:
        spec: a function or a module of plain PyTorch, a formula in NumPy, or the name of an op of the catalog.

    Raises:
        SpecError: it is none of these.
    """
    if isinstance(spec, Specification):
        return spec
    if isinstance(spec, str):
        try:
            return Specification(spec, load_op(spec).reference, numpy=True)
        except SelectionError as err:
            raise SpecError(f"spec: {err}") from err
    # What torch.compile made says what its original says.
    spec = getattr(spec, "_orig_mod", getattr(spec, "_torchdynamo_orig_callable", spec))
    if isinstance(spec, Formula):
        return Specification(name_of_function(spec.function), spec.function, numpy=True)
    if isinstance(spec, torch.nn.Module):
        copies = copied_state(state_in_parts({**dict(spec.named_parameters()), **buffers_of(spec)}))
        parameters = {name: value for name, value in spec.named_parameters() if value.requires_grad}
        trained = frozenset(state_in_parts(parameters))
        return Specification(type(spec).__name__, spec, copies, trained)
    if callable(spec):
        return Specification(name_of_function(spec), spec, numpy=calls_numpy(spec))
    raise SpecError(f"spec: got a {type(spec).__name__}, need a function, a module, or the name of an op")


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Whatever a reading of a spec raises is a `SpecError` that says so in a sentence."""
    try:
        yield
    except (SpecError, ReadingError, MemoryError):
        raise
    except (UntraceableError, NoReadingError) as err:
        raise SpecError(f"{name}: {next(iter(error_lines(err)), '')}") from err
    except Exception as err:
        raise SpecError(f"{name} cannot be read: {type(err).__name__}: {next(iter(error_lines(err)), '')}") from err
