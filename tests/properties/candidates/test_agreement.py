"""A spec that is not what was read of it is an error; where torch alone is wrong, the card says so."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.comparing import AS_WELL, AS_ZEROS
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge

GENERATOR = torch.Generator().manual_seed(9)
X = torch.randn(3, 5, generator=GENERATOR)
CALLS = [0]
DRAWS = np.random.default_rng(3)


def through_numpy(x: Tensor) -> Tensor:
    return x + torch.from_numpy(np.tanh(x.detach().numpy()))


def drawn_by_numpy(x: Tensor) -> Tensor:
    return x + DRAWS.random()


def count(x: Tensor) -> Tensor:
    CALLS[0] += 1
    return torch.relu(x * CALLS[0])


def in_lists(x: Tensor) -> Tensor:
    return x * torch.as_tensor(np.asarray(x.detach()) + 1)


def of_its_time(x: Tensor) -> Tensor:
    return x * (2.0 if torch._is_functional_tensor(x) else 3.0)


SPECS = [(through_numpy, "handed to NumPy"), (in_lists, "handed to NumPy"), (drawn_by_numpy, "draws numbers"),
         (count, "counts"), (of_its_time, "outside of torch")]  # fmt: skip


@pytest.mark.parametrize(("spec", "message"), SPECS)
def test_a_spec_that_computes_outside_of_torch_is_an_error_that_names_it(
    spec: Callable[[Tensor], Tensor], message: str
) -> None:
    judgement = judge(spec, spec, (X,), questions=["FWD:given", "FWD:signs"])
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert not judgement.causes
    assert judgement.error.startswith(spec.__name__)
    assert message in judgement.error
    with pytest.raises(opassay.SpecError, match=message):
        opassay.bound(spec, X)
    with pytest.raises(opassay.SpecError, match=message):
        opassay.assert_conforms(spec(X), spec, X)


def right_spec(x: Tensor) -> Tensor:
    table = torch.tensor([1.0, 2.0, 3.0])  # a constant of the spec's own
    return torch.softmax(x, -1)[:, :3] * table


def test_what_torch_computes_of_its_own_constants_is_no_disagreement() -> None:
    assert judge(right_spec, right_spec, (X,), questions=["FWD:given"]).verdict is Ruling.ACCEPTED
    opassay.assert_conforms(right_spec(X), right_spec, X)


def scaled_backward(x: Tensor) -> Tensor:
    result = torch.sin(x) * 2
    if result.requires_grad:
        result.register_hook(lambda g: g * 3)
    return result


def test_gradients_of_a_spec_with_a_backward_of_its_own_are_not_held() -> None:
    judgement = judge(scaled_backward, scaled_backward, (X,), questions=["FWD:given", "VJP:grad"])
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert "not the derivative of its text" in judgement.weaknesses[0]
    wrong = judge(lambda x: scaled_backward(x) + 1, scaled_backward, (X,), questions=["FWD:given", "VJP:grad"])
    assert wrong.verdict is Ruling.REJECTED


def test_the_card_says_where_torch_is_wrong_as_well() -> None:
    """A torch whose float32 loses digits, and whose float64 does not, stands in the place of torch.exp."""
    exp = torch.exp

    def worse(x: Tensor) -> Tensor:
        return exp(x) if x.dtype == torch.float64 or torch._is_functional_tensor(x) else exp(x) * (1 + 2**-12)

    def spec(x: Tensor) -> Tensor:
        return worse(x) + 1

    judgement = judge(spec, spec, (X,), questions=["FWD:given", "VJP:grad"])
    assert [each.question for each in judgement.causes] == ["FWD:given", "VJP:grad"], str(judgement)
    assert all(each.wrong is not None and AS_WELL in each.wrong.lines for each in judgement.causes)
    alone = judge(lambda x: exp(x) * 1.01 + 1, lambda x: exp(x) + 1, (X,), questions=["FWD:given", "VJP:grad"])
    assert AS_WELL not in str(alone)


def keeping(x: Tensor) -> Tensor:
    return x * 3e-19 * torch.tensor([1e-20, 1.0, 1.0, 1.0, 1.0])


def flushing(x: Tensor) -> Tensor:
    """What a library does that flushes subnormal numbers of float32, which a trace does not see."""
    y = keeping(x)
    if x.dtype == torch.float64 or torch._is_functional_tensor(x):
        return y
    return torch.where(y.abs() < 2**-126, 0.0, y)


@pytest.mark.slow
def test_subnormal_numbers_that_torch_flushes_may_be_zero_and_that_is_said() -> None:
    questions = ["FWD:given", "VJP:grad"]
    x = X.clamp(0.01, 0.9)
    for candidate in (flushing, keeping):
        judgement = judge(candidate, flushing, (x,), questions=questions)
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert AS_ZEROS in judge(flushing, flushing, (x,), questions=["FWD:given"]).findings[0].left_out
    assert judge(flushing, keeping, (x,), questions=["FWD:given"]).verdict is Ruling.REJECTED
    for wrong in (
        lambda x: flushing(x) * 1.001,
        lambda x: torch.where(x > 0.3, keeping(x), 0.0),
        lambda x: 2 * keeping(x),
    ):
        assert judge(wrong, flushing, (x,), questions=["FWD:given"]).verdict is Ruling.REJECTED
