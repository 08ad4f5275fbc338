"""Recurrences over time, and the forms in chunks and matrices that kernels compute."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from .kind import NAN_AND_INF, Kind, mistakes, normals


def _below(t: int, first: int = 0) -> Tensor:
    return torch.arange(t)[:, None] - torch.arange(t) >= first


def _between(steps: Tensor) -> Tensor:
    """Sums of what stands after one row, up to another: a sum for each pair, because a difference would cancel."""
    below = _below(len(steps), 1).reshape(len(steps), len(steps), *[1] * (steps.ndim - 1))
    return torch.where(below, steps[:, None], 0.0).cumsum(0)


def gated_delta(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor, *,
    decays: bool = True, erases: bool = True, scale: float = 0.5,
) -> Tensor:  # fmt: skip
    """GDN: the state forgets by a gate, what it says of a key is replaced, and queries read it."""
    state, out = q.new_zeros(k.shape[1], v.shape[1]), []
    k = F.normalize(k, dim=-1)
    for t in range(len(q)):
        state = state * torch.exp(-F.softplus(gate[t])) if decays else state
        old = k[t] @ state if erases else torch.zeros_like(v[t])
        state = state + torch.outer(k[t], torch.sigmoid(beta[t]) * (v[t] - old))
        out.append(scale * (q[t] @ state))
    return torch.stack(out)


def gated_delta_in_chunks(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, gate: Tensor, size: int = 3) -> Tensor:
    """The WY form: what a chunk writes solves a triangular system, by substitution."""
    k = k / k.square().sum(-1, keepdim=True).sqrt().clamp_min(1e-12)
    beta, gate, state, out = torch.sigmoid(beta), -F.softplus(gate), q.new_zeros(k.shape[1], v.shape[1]), []
    for own, key, value, strength, decay in zip(*(t.split(size) for t in (q, k, v, beta, gate)), strict=True):
        total = decay.cumsum(0)
        between = torch.where(_below(len(own)), torch.exp(_between(decay)), 0.0)
        at_start = torch.exp(total)[:, None]
        writes: list[Tensor] = []
        for t in range(len(own)):
            old = at_start[t] * (key[t] @ state)
            for s, earlier in enumerate(writes):
                old = old + between[t, s] * (key[t] @ key[s]) * earlier
            writes.append(strength[t] * (value[t] - old))
        new = torch.stack(writes)
        out.append(0.5 * (at_start * (own @ state) + (own @ key.T * between) @ new))
        state = at_start[-1] * state + (key * between[-1, :, None]).T @ new
    return torch.cat(out)


def delta(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *, reads: int = 0, sign: float = 1.0, erases: bool = True
) -> Tensor:
    """DeltaNet: no gate."""
    state, out = q.new_zeros(k.shape[1], v.shape[1]), []
    for t in range(len(q)):
        before = state
        old = k[t] @ state if erases else torch.zeros_like(v[t])
        state = state + sign * torch.outer(k[t], torch.sigmoid(beta[t]) * (v[t] - old))
        out.append(q[t] @ (before if reads else state))
    return torch.stack(out)


def delta_by_matrices(q: Tensor, k: Tensor, v: Tensor, beta: Tensor) -> Tensor:
    state, out, one = q.new_zeros(k.shape[1], v.shape[1]), [], torch.eye(k.shape[1], dtype=k.dtype)
    strength = torch.sigmoid(beta)[:, None]
    for query, key, write in zip(q, k, k * strength, strict=True):
        state = (one - torch.outer(write, key)) @ state
        state = state + torch.outer(write, v[len(out)])
        out.append(query @ state)
    return torch.stack(out)


def linear(q: Tensor, k: Tensor, v: Tensor, *, first: int = 0, scale: float = 1.0, positive: bool = True) -> Tensor:
    """Linear attention of positive features, without a division."""
    q, k = (F.elu(t) + 1 if positive else t for t in (q, k))
    return torch.where(_below(len(q), first), q @ k.T, 0.0) @ v * scale


def linear_in_turn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k = (torch.where(t > 0, t + 1, torch.exp(t)) for t in (q, k))
    state, out = q.new_zeros(k.shape[1], v.shape[1]), []
    for t in range(len(q)):
        state = state + torch.outer(k[t], v[t])
        out.append(q[t] @ state)
    return torch.stack(out)


def retention(q: Tensor, k: Tensor, v: Tensor, *, decay: float = 0.875, first: int = 0, scale: float = 0.5) -> Tensor:
    apart = torch.arange(len(q))[:, None] - torch.arange(len(q))
    powers = torch.where(apart >= first, decay ** apart.clamp_min(0).to(q.dtype), 0.0)
    return (q @ k.T * powers) @ v * scale


def retention_in_chunks(q: Tensor, k: Tensor, v: Tensor, size: int = 3) -> Tensor:
    state, out = q.new_zeros(k.shape[1], v.shape[1]), []
    for own, key, value in zip(*(t.split(size) for t in (q, k, v)), strict=True):
        n = len(own)
        apart = torch.arange(n)[:, None] - torch.arange(n)
        powers = torch.where(apart >= 0, 0.875 ** apart.clamp_min(0).to(q.dtype), 0.0)
        steps = 0.875 ** torch.arange(1, n + 1, dtype=q.dtype)[:, None]
        out.append(((own @ key.T * powers) @ value + steps * (own @ state)) * 0.5)
        state = 0.875**n * state + (key * powers[-1, :, None]).T @ value
    return torch.cat(out)


def selective(
    u: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, *,
    skip: bool = True, positive: bool = True, reads: int = 0,
) -> Tensor:  # fmt: skip
    """Mamba: a state of each channel, whose step, input and output are given at each time."""
    step, decay = F.softplus(step) if positive else step.abs(), -torch.exp(a)
    h, out = torch.zeros_like(a), []
    for t in range(len(u)):
        before = h
        h = torch.exp(step[t, :, None] * decay) * h + (step[t] * u[t])[:, None] * b[t]
        out.append(((before if reads else h) * c[t]).sum(-1) + (d * u[t] if skip else 0.0))
    return torch.stack(out)


def selective_by_sums(u: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor) -> Tensor:
    step = torch.clamp_min(step, 0) + torch.log1p(torch.exp(-step.abs()))
    apart = _between(step)
    decay = torch.where(_below(len(u), 1)[..., None, None], apart[..., None] * -torch.exp(a), 0.0)
    powers = torch.where(_below(len(u))[..., None, None], torch.exp(decay), 0.0)
    terms = powers * (step * u)[..., None] * b[:, None] * c[:, None, None]
    return terms.sum((1, 3)) + d * u


def dual(
    x: Tensor,
    step: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    *,
    positive: bool = True,
    reads: int = 0,
    scale: float = 1.0,
) -> Tensor:
    """Mamba 2: one decay for each head at each time."""
    step = F.softplus(step) if positive else step.abs()
    h, out = x.new_zeros(*x.shape[1:], b.shape[1]), []
    for t in range(len(x)):
        before = h
        h = torch.exp(-step[t] * torch.exp(a))[:, None, None] * h + (step[t, :, None] * x[t])[..., None] * b[t]
        out.append((before if reads else h) @ c[t] * scale)
    return torch.stack(out)


def dual_in_chunks(x: Tensor, step: Tensor, a: Tensor, b: Tensor, c: Tensor, size: int = 3) -> Tensor:
    """Products of matrices within a chunk, and a state from chunk to chunk."""
    step = F.softplus(step)
    h, out = x.new_zeros(*x.shape[1:], b.shape[1]), []
    for own, steps, key, query in zip(*(t.split(size) for t in (x, step, b, c)), strict=True):
        total = torch.cumsum(-steps * torch.exp(a), 0)
        between = torch.where(_below(len(own))[..., None], torch.exp(_between(-steps * torch.exp(a))), 0.0)
        scores = (query @ key.T)[..., None] * between * steps
        before = torch.exp(total)[..., None] * torch.einsum("hpn,tn->thp", h, query)
        out.append(torch.einsum("tsh,shp->thp", scores, own) + before)
        h = torch.exp(total[-1])[:, None, None] * h + torch.einsum("sh,shp,sn->hpn", between[-1] * steps, own, key)
    return torch.cat(out)


def short_conv(
    x: Tensor, weight: Tensor, bias: Tensor, *, shift: int = 0, acts: bool = True, turned: bool = False
) -> Tensor:
    """A causal convolution of each channel, then SiLU."""
    weight = weight.flip(1) if turned else weight
    y = F.conv1d(F.pad(x.T[None], (weight.shape[1] - 1 - shift, shift)), weight[:, None], bias, groups=x.shape[1])[0].T
    return F.silu(y) if acts else y


def short_conv_by_taps(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    taps = weight.shape[1]
    long = F.pad(x, (0, 0, taps - 1, 0))
    y = bias + sum(long[i : i + len(x)] * weight[:, i] for i in range(taps))
    return y / (1 + torch.exp(-y))


def mixed(x: Tensor, forget: Tensor, *, first: bool = False, keeps: bool = True, times: float = 1.0) -> Tensor:
    """HGRN: h = f h + (1 - f) x."""
    f, h, out = torch.sigmoid(forget * times), torch.zeros_like(x[0]), []
    for t in range(len(x)):
        h = x[t] if first and t == 0 else f[t] * h + (1 - f[t] if keeps else 1.0) * x[t]
        out.append(h)
    return torch.stack(out)


def mixed_by_lerp(x: Tensor, forget: Tensor) -> Tensor:
    h, out = torch.zeros_like(x[0]), []
    for row, own in zip(x, forget, strict=True):
        h = h * torch.sigmoid(own) + row * torch.sigmoid(-own)
        out.append(h)
    return torch.stack(out)


def received(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    w: Tensor,
    bonus: Tensor,
    *,
    uses: bool = True,
    times: float = 1.0,
    after: bool = False,
) -> Tensor:
    """RWKV 6: a decay of each channel, and a bonus for the word itself."""
    state, out = r.new_zeros(k.shape[1], v.shape[1]), []
    for t in range(len(r)):
        own = torch.outer(k[t], v[t])
        out.append(r[t] @ (state + (bonus[:, None] if uses else 1.0) * own))
        decay = torch.exp(-torch.exp(w[t] * times))[:, None]
        state = decay * (state + own) if after else decay * state + own
    return torch.stack(out)


def received_by_sums(r: Tensor, k: Tensor, v: Tensor, w: Tensor, bonus: Tensor) -> Tensor:
    decay = F.pad(_between(torch.exp(w)), (0, 0, 0, 0, 1, 0))[: len(r)]
    powers = torch.where(_below(len(r), 1)[..., None], torch.exp(-decay), 0.0)
    return torch.einsum("tc,sc,tsc->ts", r, k, powers) @ v + (r * bonus * k).sum(-1, keepdim=True) * v


def gru(
    x: Tensor, h: Tensor, w: Tensor, u: Tensor, *, inside: bool = True, turned: bool = False, acts: bool = True
) -> Tensor:
    """One step of a gated unit, as cuDNN has it: the reset gate stands outside of the product."""
    if w.shape[1] != 3 * h.shape[1]:
        raise ValueError(f"w.shape={tuple(w.shape)}: need three gates of {h.shape[1]}")
    a, b = (x @ w).chunk(3, -1), (h @ u).chunk(3, -1)
    reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
    new = a[2] + (reset * b[2] if inside else b[2])
    new = torch.tanh(new) if acts else new
    return update * new + (1 - update) * h if turned else (1 - update) * new + update * h


def gru_by_parts(x: Tensor, h: Tensor, w: Tensor, u: Tensor) -> Tensor:
    n = h.shape[-1]
    reset, update = (torch.cat([x, h], -1) @ torch.cat([w[:, : 2 * n], u[:, : 2 * n]])).sigmoid().chunk(2, -1)
    new = torch.tanh(x @ w[:, 2 * n :] + (h @ u[:, 2 * n :]) * reset)
    return new + update * (h - new)


KINDS = (
    Kind("GDN", gated_delta, normals((6, 3), (6, 3), (6, 4), (6,), (6,)), {"in chunks": gated_delta_in_chunks},
         mistakes(gated_delta, decays=False, erases=False, scale=1.0), skips=NAN_AND_INF),
    Kind("DeltaNet", delta, normals((5, 3), (5, 3), (5, 4), (5,)), {"by matrices": delta_by_matrices},
         mistakes(delta, reads=1, sign=-1.0, erases=False)),
    Kind("linear attention", linear, normals((7, 4), (7, 4), (7, 5)), {"in turn": linear_in_turn},
         mistakes(linear, first=1, scale=1.01, positive=False), skips=NAN_AND_INF),
    Kind("retention", retention, normals((7, 4), (7, 4), (7, 5)), {"in chunks": retention_in_chunks},
         mistakes(retention, decay=0.875**2, first=1, scale=1.0), skips=NAN_AND_INF),
    Kind("Mamba", selective, normals((6, 3), (6, 3), (3, 4), (6, 4), (6, 4), (3,)), {"by sums": selective_by_sums},
         mistakes(selective, skip=False, positive=False, reads=1), skips=NAN_AND_INF),
    Kind("Mamba 2", dual, normals((6, 2, 3), (6, 2), (2,), (6, 4), (6, 4)), {"in chunks": dual_in_chunks},
         mistakes(dual, positive=False, reads=1, scale=1.01), skips=NAN_AND_INF),
    Kind("short convolution", short_conv, normals((7, 5), (5, 4), (5,)), {"by taps": short_conv_by_taps},
         mistakes(short_conv, shift=1, acts=False, turned=True)),
    Kind("HGRN", mixed, normals((6, 5), (6, 5)), {"by two sigmoids": mixed_by_lerp},
         mistakes(mixed, first=True, keeps=False, times=1.1)),
    Kind("RWKV 6", received, normals((5, 3), (5, 3), (5, 4), (5, 3), (3,)), {"by sums": received_by_sums},
         mistakes(received, uses=False, times=2.0, after=True), skips=NAN_AND_INF),
    Kind("gated unit", gru, normals((3, 5), (3, 4), (5, 12), (4, 12)), {"by parts": gru_by_parts},
         mistakes(gru, inside=False, turned=True, acts=False)),
)  # fmt: skip
