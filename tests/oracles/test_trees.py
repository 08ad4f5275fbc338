"""Declared trees of sums: heights are those of real trees, what keeps to them is inside, and what does not out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound import trees
from opassay.oracles.bound.terms import terms
from opassay.oracles.bound.trees import ANY, tree
from opassay.reference.dtypes import HALF_TYPES

U = 2.0**-24
NAMES = ["pairwise", "blocks8", "blocks32", "lanes4", "lanes32", "height9"]
#: A node of a tree: the number of a term, or two nodes.
Node = Any


def _halves(nodes: Sequence[Node]) -> Node:
    if len(nodes) == 1:
        return nodes[0]
    middle = (len(nodes) + 1) // 2
    return _halves(nodes[:middle]), _halves(nodes[middle:])


def _chain(nodes: Sequence[Node]) -> Node:
    first, *others = nodes
    for each in others:
        first = (first, each)
    return first


def _built(name: str, order: Sequence[int]) -> Node:
    """A tree of the kind over terms in an order."""
    promise = tree(name)
    if promise.kind == "blocks":
        starts = range(0, len(order), promise.size)
        return _halves([_chain(order[i : i + promise.size]) for i in starts])
    if promise.kind == "lanes":
        return _halves([_chain(order[i :: promise.size]) for i in range(min(promise.size, len(order)))])
    return _halves(order)


def _of_height(order: Sequence[int], height: int, draws: np.random.Generator) -> Node:
    """A random tree of at most that height: as lopsided as it may be, or anything less."""
    if len(order) == 1:
        return order[0]
    least = max(1, len(order) - 2 ** (height - 1))
    split = int(draws.integers(least, min(len(order) - 1, 2 ** (height - 1)) + 1))
    if draws.random() < 0.5:
        split = least
    return _of_height(order[:split], height - 1, draws), _of_height(order[split:], height - 1, draws)


def _height_of(node: Node) -> int:
    return 1 + max(map(_height_of, node)) if isinstance(node, tuple) else 0


def _add(node: Node, terms_: Sequence[float], rounded: Callable[[float], float]) -> float:
    if not isinstance(node, tuple):
        return terms_[node]
    return rounded(_add(node[0], terms_, rounded) + _add(node[1], terms_, rounded))


def _up(value: float) -> float:
    return value + U * abs(value)


def _down(value: float) -> float:
    return value - U * abs(value)


def _nearest(value: float) -> float:
    return float(np.float32(value))


ROUNDINGS = [_up, _down, _nearest]


def _tensor(shape: tuple[int, ...], draws: np.random.Generator, positive: bool) -> Tensor:
    values = draws.standard_normal(shape).astype(np.float32)
    return torch.from_numpy(np.abs(values) if positive else values)


def _bound(spec: Callable[..., Tensor], *inputs: Tensor, contract: str) -> opassay.Bound:
    bound = opassay.bound(spec, *inputs, contract=contract)
    assert isinstance(bound, opassay.Bound)
    return bound


@pytest.mark.parametrize("name", NAMES)
def test_a_height_is_that_of_the_tree_that_it_names(name: str) -> None:
    promise = tree(name)
    for count in (1, 2, 3, 7, 8, 9, 31, 33, 100, 257):
        built = _height_of(_built(name, range(count)))
        if promise.kind == "height":
            assert promise.height(count) == min(count - 1, max(promise.size, (count - 1).bit_length()))
        else:
            assert built == promise.height(count), count
    assert ANY.height(257) == 256
    only = tree("height9of64")
    assert (only.height(64), only.height(65)) == (9, 64)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("positive", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_what_keeps_to_its_tree_is_inside(name: str, positive: bool) -> None:
    draws = np.random.default_rng(7)
    for count in (5, 64, 200):
        x = _tensor((count,), draws, positive)
        bound = _bound(lambda x: x.sum(), x, contract=f"torch+{name}")
        radius = float(bound.half_width)
        shares = []
        for _ in range(12):
            order = [int(i) for i in draws.permutation(count)]
            for node in (_built(name, order), _of_height(order, tree(name).height(count), draws)):
                assert _height_of(node) <= tree(name).height(count)
                for rounded in ROUNDINGS:
                    error = abs(_add(node, x.tolist(), rounded) - float(bound.centre))
                    assert error <= radius
                    shares.append(error / radius)
        assert not positive or max(shares) > 0.5  # and it is not wider than that


def test_a_height_that_is_too_low_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trees._HEIGHTS, "pairwise", lambda n, _: (n - 1).bit_length() - 2)
    x = _tensor((64,), np.random.default_rng(7), True)
    bound = _bound(lambda x: x.sum(), x, contract="torch+pairwise")
    assert _add(_halves(range(64)), x.tolist(), _up) - float(bound.centre) > float(bound.half_width)


@pytest.mark.parametrize("name", NAMES)
def test_products_keep_to_their_tree_fused_or_not_and_begin_with_what_is_added(name: str) -> None:
    draws, count = np.random.default_rng(8), 96
    a, b, c = (_tensor(shape, draws, True) for shape in ((1, count), (count, 1), (1, 1)))
    c *= 1000.0
    product = _bound(lambda a, b: a @ b, a, b, contract=f"torch+{name}")
    begun = _bound(lambda a, b, c: c + a @ b, a, b, c, contract=f"torch+{name}")
    exact = [x * y for x, y in zip(a.reshape(-1).tolist(), b.reshape(-1).tolist(), strict=True)]
    for _ in range(12):
        node = _built(name, [int(i) for i in draws.permutation(count)])
        for rounded in ROUNDINGS:
            separate = [rounded(x) for x in exact]
            computed = _add(node, separate, rounded)
            assert abs(computed - float(product.centre)) <= float(product.half_width)
            fused = list(exact)
            fused[0] = rounded(fused[0])  # the first of a chain has no sum to be fused with
            assert abs(_add(node, fused, rounded) - float(product.centre)) <= float(product.half_width)
            for place in (0, count // 2):  # the accumulator of one chain begins with c
                begins = list(separate)
                begins[place] = rounded(float(c) + begins[place])
                assert abs(_add(node, begins, rounded) - float(begun.centre)) <= float(begun.half_width)


@pytest.mark.parametrize("name", ["pairwise", "blocks32", "lanes32"])
def test_one_after_another_is_outside_of_a_tree(name: str) -> None:
    # Each of these additions to a number from 1 on is off by half an ulp, and upwards.
    count = 1024
    x = torch.full((1, count), 2.0**-24 * (1.0 + 2.0**-10))
    x[0, 0] = 1.0

    def one_after_another(x: Tensor) -> Tensor:
        total = x[:, 0]
        for i in range(1, x.shape[1]):
            total = total + x[:, i]
        return total

    def in_halves(x: Tensor) -> Tensor:
        while x.shape[1] > 1:
            x = x[:, 0::2] + x[:, 1::2]
        return x[:, 0]

    def spec(x: Tensor) -> Tensor:
        return x.sum(1)

    wrong = opassay.judge(one_after_another, spec, (x,), contract=f"torch+{name}", questions=("FWD:given",))
    assert wrong.verdict.value == "rejected"
    assert f"sums added {tree(name)}" in str(wrong)
    for candidate, contract in ((in_halves, f"torch+{name}"), (one_after_another, "torch")):
        assert (
            opassay.judge(candidate, spec, (x,), contract=contract, questions=("FWD:given",)).verdict.value
            != "rejected"
        )


def test_long_sums_are_many_times_narrower_and_other_orders_keep_theirs() -> None:
    x, w = _tensor((4, 4096), np.random.default_rng(9), False), _tensor((4096, 4), np.random.default_rng(10), False)
    narrower: dict[str, float] = {}
    for name, spec, inputs in (
        ("sum", lambda x: x.sum(-1), (x,)),
        ("product", lambda x, w: x @ w, (x, w)),
        ("cumsum", lambda x: x.cumsum(-1), (x,)),
    ):
        wide, narrow = (_bound(spec, *inputs, contract=c).half_width for c in ("torch", "torch+pairwise"))
        narrower[name] = float((wide / narrow).median())
    assert narrower["sum"] > 100.0
    assert narrower["product"] > 100.0
    assert narrower["cumsum"] == 1.0  # each of its sums has another place in a scan


def test_cuts_of_tensor_cores_count_along_a_tree_of_half_types() -> None:
    for dtype in HALF_TYPES:
        assert terms("torch+pairwise").contract(dtype).products.sums == 2.5
        assert terms("torch").contract(dtype).products.sums == 1.0
    assert terms("torch+pairwise").contract("float32").products.sums == 1.0


@pytest.mark.parametrize("name", ["pairwise3", "blocks", "blocks0", "lanes-1", "height", "height3of", "heights3", " "])
def test_a_tree_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="tree: got "):
        tree(name)
    with pytest.raises(ValueError, match=r"contract: got allowance .*need one of .*pairwise, blocks32"):
        terms(f"torch+{name}")


class _Directed:
    """Operations in float64, each off by the signs that were handed in; without signs it notes what each is off by."""

    def __init__(self, signs: Sequence[Tensor] = ()) -> None:
        self.signs, self.errors = list(signs), list[Tensor]()

    def off(self, exact: Tensor, times: float = 1.0) -> Tensor:
        index = len(self.errors)
        self.errors.append(self.signs[index] if self.signs else torch.zeros_like(exact).requires_grad_())
        return exact + exact.detach().abs() * (U * times) * self.errors[index]

    def total(self, x: Tensor) -> Tensor:
        while x.shape[-1] > 1:
            even = x.shape[-1] // 2 * 2
            x = torch.cat([self.off(x[..., 0:even:2] + x[..., 1:even:2]), x[..., even:]], -1)
        return x[..., 0]

    def product(self, a: Tensor, b: Tensor) -> Tensor:
        return self.total(self.off(a.unsqueeze(-2) * b.transpose(-1, -2)))


def _mlp(at: _Directed, x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    hidden = at.product(x, w)
    return at.product(at.off(hidden * at.off(torch.sigmoid(hidden), 2.0)), v)


def _attention(at: _Directed, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = at.product(q, k.T)
    powers = at.off(torch.exp(at.off(scores - scores.amax(-1, keepdim=True))), 2.0)
    return at.product(at.off(powers / at.total(powers).unsqueeze(-1), 2.0), v)


_CHAINS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "mlp": (lambda x, w, v: torch.nn.functional.silu(x @ w) @ v, _mlp),
    "attention": (lambda q, k, v: torch.softmax(q @ k.T, -1) @ v, _attention),
}


@pytest.mark.parametrize(("features", "others"), [(64, 33), (5, 40), (3, 3)])
@pytest.mark.parametrize("name", list(_CHAINS))
def test_chains_of_products_in_halves_are_inside_when_all_errors_push_one_way(
    name: str, features: int, others: int
) -> None:
    (spec, evaluate), draws = _CHAINS[name], np.random.default_rng(11)
    shapes = {
        "mlp": ((2, features), (features, others), (others, 3)),
        "attention": ((2, features), (others, features), (others, 3)),
    }[name]
    inputs = [_tensor(shape, draws, False) for shape in shapes]
    wide = [x.double() for x in inputs]
    bound = _bound(spec, *inputs, contract="torch+pairwise")
    for element in range(bound.centre.numel()):
        probe = _Directed()
        result = evaluate(probe, *wide).reshape(-1)[element]
        slopes = torch.autograd.grad(result, probe.errors, allow_unused=True, materialize_grads=True)
        for way in (1.0, -1.0):
            computed = evaluate(_Directed([slope.sign() * way for slope in slopes]), *wide)
            assert bool(((computed - bound.centre).abs() <= bound.half_width).all())
