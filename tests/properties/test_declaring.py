"""Declarations by the names of arguments: what is wrong in one is said, and what it relates is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from opassay import Code, Draft, Op, Outcome, Settings, declare, drawing, laws, refusals, strategies, verify
from opassay.properties.declaring.signature import Signature

Tensor = torch.Tensor
SETTINGS = Settings("brief", max_examples=6)


def formula(x: Any, shape: Any, scale: Any = None, eps: float = 0.5) -> Any:
    return (x if scale is None else x * scale) + eps * 0.0


def product(x: Tensor, shape: Any, scale: Tensor | None = None, eps: float = 0.5) -> Tensor:
    return x.clone() if scale is None else x * scale


def declared(**changes: Any) -> Op:
    options: dict[str, Any] = {
        "samples": strategies.same_shape(1),
        "differentiable": ("x",),
        "dtypes": lambda x: (x.dtype,),
    }
    return declare(formula, {"opassay": product}, **options | changes)


# ------------------------------------------------------------------------------------------------- arguments by name


def grad(grad_out: Any, self: Any, epsilon: float = 1.0) -> None: ...


def spread(count: int, *tensors: Any) -> None: ...


def test_arguments_have_a_usual_name_and_their_own() -> None:
    signature = Signature(grad)
    assert signature.names == ("grad_output", "input", "eps")
    assert signature.own("input") == "self"
    assert signature.by_name((1, 2, 3)) == {"grad_output": 1, "input": 2, "eps": 3}
    assert signature.args("samples", {"self": 2, "grad_output": 1}) == (1, 2, 1.0)
    assert signature.changed("law", (1, 2, 3), {"epsilon": 4}) == (1, 2, 4)


def test_any_number_of_arguments_have_one_name() -> None:
    signature = Signature(spread)
    assert signature.by_name((2, "a", "b")) == {"count": 2, "tensors": ("a", "b")}
    assert signature.changed("law", (2, "a", "b"), {"tensors": ["c"]}) == (2, "c")
    assert signature.reader("dtypes", lambda tensors: len(tensors))((2, "a", "b")) == 2


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: declared(dtypes=lambda y: ()), "formula: dtypes: got argument 'y', need one of x, shape, scale, eps"),
        (lambda: declared(saved=lambda x, needed: 0), "saved: got argument 'needed'"),
        (lambda: declared(differentiable=("input",)), "differentiable: got argument 'input'"),
        (lambda: declared(mutates=("y",)), "mutates: got argument 'y'"),
        (lambda: declared(laws=(laws.mirror("y"),)), "law 'mirror y': got argument 'y'"),
        (lambda: declared(laws=(laws.permute({"x": 0}, when=lambda n: True),)), "got argument 'n'"),
        (lambda: declared(refusals=(refusals.shape("weight"),)), "refusal 'weight of another shape': got argument"),
        (lambda: _sample({"x": 1.0, "y": 2.0}), "samples: got argument 'y'"),
        (lambda: _sample({"x": 1.0}), "samples: got no 'shape', need a value for it"),
        (lambda: laws.scale({"x": 1}, (1,)), r"outputs=\(1,\)"),
        (lambda: laws.scale({"x": 1}, (1,), by=3.0), "by=3.0: need a power of two"),
        (lambda: drawing.normalized_rows({}, eps=()), r"eps=\(\)"),
        (lambda: drawing.without(strategies.same_shape(1), "huge", "why"), "kind='huge': need one of ordinary"),
        (lambda: strategies.same_shape(0), "count=0: need at least 1"),
        (
            lambda: strategies.same_shape(1, ("bening",)),
            r"regime='bening' \(did you mean 'benign'\?\), need one of benign",
        ),
    ],
)
def test_a_wrong_declaration_says_which_name_is_wrong(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def _call() -> tuple[Any, ...]:
    return torch.ones(2), (2,), None, 0.5


def _drafts(parameters: dict[str, Any]) -> Callable[..., Any]:
    """Samples that give these arguments."""
    return lambda dtype, kind: st.just(Draft(lambda rng: parameters, "benign"))


def _sample(parameters: dict[str, Any]) -> Any:
    drafts = declared(samples=_drafts(parameters)).samples("float64", "ordinary")
    return hypothesis.find(drafts, lambda draft: True).sample(0)


def _complete() -> dict[str, Any]:
    """Samples of all four arguments."""
    alone = strategies.same_shape(1, ("benign",))

    def samples(dtype: str, kind: str) -> Any:
        def with_shape(draft: Draft) -> Draft:
            return Draft(lambda rng: {"x": draft.fill(rng)[0], "shape": ()}, draft.regime, draft.extents)

        return alone(dtype, kind).map(with_shape)

    return {"samples": samples}


def test_what_a_draft_leaves_out_has_its_default() -> None:
    assert _sample({"x": 1.0, "shape": 2}).args == (1.0, 2, None, 0.5)


def test_promises_are_asked_by_name() -> None:
    op = declared(
        saved=lambda x, wanted: x.numel() if wanted == {"x"} else 0,
        aliases=lambda: ("x", None),
        mutates=("scale",),
    )
    memory = op.promises.memory
    assert memory.saved is not None
    assert memory.aliases is not None
    assert op.promises.dtypes(_call()) == (torch.float32,)
    assert memory.saved(_call(), frozenset({0})) == 2
    assert memory.saved(_call(), frozenset({0, 2})) == 0
    assert memory.aliases(_call()) == (0, None)
    assert op.mutates == ("scale",)


@pytest.mark.parametrize(
    ("code", "changes", "says"),
    [
        ("LAW", {"laws": (laws.pair("twice", lambda x: {"y": x}),)}, "law 'twice': got argument 'y', need one of x"),
        ("ERROR", {"refusals": (refusals.integer("x", out=None),)}, "refusal 'integer x': got argument 'out'"),
        ("FWD", {"samples": _drafts({"x": 1.0, "y": 2.0})}, "formula: samples: got argument 'y', need one of x"),
    ],
)
def test_a_mistake_that_shows_while_a_cell_is_judged_is_the_declaration_s(
    code: str, changes: dict[str, Any], says: str
) -> None:
    (verdict,) = verify(declared(**_complete() | changes), "opassay", (code,), ("float64",), settings=SETTINGS)
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.DECLARATION), verdict.reason
    assert says in verdict.reason


# ------------------------------------------------------------------------------ laws and refusals find what is wrong


def centred(x: Any) -> Any:
    return x - np.mean(x, axis=-1, keepdims=True)


def identity(x: Any) -> Any:
    return x * 1.0


@pytest.mark.parametrize(
    ("meaning", "right", "wrong", "law"),
    [
        (identity, lambda x: x.clone(), lambda x: x.abs(), laws.mirror("x")),
        (identity, lambda x: x.clone(), lambda x: x + 1, laws.scale({"x": 1}, (1,), by=4.0)),
        (identity, lambda x: x.clone(), lambda x: x.cumsum(0), laws.permute({"x": 0}, exact=True)),
        (identity, lambda x: x.clone(), lambda x: x + 1, laws.linear("x")),
        (
            centred,
            lambda x: x - x.mean(-1, keepdim=True),
            lambda x: x.clone(),
            laws.sums("sums to zero", 0.0, lambda: -1, when=lambda x: x.numel() > 0),
        ),
    ],
    ids=["mirror", "scale", "permute", "linear", "sums"],
)
def test_a_law_holds_and_finds_what_breaks_it(
    meaning: Callable[..., Any], right: Callable[..., Any], wrong: Callable[..., Any], law: laws.Relation
) -> None:
    op = declare(
        meaning,
        {"opassay": right, "wrong": wrong},
        samples=strategies.same_shape(1, ("benign",)),
        differentiable=("x",),
        dtypes=lambda x: (x.dtype,),
        laws=(law,),
    )
    outcomes = [_outcome(op, subject, "LAW") for subject in op.subjects]
    assert outcomes == [Outcome.VERIFIED, Outcome.FAIL]


def careful(x: Any) -> Tensor:
    """Refuses whatever the refusals below make."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x: got {type(x).__name__}, need a tensor")
    if not x.dtype.is_floating_point or x.dim() > 3:
        raise RuntimeError(f"x: got dtype={x.dtype}, shape={tuple(x.shape)}")
    return x.clone()


@pytest.mark.parametrize(
    "refusal",
    [
        refusals.not_a_tensor("x"),
        refusals.integer("x"),
        refusals.wrong("x", "too many dims", lambda x: x.reshape(-1, 1, 1, 1), RuntimeError),
        refusals.value("x", "a string", TypeError),
        refusals.missing("x", error=TypeError),
        refusals.refusal("too many dims", lambda x: {"x": x.reshape(-1, 1, 1, 1)}, RuntimeError, "x"),
    ],
    ids=lambda refusal: refusal.name,
)
def test_a_refusal_is_asked_and_finds_what_accepts_it(refusal: refusals.Mistake) -> None:
    op = declare(
        identity,
        {"opassay": careful, "wrong": lambda x: torch.zeros(1)},
        samples=strategies.same_shape(1),
        differentiable=("x",),
        dtypes=lambda x: (x.dtype,),
        refusals=(refusal,),
    )
    assert [_outcome(op, subject, "ERROR") for subject in op.subjects] == [Outcome.VERIFIED, Outcome.FAIL]


def _outcome(op: Op, subject: str, code: str) -> Outcome:
    (verdict,) = verify(op, subject, (code,), ("float64",), settings=SETTINGS)
    assert verdict.outcome != Outcome.FAIL or verdict.code in (Code.VALUE, Code.BITS, Code.NOT_RAISED), verdict.reason
    return verdict.outcome


def test_a_shift_of_rows_is_exact() -> None:
    rng = np.random.default_rng(0)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        rows = torch.from_numpy(rng.standard_normal((3, 5))).to(dtype)
        both = laws.shifted(rows, (1,), rng)
        assert both is not None
        difference = both[1].double() - both[0].double()
        assert torch.equal(difference, difference[:, :1].expand(3, 5))
        assert (difference != 0).any()
    assert laws.shifted(torch.tensor([[2.0**41]]), (1,), rng) is None
    assert laws.shifted(torch.ones(0, 2), (1,), rng) is None


def _over_eps(x: Any, eps: float | None = None) -> Any:
    return x * eps


def _over_machine_epsilon(x: Tensor, eps: float | None = None) -> Tensor:
    return x * (torch.finfo(x.dtype).eps if eps is None else eps)


def _without_eps(dtype: str, kind: str) -> st.SearchStrategy[Draft]:
    draws = strategies.same_shape(1)(dtype, kind)
    return draws.map(lambda draft: dataclasses.replace(draft, fill=lambda rng: {"x": draft.fill(rng)[0]}))


def test_a_formula_gets_a_default_that_depends_on_a_dtype_as_a_number() -> None:
    op = declare(
        _over_eps,
        {"opassay": _over_machine_epsilon, "wrong": lambda x, eps: x * (2.0**-23 if eps is None else eps)},
        samples=_without_eps,
        differentiable=("x",),
        dtypes=lambda x: (x.dtype,),
        resolved=lambda x, eps: {"eps": torch.finfo(x.dtype).eps if eps is None else eps},
    )
    assert [_outcome(op, subject, "FWD") for subject in op.subjects] == [Outcome.VERIFIED, Outcome.FAIL]
    assert op.resolved((torch.ones(1), 0.5))[1] == 0.5
    with pytest.raises(ValueError, match="resolved: got argument 'y'"):
        declared(resolved=lambda y: {})
