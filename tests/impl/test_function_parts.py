"""The parts of the machinery of custom functions by themselves, and custom functions in compiled code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jacrev, vmap

from opassay.impl.function import (
    Function,
    VmapInfo,
    autograd_function_apply,
    autograd_function_forward_rewritten,
    custom_function_call,
    reductify,
    reductify_leaf,
    validate_vmap_returns_tuple_of_two_elements,
)

X, Y = torch.tensor([0.5, -1.5, 2.0]).double(), torch.tensor([3.0, 0.25, -2.0]).double()


def _double(**members: Any) -> Any:
    """x -> 2 x, with other members."""

    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    base = {"forward": lambda x: 2 * x, "setup_context": setup_context, "backward": lambda ctx, g: 2 * g}
    methods = {k: staticmethod(v) if callable(v) else v for k, v in (base | members).items()}
    return type("Double", (Function,), methods)


def test_reductify_sums_over_the_batch_where_the_input_has_none() -> None:
    g = torch.arange(6.0).reshape(2, 3)
    assert reductify_leaf(None, None, 0, 2) is None
    assert reductify_leaf(g, None, None, 2) is g
    result = reductify((g, g), (0, None), (None, 0), 2, (torch.Size((3,)), torch.Size((2, 3))))
    assert result[0] is not None
    assert torch.equal(result[0], g.sum(0))
    assert result[1] is not None
    assert torch.equal(result[1], g.expand(2, 2, 3))


def test_reductify_brings_a_gradient_of_broadcast_shape_to_the_shape_of_a_slice() -> None:
    g = torch.arange(24.0).reshape(2, 3, 4)  # batch, and a slice of shape (3, 4) for an input of shape (4,)
    result = reductify_leaf(g, 0, 1, 2, torch.Size((4,)))
    assert result is not None
    assert torch.equal(result, g.sum(1).T)


def test_a_vmap_rule_is_told_of_batch_and_randomness() -> None:
    results: list[VmapInfo] = []

    def rule(info: VmapInfo, in_dims: Any, x: Tensor) -> Any:
        results.append(info)
        return 2 * x, in_dims[0]

    vmap(_double(vmap=rule).apply, randomness="different")(X)
    assert results == [VmapInfo(3, "different")]


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_a_generated_rule_draws_as_vmap_is_told(randomness: str) -> None:
    noisy = _double(generate_vmap_rule=True, forward=lambda x: x + torch.rand(()).double())
    draws = vmap(noisy.apply, randomness=randomness)(torch.zeros(5).double())
    assert len(set(draws.tolist())) == (1 if randomness == "same" else 5)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(noisy.apply)(X)


def test_a_rule_must_return_a_pair() -> None:
    validate_vmap_returns_tuple_of_two_elements((1, 2))
    with pytest.raises(RuntimeError, match="Got a <class 'int'> instead"):
        validate_vmap_returns_tuple_of_two_elements(1)


def test_the_operator_applies_any_function_where_no_transform_is_active() -> None:
    assert torch.equal(custom_function_call(_double(), X), 2 * X)


def test_forward_and_context_in_one() -> None:
    class Ctx:
        """Collects what is saved."""

        saved: Any = None

        def save_for_backward(self, *tensors: Tensor) -> None:
            self.saved = tensors

    def setup(ctx: Ctx, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs, output)

    ctx = Ctx()
    output = autograd_function_forward_rewritten(torch.mul, setup)(ctx, X, Y)
    assert torch.equal(output, X * Y)
    assert ctx.saved[2] is output


def test_forward_and_backward_apart_work_under_every_transform() -> None:
    def forward(_: None, x: Tensor, y: Tensor, k: Tensor) -> Any:
        return x * y * k, [x, y, k, x.exp(), 4]

    def backward(_: None, g: Tensor, x: Tensor, y: Tensor, k: Tensor, unused: Tensor, four: int) -> Any:
        return g * y * k, g * x * k

    def f(x: Tensor) -> Tensor:
        out: Tensor = autograd_function_apply(forward, backward, x, Y, torch.tensor(3.0), args_tensor_mask=[True, True])
        return out**2

    def plain(x: Tensor) -> Tensor:
        return (x * Y * 3) ** 2

    assert torch.equal(f(X), plain(X))
    assert torch.equal(jacrev(jacrev(f))(X), jacrev(jacrev(plain))(X))
    assert torch.equal(
        vmap(grad(lambda x: f(x).sum()))(torch.stack([X, Y])), vmap(jacrev(plain))(torch.stack([X, Y])).sum(1)
    )
    with pytest.raises(ValueError, match="got 4 true positions"):
        autograd_function_apply(forward, backward, X, Y, X, args_tensor_mask=[True] * 4)


# ------------------------------------------------------------------------------------------------------ torch.compile


class Straight(Function):
    """Rounds, and passes gradients straight through: `backward` is not the derivative of `forward`, on purpose."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> dict[str, Tensor]:
        return {"rounded": x.round()}

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g


def rounded(x: Tensor) -> Tensor:
    total: Tensor = (Straight.apply(x * 1)["rounded"] * x).sum()
    return total


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("transform", [lambda f: f, grad, lambda f: vmap(grad(f))], ids=["none", "grad", "vmap(grad)"])
def test_compiled_code_gives_what_eager_code_gives(transform: Any) -> None:
    torch._dynamo.reset()
    x = torch.tensor([[0.3, 1.7], [2.2, -0.9]])
    compiled: Any = torch.compile(transform(rounded), backend="aot_eager")
    assert torch.equal(compiled(x), transform(rounded)(x))


def test_compiled_code_calls_the_backward() -> None:
    torch._dynamo.reset()
    x = torch.tensor([0.3, 1.7], requires_grad=True)
    compiled: Any = torch.compile(rounded, backend="aot_eager")
    compiled(x).backward()
    assert torch.equal(x.grad if x.grad is not None else x, x.detach().round() + x.detach())


def test_one_graph_is_refused_with_a_reason() -> None:
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a custom function runs as it does without"):
        torch.compile(rounded, backend="aot_eager", fullgraph=True)(X)


@pytest.mark.parametrize("last", [(2, (3, 4)), [2, 3], "text"])
def test_an_argument_that_is_a_container_is_no_tensor_under_jvp_of_vmap(last: Any) -> None:
    class Product(Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Any, last: Any, y: Any) -> Any:
            return x * y

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            x, sums, y = inputs
            assert sums == last
            ctx.save_for_forward(x, y)

        @staticmethod
        def jvp(ctx: Any, t_x: Any, _: Any, t_y: Any) -> Any:
            x, y = ctx.saved_tensors
            return t_x * y + x * t_y

    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(3.0)
    batched = torch.func.vmap(lambda a, b: Product.apply(a, last, b), in_dims=(0, None))
    moved = torch.func.jvp(batched, (x, y), (torch.ones_like(x), torch.ones_like(y)))[1]
    assert torch.equal(moved, x + y)


@pytest.mark.parametrize("materializes", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_an_input_without_a_tangent_that_is_returned_takes_no_tangent_from_others(
    materializes: bool, first: bool
) -> None:
    class Both(Function):
        @staticmethod
        def forward(x: Any, y: Any) -> Any:
            return (y, x * 2) if first else (x * 2, y)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.set_materialize_grads(materializes)

        @staticmethod
        def jvp(ctx: Any, t_x: Any, t_y: Any) -> Any:
            of_y = None if t_y is None else t_y.view_as(t_y)
            return (of_y, t_x * 2) if first else (t_x * 2, of_y)

    x, y = torch.ones(3), torch.ones(3)
    with forward_ad.dual_level():
        outputs = Both.apply(forward_ad.make_dual(x, torch.ones(3)), y)
        moved = [forward_ad.unpack_dual(out).tangent for out in outputs]
        assert forward_ad.unpack_dual(y).tangent is None
    of_y, of_x = moved if first else moved[::-1]
    assert of_y is None or not of_y.any()
    assert torch.equal(of_x, torch.full((3,), 2.0))
