"""`python -m workshop probe`: the tree of a function's sums is that which it has, and a contract holds it to that."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import opassay
from opassay.properties.candidates.judgement import Judgement, Ruling
from tests.workshop.calling import workshop
from workshop.probing.isolated_sum import ProbeError
from workshop.probing.tree_probe import probe

Sum = Callable[[Tensor], Tensor]
VALUES = ("FWD:given", "FWD:signs", "FWD:offset", "FWD:small")


def _total(x: Tensor) -> Tensor:
    return x.sum(-1)


def _one_after_another(x: Tensor) -> Tensor:
    wide = x.float() if x.element_size() == 2 else x
    total = wide[..., 0]
    for i in range(1, x.shape[-1]):
        total = total + wide[..., i]
    return total.to(x.dtype)


def _in_halves(x: Tensor) -> Tensor:
    wide = x.float() if x.element_size() == 2 else x
    while wide.shape[-1] > 1:
        even = wide.shape[-1] // 2 * 2
        wide = torch.cat([wide[..., 0:even:2] + wide[..., 1:even:2], wide[..., even:]], -1)
    return wide[..., 0].to(x.dtype)


def _in_blocks(x: Tensor) -> Tensor:
    return _in_halves(torch.stack([_one_after_another(part) for part in x.split(32, -1)], -1))


def _in_lanes(x: Tensor) -> Tensor:
    wide = x.float() if x.element_size() == 2 else x
    return _in_halves(torch.stack([_one_after_another(wide[..., lane::8]) for lane in range(8)], -1)).to(x.dtype)


def _four_at_once(x: Tensor) -> Tensor:
    """Four terms are shifted to the exponent of the largest, and what lies below 24 bits is cut off."""
    wide = x.double()
    while wide.shape[-1] > 1:
        wide = F.pad(wide, (0, -wide.shape[-1] % 4)).unflatten(-1, (-1, 4))
        unit = torch.exp2(torch.floor(torch.log2(wide.abs().amax(-1, keepdim=True))) - 23.0)
        unit = torch.where(unit > 0, unit, 1.0)
        wide = (torch.trunc(wide / unit) * unit).sum(-1)
    return wide[..., 0].to(x.dtype)


def _in_doubles(x: Tensor) -> Tensor:
    return _in_halves(x.double()).to(x.dtype)


def _exactly(x: Tensor) -> Tensor:
    return torch.tensor([math.fsum(row) for row in x.tolist()], dtype=x.dtype)


def _normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def _judge(
    candidate: Callable[..., Tensor], spec: Callable[..., Tensor], *inputs: Tensor, questions: tuple[str, ...] = VALUES
) -> Judgement:
    contract = f"torch+{probe(candidate, spec, inputs).name}"
    return opassay.judge(candidate, spec, inputs, contract=contract, questions=questions)


def _height(judgement: Judgement) -> tuple[int, int]:
    """The height that a judgement tells, and of how many terms."""
    numbers = re.search(r"tree of height (\d+) where they have (\d+) terms", judgement.assignment.contract)
    assert numbers is not None, judgement.assignment.contract
    return int(numbers[1]), int(numbers[2])


@pytest.mark.parametrize(
    ("candidate", "terms", "height"),
    [
        (_one_after_another, 64, 63),
        (_in_halves, 64, 6),
        (_in_halves, 100, 7),
        (_in_blocks, 256, 31 + 3),
        (_in_lanes, 256, 31 + 3),
        (_four_at_once, 256, 3 * 4),
        (_in_doubles, 256, 8),
    ],
)
def test_the_height_is_that_of_the_candidate(candidate: Sum, terms: int, height: int) -> None:
    judgement = _judge(candidate, _total, _normal(5, terms))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert _height(judgement) == (height, terms)
    assert "1 tree in 5 outputs" in str(probe(candidate, _total, (_normal(5, terms),)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_formats_of_few_digits_are_probed_in_parts(dtype: torch.dtype) -> None:
    # bfloat16 counts to 256, and binary16 has few numbers between M and a unit.
    for candidate, height in ((_in_halves, 9), (_in_lanes, 37 + 3)):
        judgement = _judge(candidate, _total, _normal(7, 300, dtype=dtype))
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
        assert _height(judgement) == (height, 300)


def test_a_scale_counts_where_it_rounds() -> None:
    for terms, height in ((256, 8), (300, 9 + 2)):
        for scaled in (lambda x: _in_halves(x) / x.shape[-1], lambda x: _in_halves(x * (1.0 / x.shape[-1]))):
            judgement = _judge(scaled, lambda x: x.mean(-1), _normal(3, terms))
            assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
            assert _height(judgement) == (height, terms)


def test_of_several_trees_the_tallest_counts() -> None:
    def by_row(x: Tensor) -> Tensor:
        return torch.cat([_in_halves(x[:3]), _one_after_another(x[3:4]), _in_lanes(x[4:])])

    judgement = _judge(by_row, _total, _normal(6, 64))
    assert _height(judgement) == (63, 64)
    assert "3 trees in 6 outputs" in str(probe(by_row, _total, (_normal(6, 64),)))

    def by_column(x: Tensor, w: Tensor) -> Tensor:
        products = x[:, None, :] * w.T[None]
        return torch.cat([_in_halves(products[:, :3]), _in_lanes(products[:, 3:])], -1)

    judgement = _judge(by_column, torch.matmul, _normal(4, 64), _normal(64, 5))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert _height(judgement) == (7 + 3, 64)
    assert "2 trees in 20 outputs" in str(probe(by_column, torch.matmul, (_normal(4, 64), _normal(64, 5))))


def test_bounds_are_many_times_narrower_than_in_any_order() -> None:
    x = _normal(32, 2048)
    height, terms = _height(_judge(_in_halves, _total, x, questions=("FWD:given",)))
    assert (height, terms) == (11, 2048)
    wide, narrow = (opassay.bound(_total, x, contract=f"torch{tree}") for tree in ("", f"+height{height}of{terms}"))
    assert isinstance(wide, opassay.Bound)
    assert isinstance(narrow, opassay.Bound)
    assert float((wide.half_width / narrow.half_width).median()) > 80.0


def test_a_fault_within_any_order_is_outside_of_the_tree() -> None:
    def off(x: Tensor) -> Tensor:
        return _in_halves(x) * (1.0 + 2.0**-18)

    x = _normal(16, 1024).abs()
    assert opassay.judge(off, _total, (x,), questions=VALUES).verdict is not Ruling.REJECTED
    judgement = _judge(off, _total, x)
    assert _height(judgement) == (10, 1024)
    assert judgement.verdict is Ruling.REJECTED
    assert "sums added along a tree of height 10" in str(judgement.causes[0].wrong)


def test_who_adds_in_another_order_at_masks_is_held_to_what_it_showed() -> None:
    def two_faced(x: Tensor) -> Tensor:
        return _in_halves(x) if float(x.abs().max()) > 1e30 else _one_after_another(x)

    # Each of these additions to a number from 1 on is off by half an ulp, and upwards.
    x = torch.full((16, 1024), 2.0**-24 * (1.0 + 2.0**-10))
    x[:, 0] = 1.0
    assert opassay.judge(two_faced, _total, (x,), questions=("FWD:given",)).verdict is not Ruling.REJECTED
    judgement = _judge(two_faced, _total, x, questions=("FWD:given",))
    assert judgement.verdict is Ruling.REJECTED
    assert _height(judgement) == (10, 1024)


def test_who_shows_no_tree_is_an_error() -> None:
    draws = torch.Generator().manual_seed(0)

    def in_any_order(x: Tensor) -> Tensor:
        return _one_after_another(x[..., torch.randperm(x.shape[-1], generator=draws)])

    def in_order_of_size(x: Tensor) -> Tensor:
        return _in_halves(x.gather(-1, x.abs().argsort(-1)))

    def of_moderate_size(x: Tensor) -> Tensor:
        if float(x.abs().max()) > 1e30:
            raise OverflowError("too large")
        return _in_halves(x)

    for candidate, why in (
        (_exactly, "no term is lost beside a large one"),
        (in_any_order, "shows no tree"),
        (in_order_of_size, "shows no tree"),
        (of_moderate_size, r"raises where terms are 1\.3\d*e\+36: OverflowError: too large"),
    ):
        with pytest.raises(ValueError, match=why):
            _judge(candidate, _total, _normal(5, 64))


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (lambda x: torch.softmax(x, -1), "gives no sums of elements"),
        (lambda x: x.abs().sum(-1), "gives no sums of elements"),
        (lambda x: (x * x).sum(-1), "gives no sums of elements"),
        (lambda x: x.cumsum(-1), "gives no sums of elements"),
        (lambda x: x.sum(-1) + 3.0, "gives no sums of elements"),
        (lambda x: x.amax(-1), "adds up 0 times"),
        (lambda x: x @ x.mT @ x, "adds up 2 times"),
        (lambda x: F.layer_norm(x, x.shape[-1:]), r"adds up \d times"),
        ("trace", "is a formula in NumPy"),
    ],
)
def test_a_spec_of_which_no_sum_can_be_isolated_is_an_error(spec: object, why: str) -> None:
    with pytest.raises(ProbeError, match=why):
        probe(lambda x: x, spec, (_normal(4, 4),))


def test_memory_in_common_is_an_error() -> None:
    with pytest.raises(ProbeError, match="share memory"):
        probe(_total, _total, (torch.zeros(1, 64).expand(3, 64),))


def _own_cases(lengths: tuple[int, ...], seed: int) -> list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]]:
    cases: list[tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = []
    for i, n in enumerate(lengths):
        rows, columns = 2 + (seed + 5 * i) % 9, 1 + (seed + 7 * i) % 37
        x, w, b = _normal(rows, n, seed=seed), _normal(n, columns, seed=seed + 1), _normal(columns, seed=seed + 2)
        # Of positive numbers errors are the largest share of a bound.
        x, w, b = (x, w, b) if (seed + i) % 2 else (x.abs(), w.abs(), b.abs())
        cases += [(lambda x: x.sum(-1), (x,)), (lambda x: x.sum(0), (w,)), (lambda x: x.mean(-1), (x,))]
        cases += [(torch.matmul, (x, w)), (F.linear, (x, w.T.contiguous(), b))]
    return cases


def _refusals(lengths: tuple[int, ...], seed: int) -> list[str]:
    judgements = [_judge(spec, spec, *inputs) for spec, inputs in _own_cases(lengths, seed)]
    assert all(0 < height < terms for height, terms in map(_height, judgements))
    return [str(judgement) for judgement in judgements if judgement.verdict is not Ruling.ACCEPTED]


def test_torch_keeps_to_its_own_trees() -> None:
    assert _refusals((2, 17, 64, 200), seed=0) == []
    x, linear = _normal(6, 100), torch.nn.Linear(100, 7)
    assert probe(linear, linear, (x,)).name.endswith("of100")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 13))
def test_torch_keeps_to_its_own_trees_at_many_lengths(seed: int) -> None:
    lengths = (4 + seed, 31 + 2 * seed, 250 + 3 * seed, (1000, 1024, 1536, 2048, 3000, 4096)[seed % 6])
    assert _refusals(lengths, seed) == []


def test_the_command_names_the_tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "import torch\ndef {name}(x): return x.{body}\ndef get_inputs(): return [torch.randn(4, 64)]\n"
    for name, body in (("sums", "sum(-1)"), ("softmax", "softmax(-1)")):
        (tmp_path / f"spec_{name}.py").write_text(text.format(name="reference", body=body))
        (tmp_path / f"{name}.py").write_text(text.format(name="candidate", body=body))
    codes = [
        workshop(["probe", f"{tmp_path}/{n}.py", "--spec", f"{tmp_path}/spec_{n}.py"]) for n in ("sums", "softmax")
    ]
    output = capsys.readouterr()
    assert codes == [0, 2]
    assert re.match(r"torch\+height\d+of64: 1 tree in 4 outputs", output.out)
    assert "reference gives no sums" in output.err
