"""Keywords that functions took until 0.2: they do what they did, and the warning has the line that does it now."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opassay
from opassay import Offer, Outcome, Settings

SHAPES = {"x": ("n",)}
FEW = Settings("brief", max_examples=2, simpler=False)


def square(x: Any) -> Any:
    return x * x


def without_gradient(x: Any) -> Any:
    return square(x.detach())


class Square(torch.autograd.Function):
    """x^2 in the old style."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * g * x


#: For every earlier keyword of every function: the function with the arguments of a call, and the keyword's value.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "verify_kernel": (opassay.verify_kernel, (square, square, SHAPES)),
    "custom_kernel": (opassay.custom_kernel, (square, square, SHAPES)),
    "kernel_of_op": (opassay.kernel_of_op, (torch.trace, "trace")),
    "custom_function": (opassay.custom_function, (Square, [(torch.ones(3),)])),
    "verify_function": (opassay.verify_function, (Square, [(torch.ones(3),)])),
}
VALUES: dict[str, Any] = {
    "without": ("func", "jvp", "empty"), "max_order": 1, "specials": False, "flush": True, "algorithms": ("exp2",),
    "outputs": (0,), "supported": lambda: True, "differentiable": ("x",),
}  # fmt: skip
FIELDS = ("specials", "flush", "algorithms")
TAKEN = [
    *(("verify_kernel", name) for name in VALUES if name != "supported"),
    ("custom_kernel", "differentiable"),
    ("kernel_of_op", "supported"),
    *((name, field) for name in ("custom_function", "verify_function") for field in FIELDS),
]


@pytest.mark.parametrize(("name", "keyword"), TAKEN)
def test_an_earlier_keyword_is_a_field_of_the_offer(name: str, keyword: str) -> None:
    function, arguments = CALLS[name]
    value = VALUES[keyword]
    asked = {"properties": ("FWD",), "settings": FEW} if name.startswith("verify") else {}
    shown = "..." if callable(value) else repr(value)
    said = f"{name}(..., {keyword}={shown}) is {name}(..., offer=opassay.Offer({keyword}={shown})) now; "
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(said)}the earlier keywords end with 0.2$") as warned:
        before = function(*arguments, **asked, **{keyword: value})
    assert __file__ in {each.filename for each in warned}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        now = function(*arguments, **asked, offer=Offer(**{keyword: value}))
    if name.startswith("verify"):
        assert [(v.outcome, v.reason) for v in before] == [(v.outcome, v.reason) for v in now]
    else:
        assert before.promises.without == now.promises.without
        for field in FIELDS:
            assert getattr(before.promises, field) == getattr(now.promises, field)
        assert before.differentiable == now.differentiable


def test_what_an_earlier_keyword_says_is_done() -> None:
    asked: dict[str, Any] = {"properties": ("VJP",), "settings": FEW}
    with pytest.warns(DeprecationWarning, match=r"offer=opassay.Offer\(max_order=0\)"):
        (found,) = opassay.verify_kernel(without_gradient, square, SHAPES, max_order=0, **asked)  # type: ignore[call-arg]
    assert found.outcome == Outcome.UNSUPPORTED
    (found,) = opassay.verify_kernel(without_gradient, square, SHAPES, **asked)
    assert found.outcome == Outcome.FAIL


def test_a_profile_is_settings_and_earlier_keywords_come_beside_others() -> None:
    drawn: dict[str, Any] = {"properties": ("FWD",)}
    with pytest.warns(DeprecationWarning, match=r"\(..., profile='dev'\) is verify_kernel\(..., settings='dev'\) now"):
        (dev,) = opassay.verify_kernel(square, square, SHAPES, **drawn, profile="dev")  # type: ignore[call-arg]
    (now,) = opassay.verify_kernel(square, square, SHAPES, **drawn, settings="dev")
    (brief,) = opassay.verify_kernel(square, square, SHAPES, **drawn)
    assert dev.measure.samples == now.measure.samples > brief.measure.samples
    both: dict[str, Any] = {"supported": lambda: True, "offer": Offer(max_order=0)}
    with pytest.warns(DeprecationWarning, match="supported="):
        assert opassay.kernel_of_op(torch.trace, "trace", **both).differentiable == ()
    never: dict[str, Any] = {"supported": lambda: False, "settings": FEW}
    with pytest.warns(DeprecationWarning, match="supported="):
        (found,) = opassay.verify_kernel(torch.trace, "trace", **drawn, **never)
    assert found.measure.samples == 0
