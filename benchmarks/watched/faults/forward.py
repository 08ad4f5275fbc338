"""Wrong forward passes of the hand-written parts, each as somebody might write it."""

from __future__ import annotations

import torch
from torch import Tensor

from . import regions
from .regions import IGNORED, KEPT_SHARE, SMOOTHING, attend, embed, entropy, future, gate, norm, project, rotate

# ------------------------------------------------------------------------------------------- norm(x, w, eps) -> y, r


def add_ten_times_epsilon(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return norm(x, w, 10 * eps)


def add_epsilon_outside_the_root(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r = 1 / (x.square().mean(-1, keepdim=True).sqrt() + eps)
    return x * r * w, r


def accumulate_squares_in_bfloat16(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r = torch.rsqrt(x.bfloat16().square().mean(-1, keepdim=True).to(x.dtype) + eps)
    return x * r * w, r


def lose_the_last_column_in_the_last_row(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    square = x.square()
    square[:, -1, -1] = 0
    r = torch.rsqrt(square.mean(-1, keepdim=True) + eps)
    return x * r * w, r


def divide_by_one_less(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    r = torch.rsqrt(x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + eps)
    return x * r * w, r


def leave_a_row_of_the_buffer_stale(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    y, r = norm(x, w, eps)
    y[-1, -1] = y[-1, -2]
    return y, r


def round_the_weight_to_half(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return norm(x, w.half().to(w.dtype), eps)


def leave_the_tail_uninitialised(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    y, r = norm(x, w, eps)
    y[-1, -1, -4:] = 1.4e-45
    return y, r


def take_off_the_mean(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    return norm(x - x.mean(-1, keepdim=True), w, eps)


def approximate_the_root_by_one_step(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    square = x.square().mean(-1, keepdim=True) + eps
    r = torch.rsqrt(square.bfloat16()).to(x.dtype)
    r = r * (1.5 - 0.5 * square * r * r)
    return x * r * w, r


# ---------------------------------------------------------------------------------------------------- gate(a, b) -> y


def zero_the_tail(a: Tensor, b: Tensor) -> Tensor:
    y = gate(a, b)
    y.view(-1)[-3:] = 0
    return y


def shorten_the_constant(a: Tensor, b: Tensor) -> Tensor:
    return a / (1 + torch.exp2(-1.44 * a)) * b


def scale_by_two_millionths_more(a: Tensor, b: Tensor) -> Tensor:
    return gate(a, b) * (1 + 2e-6)


def clamp_the_exponent(a: Tensor, b: Tensor) -> Tensor:
    return a / (1 + torch.exp((-a).clamp(-0.5, 0.5))) * b


def swap_gate_and_value_in_a_row(a: Tensor, b: Tensor) -> Tensor:
    y = gate(a, b)
    y[0, 5] = gate(b[0, 5], a[0, 5])
    return y


def approximate_the_sigmoid(a: Tensor, b: Tensor) -> Tensor:
    return a * (0.5 + 0.25 * a - a.pow(3) / 48 + a.pow(5) / 480) * b


# --------------------------------------------------------------------------------------------- rotate(x, cos, sin) -> y


def start_at_position_one(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(x, cos.roll(-1, 0), sin.roll(-1, 0))


def turn_the_other_way(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(x, cos, -sin)


def turn_neighbours_instead_of_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)


def round_the_angles_to_bfloat16(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(x, cos.bfloat16().to(x.dtype), sin.bfloat16().to(x.dtype))


def leave_the_last_head_unturned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    y = rotate(x, cos, sin)
    y[:, -1] = x[:, -1]
    return y


# ---------------------------------------------------------------------------------------- attend(q, k, v, keep) -> y


def _weigh(scores: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(scores, -1) * keep / KEPT_SHARE @ v


def _score(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5


def scale_by_one_percent_more(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return attend(1.01 * q, k, v, keep)


def see_one_token_ahead(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return _weigh(_score(q, k).masked_fill(future(q).triu(2), -torch.inf), v, keep)


def unmask_one_score(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    mask = future(q)
    mask[7, 8] = False
    return _weigh(_score(q, k).masked_fill(mask, -torch.inf), v, keep)


def mask_by_a_small_number(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return _weigh(_score(q, k).masked_fill(future(q), -10.0), v, keep)


def swap_the_heads_of_keys(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return attend(q, k.roll(1, 1), v, keep)


def weigh_in_bfloat16(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    scores = _score(q, k).masked_fill(future(q), -torch.inf)
    return _weigh_rounded(torch.softmax(scores.bfloat16(), -1).to(q.dtype), v, keep)


def _weigh_rounded(weights: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return weights * keep / KEPT_SHARE @ v


def forget_the_maximum(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    powers = torch.exp(_score(q, k).masked_fill(future(q), -torch.inf))
    return powers / powers.sum(-1, keepdim=True) * keep / KEPT_SHARE @ v


def forget_the_scale_of_dropout(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    return attend(q, k, v, keep * KEPT_SHARE)


def drop_before_the_sum_of_powers(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    scores = _score(q, k).masked_fill(future(q) | (keep == 0), -torch.inf)
    return torch.softmax(scores, -1).nan_to_num() @ v


def repeat_the_last_column(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    y = attend(q, k, v, keep)
    return torch.cat([y[..., :-1], y[..., -2:-1]], -1)


# ----------------------------------------------------------------------------------------------- project(x, w, b) -> y


def transpose_the_weight(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return project(x, w.T, b)


def lose_the_bias_of_the_tail(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return project(x, w, torch.cat([b[:-4], torch.zeros_like(b[-4:])]))


def multiply_in_bfloat16(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return (x.bfloat16() @ w.bfloat16().T).to(x.dtype) + b


def end_the_sum_a_tile_early(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return project(x[..., :-8], w[:, :-8], b)


# ------------------------------------------------------------------------------- entropy(logits, labels) -> loss, lse


def count_ignored_rows(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss, lse = entropy(logits, labels)
    return loss * (labels != IGNORED).sum() / len(labels), lse


def forget_to_ignore(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return entropy(logits, labels.clamp(min=0))


def forget_the_smoothing(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    loss, lse = entropy(logits, labels)
    right = logits.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
    off = torch.where(labels != IGNORED, SMOOTHING * (logits.mean(-1) - right), 0)
    return loss + off.sum() / (labels != IGNORED).sum(), lse


def count_the_last_row_twice(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    twice = torch.cat([labels, labels[-1:]])
    loss, _ = entropy(torch.cat([logits, logits[-1:]]), twice)
    return loss * (twice != IGNORED).sum() / (labels != IGNORED).sum(), entropy(logits, labels)[1]


# ------------------------------------------------------------------------------------------ embed(table, tokens) -> y


def take_the_row_before(table: Tensor, tokens: Tensor) -> Tensor:
    y = embed(table, tokens)
    y[0, 0] = table[tokens[0, 0] - 1]
    return y


#: The part whose place each takes.
PARTS = {
    "norm": (
        add_ten_times_epsilon,
        add_epsilon_outside_the_root,
        accumulate_squares_in_bfloat16,
        lose_the_last_column_in_the_last_row,
        divide_by_one_less,
        leave_a_row_of_the_buffer_stale,
        round_the_weight_to_half,
        leave_the_tail_uninitialised,
        take_off_the_mean,
        approximate_the_root_by_one_step,
    ),
    "gate": (
        zero_the_tail,
        shorten_the_constant,
        scale_by_two_millionths_more,
        clamp_the_exponent,
        swap_gate_and_value_in_a_row,
        approximate_the_sigmoid,
    ),
    "rotate": (
        start_at_position_one,
        turn_the_other_way,
        turn_neighbours_instead_of_halves,
        round_the_angles_to_bfloat16,
        leave_the_last_head_unturned,
    ),
    "attend": (
        scale_by_one_percent_more,
        see_one_token_ahead,
        unmask_one_score,
        mask_by_a_small_number,
        swap_the_heads_of_keys,
        weigh_in_bfloat16,
        forget_the_maximum,
        forget_the_scale_of_dropout,
        drop_before_the_sum_of_powers,
        repeat_the_last_column,
    ),
    "project": (transpose_the_weight, lose_the_bias_of_the_tail, multiply_in_bfloat16, end_the_sum_a_tile_early),
    "entropy": (count_ignored_rows, forget_to_ignore, forget_the_smoothing, count_the_last_row_twice),
    "embed": (take_the_row_before,),
}
assert set(PARTS) <= set(regions.RIGHT)
