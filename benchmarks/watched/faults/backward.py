"""Wrong backward passes of the hand-written parts, behind right forward passes."""

from __future__ import annotations

import torch
from torch import Tensor

from . import regions
from .regions import SMOOTHING, embed_backward, entropy_backward, gate_backward, norm_backward, project_backward, rotate

# ------------------------------------------------------------------------------ norm_backward(g, x, w, r) -> dx, dw


def lose_the_term_of_the_root(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    return g * w * r, norm_backward(g, x, w, r)[1]


def square_instead_of_cube(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    product = ((g * w) * x).sum(-1, keepdim=True)
    return g * w * r - x * product * r.square() / x.shape[-1], norm_backward(g, x, w, r)[1]


def divide_the_term_by_one_less(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    product = ((g * w) * x).sum(-1, keepdim=True)
    return g * w * r - x * product * r.pow(3) / (x.shape[-1] - 1), norm_backward(g, x, w, r)[1]


def sum_the_weight_gradient_in_bfloat16(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    rows = (g * x * r).flatten(0, -2).bfloat16()
    return norm_backward(g, x, w, r)[0], rows.cumsum(0)[-1].to(w.dtype)


def lose_the_last_row_of_the_weight_gradient(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    return norm_backward(g, x, w, r)[0], (g * x * r).flatten(0, -2)[:-1].sum(0)


def forget_the_weight_in_the_product(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    product = (g * x).sum(-1, keepdim=True)
    return g * w * r - x * product * r.pow(3) / x.shape[-1], norm_backward(g, x, w, r)[1]


def save_the_root_in_bfloat16(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    return norm_backward(g, x, w, r.bfloat16().to(r.dtype))


# -------------------------------------------------------------------------------- gate_backward(g, a, b) -> da, db


def lose_the_slope_of_the_sigmoid(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return g * b * torch.sigmoid(a), gate_backward(g, a, b)[1]


def roll_the_rows_of_the_cotangent(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return gate_backward(g.roll(1, 0), a, b)


def read_the_cotangent_by_another_stride(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    return gate_backward(g.contiguous().view(-1, g.shape[1]).T.reshape(g.shape), a, b)


def add_the_gradient_twice(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    da, db = gate_backward(g, a, b)
    db[0] += db[0]
    return da, db


def overwrite_the_cotangent(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    g = g.clone()
    s = torch.sigmoid(a)
    da = g.mul_(b * (s + a * s * (1 - s)))
    return da, g * a * s


# ------------------------------------------------------------------------------- rotate_backward(g, cos, sin) -> dx


def turn_forward_again(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(g, cos, sin)


def turn_back_by_a_position_more(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(g, cos.roll(-1, 0), -sin.roll(-1, 0))


# ------------------------------------------------------------------------- project_backward(g, x, w) -> dx, dw, db


def transpose_the_weight_gradient(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dx, dw, db = project_backward(g, x, w)
    return dx, dw.T, db


def lose_rows_of_the_bias_gradient(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dx, dw, _ = project_backward(g, x, w)
    return dx, dw, g.flatten(0, -2)[:-1].sum(0)


def multiply_by_the_transposed_weight(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return g @ w.T, *project_backward(g, x, w)[1:]


def accumulate_the_weight_gradient_in_bfloat16(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    dx, _, db = project_backward(g, x, w)
    parts = torch.stack([g[i].T @ x[i] for i in range(len(g))]).bfloat16()
    return dx, parts.sum(0).to(w.dtype), db


# --------------------------------------------------------------- entropy_backward(g, logits, labels, lse) -> dlogits


def forget_the_label_in_the_last_row(g: Tensor, logits: Tensor, labels: Tensor, lse: Tensor) -> Tensor:
    dx = entropy_backward(g, logits, labels, lse)
    dx[-1, labels[-1]] += (1 - SMOOTHING) * g / (labels != regions.IGNORED).sum()
    return dx


def divide_by_all_rows(g: Tensor, logits: Tensor, labels: Tensor, lse: Tensor) -> Tensor:
    return entropy_backward(g, logits, labels, lse) * (labels != regions.IGNORED).sum() / len(labels)


def let_ignored_rows_pass(g: Tensor, logits: Tensor, labels: Tensor, lse: Tensor) -> Tensor:
    dx = entropy_backward(g, logits, labels, lse)
    ignored = labels == regions.IGNORED
    dx[ignored] = g * torch.softmax(logits[ignored], -1) / (~ignored).sum()
    return dx


def give_the_label_all_weight(g: Tensor, logits: Tensor, labels: Tensor, lse: Tensor) -> Tensor:
    rows = torch.exp(logits - lse[:, None])
    rows = rows.scatter_add(1, labels.clamp(min=0)[:, None], -rows.new_ones(len(labels), 1))
    return g * torch.where((labels != regions.IGNORED)[:, None], rows, 0) / (labels != regions.IGNORED).sum()


# ------------------------------------------------------------------------- embed_backward(g, tokens, rows) -> dtable


def overwrite_repeated_tokens(g: Tensor, tokens: Tensor, rows: int) -> Tensor:
    return g.new_zeros(rows, g.shape[-1]).index_copy(0, tokens.flatten(), g.flatten(0, -2))


def lose_the_last_token(g: Tensor, tokens: Tensor, rows: int) -> Tensor:
    return embed_backward(g[:, :-1], tokens[:, :-1], rows)


#: The part whose place each takes.
PARTS = {
    "norm_backward": (
        lose_the_term_of_the_root,
        square_instead_of_cube,
        divide_the_term_by_one_less,
        sum_the_weight_gradient_in_bfloat16,
        lose_the_last_row_of_the_weight_gradient,
        forget_the_weight_in_the_product,
        save_the_root_in_bfloat16,
    ),
    "gate_backward": (
        lose_the_slope_of_the_sigmoid,
        roll_the_rows_of_the_cotangent,
        read_the_cotangent_by_another_stride,
        add_the_gradient_twice,
        overwrite_the_cotangent,
    ),
    "rotate_backward": (turn_forward_again, turn_back_by_a_position_more),
    "project_backward": (
        transpose_the_weight_gradient,
        lose_rows_of_the_bias_gradient,
        multiply_by_the_transposed_weight,
        accumulate_the_weight_gradient_in_bfloat16,
    ),
    "entropy_backward": (
        (forget_the_label_in_the_last_row, divide_by_all_rows, let_ignored_rows_pass, give_the_label_all_weight)
    ),
    "embed_backward": (overwrite_repeated_tokens, lose_the_last_token),
}
