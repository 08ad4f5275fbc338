"""An operation of torch as an op of a generated catalog, "torch:NAME": its subject and its spec are the same function.

The spec is torch's own function, read by the rules of `oracles.specs`: by the rule of the operation itself, or, where
it has none, as the operations that torch decomposes it into. The inputs are those of torch's own tests, and data at the
boundaries of many operations. Of an operation that is not read AGREE compares the ways to one result with each other.
What torch says that it does not do, by an error, is refused and no failure.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ...oracles.bound.terms import terms
from ...oracles.op.declaration import OWN, Draft, Op, Promises, Tensor, is_float
from ...oracles.op.documented import Documented, Limit
from ...oracles.specs import SpecFormula
from ...oracles.verdicts.violation import Code, Unsupported
from ..checks.transforms.agree import Opaque
from ..declaring.choices import choose
from ..declaring.user_samples import dtypes_when_called
from .operator_calls import OperatorCall, calls_of, operators, reading_of
from .patterns import PREFIX

#: Depth of the nestings of WORD.
NESTING = 2
_OWN_ERROR = "torch's own error"


def _like_first(x: Tensor, axis: int) -> Tensor:
    return x.narrow(axis, 0, 1).expand_as(x) if x.dim() else x


#: Kinds of data: what is made of numbers between those of a sample of torch's tests.
KINDS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "benign": lambda x: x,
    "ties": torch.round,
    "zeros": lambda x: torch.where(torch.arange(x.numel()).reshape(x.shape) % 3 == 0, 0.0, x),
    "nothing": torch.zeros_like,
    "equal elements": lambda x: _like_first(x, -1),
    "equal rows": lambda x: _like_first(x, 0),
    "tails": lambda x: 20 * x,
    "small": lambda x: x * 2.0**-12,
}

#: What torch refuses by an error that says so. Without the transforms the rest is asked.
_LIMITS = (
    Limit("forward mode", _OWN_ERROR, r"forward (mode )?AD|jvp", transforms=frozenset({"jvp"})),
    Limit("vmap", _OWN_ERROR, r"vmap|[Bb]atching rule|batched", transforms=frozenset({"vmap"})),
    Limit("a derivative or a dtype", _OWN_ERROR,
          r"not (yet )?(implemented|supported|differentiable)|is unsupported|n't support|not (support|require grad)"
          r"|Unsupported dtype|only supported for|inputs to be Half"),
    Limit("values that are read", _OWN_ERROR, r"data.dependent|\.item\(\)|torch\.equal"),
    Limit("how an operand lies in memory", _OWN_ERROR,
          r"view size is not compatible|is_contiguous|memory format|channels_last"),
    Limit("numbers outside of its domain", _OWN_ERROR,
          r"elements of \w+ should be|negative entry|Expected p_in|non-finite values|failed to converge"
          r"|q values must be"),
)  # fmt: skip


@functools.lru_cache(maxsize=4)
def torch_op(name: str) -> Op:
    """The op of one of `operator_calls.operators`.

    Raises:
        SelectionError: there is no such operation.
    """
    if name not in operators():
        calls_of(name)  # raises, with the nearest name
    calls = {call.text: call for call in calls_of(name)}

    def subject(call: str, *operands: Tensor) -> tuple[Tensor, ...]:
        # A compiler traces all that runs here, so that the calls have to be there before.
        return calls[call](*operands)

    def check_sizes_and_call(call: str, *operands: Tensor) -> tuple[Tensor, ...]:
        calls[call].require_sizes(operands)
        return subject(call, *operands)

    readable = any(not reading_of(call).why_not for call in calls.values())
    formula: Any = SpecFormula(subject, name)
    if not readable:
        formula = Opaque(f"not read: {_why_not(name)}")
        formula.__signature__ = inspect.signature(subject)
    promises = Promises(lambda args: _dtypes(subject, args), nesting=NESTING, one_graph=False)
    of_memory = "what it gives depends on how its operand lies in memory"
    not_asked = dict.fromkeys(("LAYOUT", "VMAP"), of_memory) if name.startswith("as_strided") else {}
    documented = Documented(_OWN_ERROR, limits=_LIMITS, not_asked=not_asked)
    return Op(
        f"{PREFIX}{name}", formula, {OWN: check_sizes_and_call, "torch": subject},
        functools.partial(_samples, name), ("operands",), promises, documented={OWN: documented, "torch": documented},
    ).changed(terms=terms("torch"))  # fmt: skip


def _dtypes(subject: Callable[..., Any], args: Any) -> tuple[torch.dtype, ...]:
    """The dtypes of the results; none where torch refuses the call, which is told when it is judged."""
    try:
        return dtypes_when_called(subject, args)
    except RuntimeError:
        return ()


def _samples(name: str, dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
    """Drafts of (text of a call, *operands)."""
    if kind not in ("ordinary", "empty"):
        raise Unsupported(Code.NOT_APPLICABLE, "the samples of torch's tests are of few elements, and no integers")
    calls = [call for call in calls_of(name) if all(t.numel() for t in call.operands) == (kind == "ordinary")]
    if not calls:
        raise Unsupported(Code.NOT_APPLICABLE, f"torch's tests have no sample that is {kind} and dense")
    # Of an operation that is not read, ways to one result are compared at the samples of torch's tests as they are.
    readable = [call for call in calls if not reading_of(call).why_not]
    kinds = {call.text: _finite_kinds(call) if kind == "ordinary" else ("benign",) for call in readable}
    if not readable and any(not reading_of(call).why_not for call in calls_of(name)):
        raise Unsupported(Code.NOT_APPLICABLE, f"no sample that is {kind} is read: {reading_of(calls[0]).why_not}")
    if not readable:
        kinds = {call.text: ("as given",) for call in calls}
    calls_by_text = {call.text: call for call in calls if kinds.get(call.text)}

    @st.composite
    def drafts(draw: st.DrawFn) -> Draft:
        text = draw(choose("call", tuple(calls_by_text)))
        regime = draw(choose("regime", kinds[text]))
        call = calls_by_text[text]
        draw(choose("spec", (spec_of(name, call),)))

        def fill(rng: Any) -> tuple[Any, ...]:
            return text, *(_filled(t, regime, rng).to(getattr(torch, dtype)) for t in call.operands)

        return Draft(fill, regime)

    return drafts()


def _why_not(name: str) -> str:
    reasons = dict.fromkeys(reading_of(call).why_not for call in calls_of(name))
    return next(iter(reasons), "torch's tests have no sample of it that is dense, real and small")


def spec_of(name: str, call: OperatorCall) -> str:
    """How the spec of a call came to be, in words: by a rule of the operation itself, or by torch's decomposition."""
    operations = reading_of(call).operations
    packets = {each.partition(".")[0] for each in operations}
    own = name.rpartition(".")[2]
    if len(packets) <= 1 and (not packets or own in packets or own in next(iter(packets))):
        return "the operation's own rule"
    return f"torch's decomposition: {', '.join(operations)[:200]}"


def _filled(operand: Tensor, regime: str, rng: np.random.Generator) -> Tensor:
    """Numbers of a kind between those of an operand, in float64; NaN and infinities stay where the operand has them."""
    values = operand[operand.isfinite()].numpy()
    if not values.size or regime == "as given":
        return operand.clone()
    one, other = (values[rng.integers(values.size, size=operand.numel())] for _ in range(2))
    between = torch.from_numpy(one + rng.random(operand.numel()) * (other - one)).reshape(operand.shape)
    return KINDS[regime](torch.where(operand.isfinite(), between, operand)).contiguous()


def _finite_kinds(call: OperatorCall) -> tuple[str, ...]:
    """The kinds of data at which torch gives numbers."""
    rng = np.random.default_rng(0)

    def is_finite(regime: str) -> bool:
        try:
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results = call(*(_filled(t, regime, rng) for t in call.operands))
        except (RuntimeError, ValueError, IndexError):
            return False
        return all(bool(y.isfinite().all()) for y in results if is_float(y))

    return tuple(filter(is_finite, KINDS))
