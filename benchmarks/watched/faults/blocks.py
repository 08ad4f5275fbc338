"""Blocks that are put together wrongly, of calls that are each right."""

from __future__ import annotations

from torch import Tensor

from .model import HEADS, Block
from .regions import EPS, Gate, Norm, Project, planted_rotate


def _norms(block: Block, x: Tensor) -> tuple[Tensor, Tensor]:
    return Norm.apply(x, block.scale1, EPS), Norm.apply(x, block.scale2, EPS)


def lose_the_first_residual(block: Block, x: Tensor) -> Tensor:
    x = block.attend(Norm.apply(x, block.scale1, EPS))
    return x + block.feed(Norm.apply(x, block.scale2, EPS))


def lose_the_second_residual(block: Block, x: Tensor) -> Tensor:
    x = x + block.attend(Norm.apply(x, block.scale1, EPS))
    return block.feed(Norm.apply(x, block.scale2, EPS))


def feed_before_attention(block: Block, x: Tensor) -> Tensor:
    x = x + block.feed(Norm.apply(x, block.scale2, EPS))
    return x + block.attend(Norm.apply(x, block.scale1, EPS))


def take_both_parts_of_one_input(block: Block, x: Tensor) -> Tensor:
    first, second = _norms(block, x)
    return x + block.attend(first) + block.feed(second)


def norm_after_the_sum(block: Block, x: Tensor) -> Tensor:
    x = Norm.apply(x + block.attend(x), block.scale1, EPS)
    return Norm.apply(x + block.feed(x), block.scale2, EPS)


def swap_the_weights_of_the_norms(block: Block, x: Tensor) -> Tensor:
    x = x + block.attend(Norm.apply(x, block.scale2, EPS))
    return x + block.feed(Norm.apply(x, block.scale1, EPS))


def add_the_normed_input(block: Block, x: Tensor) -> Tensor:
    y = Norm.apply(x, block.scale1, EPS)
    x = y + block.attend(y)
    return x + block.feed(Norm.apply(x, block.scale2, EPS))


def swap_gate_and_value(block: Block, x: Tensor) -> Tensor:
    x = x + block.attend(Norm.apply(x, block.scale1, EPS))
    y = Norm.apply(x, block.scale2, EPS)
    return x + block.down(Gate.apply(block.up(y), block.open(y)))


def turn_queries_alone(block: Block, x: Tensor) -> Tensor:
    q, k, v = block.qkv(Norm.apply(x, block.scale1, EPS)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    y = block.attention(planted_rotate(q, block.cos, block.sin), k, v).transpose(1, 2).flatten(2)
    x = x + Project.apply(y, block.mixed.weight, block.mixed.bias)
    return x + block.feed(Norm.apply(x, block.scale2, EPS))


def read_heads_before_projections(block: Block, x: Tensor) -> Tensor:
    q, k, v = block.qkv(Norm.apply(x, block.scale1, EPS)).unflatten(-1, (HEADS, 3, -1)).permute(3, 0, 2, 1, 4)
    q, k = planted_rotate(q, block.cos, block.sin), planted_rotate(k, block.cos, block.sin)
    y = block.attention(q, k, v).transpose(1, 2).flatten(2)
    x = x + Project.apply(y, block.mixed.weight, block.mixed.bias)
    return x + block.feed(Norm.apply(x, block.scale2, EPS))


PARTS = {
    "compose": (
        lose_the_first_residual,
        lose_the_second_residual,
        feed_before_attention,
        take_both_parts_of_one_input,
        norm_after_the_sum,
        swap_the_weights_of_the_norms,
        add_the_normed_input,
        swap_gate_and_value,
        turn_queries_alone,
        read_heads_before_projections,
    )
}
