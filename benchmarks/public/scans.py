"""Running sums, linear attention, state spaces."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .row import Call, load, normal, row

_HALF = torch.float16


@row("fla-core", "sums within chunks")
def fla_local_sum() -> Call:
    cumsum = load("fla.ops.utils.cumsum").chunk_local_cumsum
    return Call(
        lambda x: cumsum(x, 16), lambda x: x.unflatten(1, (-1, 16)).cumsum(2).flatten(1, 2), (normal(1, 48, 3),)
    )


@row("fla-core", "sums")
def fla_global_sum() -> Call:
    cumsum = load("fla.ops.utils.cumsum").chunk_global_cumsum
    return Call(lambda x: cumsum(x), lambda x: x.cumsum(1), (normal(1, 70, 3),))


@row("fla-core", "inverse of triangular matrices")
def fla_solve() -> Call:
    solve = load("fla.ops.utils.solve_tril").solve_tril

    def lower(x):
        return torch.tril(x.unflatten(1, (-1, 16)).transpose(2, 3), -1)

    def candidate(x):
        return solve(lower(x).transpose(2, 3).flatten(1, 2).contiguous())

    def spec(x):
        a = lower(x) + torch.eye(16, dtype=x.dtype, device=x.device)
        return torch.linalg.solve_triangular(
            a, torch.eye(16, dtype=x.dtype, device=x.device).expand_as(a), upper=False
        ).transpose(2, 3).flatten(1, 2)  # fmt: skip

    return Call(candidate, spec, (normal(1, 32, 2, 16) * 0.3,), "torch+tf32")


@row("fla-core", "recurrent retention")
def fla_retention() -> Call:
    retention = load("fla.ops.retention.fused_recurrent").fused_recurrent_retention

    def spec(q, k, v):
        heads, n = q.shape[2], q.shape[1]
        decay = torch.log(1 - 2.0 ** (-5.0 - torch.arange(heads, dtype=q.dtype, device=q.device)))
        places = torch.arange(n, dtype=q.dtype, device=q.device)
        weights = torch.tril(((places[:, None] - places) * decay[:, None, None]).exp())
        return torch.einsum("bthd,bshd,bshe,hts->bthe", q, k, v, weights) * q.shape[-1] ** -0.5

    return Call(lambda q, k, v: retention(q, k, v)[0], spec, tuple(normal(1, 12, 2, 16) for _ in range(3)))


@row("fla-core", "simple gated linear attention by chunks")
def fla_gla() -> Call:
    chunk = load("fla.ops.simple_gla.chunk").chunk_simple_gla

    def candidate(q, k, v, g):
        return chunk(q, k, v, F.logsigmoid(g))[0]

    def spec(q, k, v, g):
        sums = F.logsigmoid(g.float()).cumsum(1).transpose(1, 2)
        weights = torch.tril((sums[..., :, None] - sums[..., None, :]).exp())
        scores = torch.einsum("bthd,bshd->bhts", q.float(), k.float()) * weights * q.shape[-1] ** -0.5
        return torch.einsum("bhts,bshe->bthe", scores, v.float()).to(q.dtype)

    halves = [normal(1, 70, 2, 32, dtype=torch.bfloat16) for _ in range(3)]
    return Call(candidate, spec, (*halves, normal(1, 70, 2)), "flash")


@row("mamba", "sums of softplus")
def mamba_cumsum() -> Call:
    forward = load("mamba_ssm.ops.triton.ssd_chunk_state")._chunk_cumsum_fwd

    def candidate(dt, a):
        return forward(dt, a, 16, dt_softplus=True)[0]

    def spec(dt, a):
        steps = F.softplus(dt).transpose(1, 2).unflatten(2, (-1, 16))
        return (steps * a[:, None, None]).cumsum(-1)

    fault = "softplus by log(exp(x) + 1), which loses digits where x is negative"
    return Call(candidate, spec, (normal(1, 32, 4) - 6, -torch.rand(4)), fault=fault)


@row("mamba", "scan by chunks")
def mamba_scan() -> Call:
    scan = load("mamba_ssm.ops.triton.ssd_combined").mamba_chunk_scan_combined

    def candidate(x, dt, a, b, c):
        return scan(x, dt, a, b, c, 32)

    def spec(x, dt, a, b, c):
        sums = (dt * a).cumsum(1).transpose(1, 2)
        weights = torch.tril((sums[..., :, None] - sums[..., None, :]).exp())
        scores = torch.einsum("btgn,bsgn->bgts", c.float(), b.float()) * weights
        return torch.einsum("bhts,bsh,bshp->bthp", scores, dt, x.float()).to(x.dtype)

    of_steps = normal(1, 64, 1, 16, dtype=_HALF), normal(1, 64, 1, 16, dtype=_HALF)
    return Call(
        candidate, spec, (normal(1, 64, 2, 32, dtype=_HALF), torch.rand(1, 64, 2), -torch.rand(2), *of_steps), "flash"
    )


@row("mamba", "update of a selective state")
def mamba_update() -> Call:
    update = load("mamba_ssm.ops.triton.selective_state_update").selective_state_update

    def candidate(state, x, dt, a, b, c, d, bias):
        return update(state.clone(), x, dt, a, b, c, d, dt_bias=bias)

    def spec(state, x, dt, a, b, c, d, bias):
        dt = dt + bias
        moved = state * (dt[..., None] * a).exp() + (dt * x)[..., None] * b[:, None]
        return (moved * c[:, None]).sum(-1) + x * d

    state, steps = normal(2, 24, 16), (normal(2, 24), normal(2, 24))
    return Call(
        candidate, spec,
        (state, *steps, -torch.rand(24, 16), normal(2, 16), normal(2, 16), normal(24), normal(24)),
    )  # fmt: skip
