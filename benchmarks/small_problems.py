"""Judges right candidates of small problems whose programs are long: seconds of the processor, and peak memory.

    python benchmarks/small_problems.py [NAME ...]

Each spec is written as one would write it, often as a loop over steps, and its candidate computes the same otherwise.
Each is judged with all default questions in a process of its own. The seconds are those of `opassay.judge` alone, and
the memory is the largest that the process had.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

from opassay import judge

#: Seconds of the processor that one judgement may take.
TARGET = 15.0
Tensor = torch.Tensor


class Problem(NamedTuple):
    """A spec, a right candidate for it, and the inputs of a call."""

    spec: Callable[..., Any]
    candidate: Callable[..., Any]
    inputs: Sequence[Any]


def _module_pair(spec: nn.Module, candidate: Callable[..., Any], *inputs: Tensor) -> Problem:
    return Problem(spec.eval(), candidate, inputs)


class LstmCells(nn.Module):
    """An LSTM as a loop over cells of torch, with the parameters of `nn.LSTM`."""

    def __init__(self, inner: nn.LSTM) -> None:
        super().__init__()
        for name, value in inner.named_parameters():
            self.register_parameter(name, nn.Parameter(value.detach().clone()))

    def forward(self, x: Tensor) -> Tensor:
        h = c = x.new_zeros(x.shape[0], self.weight_hh_l0.shape[1])  # type: ignore[union-attr,misc]
        rows = []
        for step in x.unbind(1):
            gates = F.linear(step, self.weight_ih_l0, self.bias_ih_l0)  # type: ignore[arg-type]
            gates = gates + F.linear(h, self.weight_hh_l0, self.bias_hh_l0)  # type: ignore[arg-type]
            i, f, g, o = gates.chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            rows.append(h)
        return torch.stack(rows, 1)


class LstmOutputs(nn.LSTM):
    """`nn.LSTM` that gives the outputs of all steps alone."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x)[0]


def lstm_spec(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    h = c = x.new_zeros(x.shape[0], u.shape[0])
    rows = []
    for t in range(x.shape[1]):
        i, f, g, o = (x[:, t] @ w + h @ u + b).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        rows.append(h)
    return torch.stack(rows, 1)


def lstm_ahead(x: Tensor, w: Tensor, u: Tensor, b: Tensor) -> Tensor:
    """The products with inputs made for all steps at once."""
    ahead, h, rows = x @ w + b, x.new_zeros(x.shape[0], u.shape[0]), []
    c = torch.zeros_like(h)
    for t in range(x.shape[1]):
        i, f, g, o = (ahead[:, t] + h @ u).split(u.shape[0], -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        rows.append(h[:, None])
    return torch.cat(rows, 1)


def gru_spec(x: Tensor, w: Tensor, u: Tensor, h: Tensor) -> Tensor:
    n, rows = h.shape[-1], []
    for t in range(x.shape[0]):
        a, b = x[t] @ w, h @ u
        r, z = torch.sigmoid(a[:, :n] + b[:, :n]), torch.sigmoid(a[:, n : 2 * n] + b[:, n : 2 * n])
        new = torch.tanh(a[:, 2 * n :] + r * b[:, 2 * n :])
        h = (1 - z) * new + z * h
        rows.append(h)
    return torch.stack(rows)


def gru_ahead(x: Tensor, w: Tensor, u: Tensor, h: Tensor) -> Tensor:
    rows = []
    for ahead in (x @ w).unbind(0):
        (r, z, n), (s, y, m) = ahead.chunk(3, -1), (h @ u).chunk(3, -1)
        z, new = torch.sigmoid(z + y), torch.tanh(n + torch.sigmoid(r + s) * m)
        h = (1 - z) * new + z * h
        rows.append(h)
    return torch.stack(rows)


def rnn_spec(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
    h, rows = x.new_zeros(x.shape[1], u.shape[0]), []
    for t in range(x.shape[0]):
        h = torch.tanh(x[t] @ w + h @ u)
        rows.append(h)
    return torch.stack(rows)


def rnn_ahead(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
    h, rows = x.new_zeros(x.shape[1], u.shape[0]), []
    for ahead in (x @ w).unbind(0):
        h = torch.tanh(ahead + h @ u)
        rows.append(h)
    return torch.stack(rows)


def sink_spec(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    s = 20 * torch.tanh(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 / 20)
    n = q.shape[-2]
    s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    column = sink[None, :, None, None].expand(s.shape[0], -1, n, 1)
    return torch.softmax(torch.cat([s, column], -1), -1)[..., :-1] @ v


def sink_online(q: Tensor, k: Tensor, v: Tensor, sink: Tensor) -> Tensor:
    s = 20 * torch.tanh(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 / 20)
    n = q.shape[-2]
    s = s.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float("-inf"))
    column = sink[None, :, None, None]
    top = torch.maximum(s.amax(-1, keepdim=True), column)
    e = torch.exp(s - top)
    return (e @ v) / (e.sum(-1, keepdim=True) + torch.exp(column - top))


def attention_spec(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def attention_online(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    s = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    e = torch.exp(s - s.amax(-1, keepdim=True))
    return (e @ v) / e.sum(-1, keepdim=True)


def delta_spec(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor) -> Tensor:
    k, g, b = k * torch.rsqrt(k.square().sum(-1, keepdim=True) + 1e-6), -F.softplus(a), torch.sigmoid(b)
    state, rows = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for t in range(q.shape[0]):
        state = state * g[t].exp()
        state = state + k[t][:, None] * (b[t] * (v[t] - k[t] @ state))
        rows.append(q[t] @ state)
    return torch.stack(rows)


def delta_mixed(q: Tensor, k: Tensor, v: Tensor, a: Tensor, b: Tensor) -> Tensor:
    k, g, b = k / torch.sqrt(k.square().sum(-1, keepdim=True) + 1e-6), torch.exp(-F.softplus(a)), b.sigmoid()
    state, rows = torch.zeros(k.shape[-1], v.shape[-1], dtype=q.dtype), []
    for t in range(q.shape[0]):
        state = g[t] * state
        state = state + torch.outer(k[t], b[t] * (v[t] - (k[t][:, None] * state).sum(0)))
        rows.append((q[t][:, None] * state).sum(0))
    return torch.stack(rows)


def ssd_spec(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The recurrence of state spaces, a step after another: x (steps, columns), a (steps), b and c (steps, states)."""
    state, rows = torch.zeros(b.shape[-1], x.shape[-1], dtype=x.dtype), []
    decay = -F.softplus(a)
    for t in range(x.shape[0]):
        state = torch.exp(decay[t]) * state + b[t][:, None] * x[t][None]
        rows.append(c[t] @ state)
    return torch.stack(rows)


def ssd_quadratic(x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The same as a product with a lower triangle, whose decays are sums of what lies between two steps."""
    steps = a.shape[0]
    decay = -F.softplus(a)
    below = torch.ones(steps, steps, dtype=torch.bool).tril(-1)
    segments = torch.where(below, decay[:, None].expand(steps, steps), torch.zeros(())).cumsum(0)
    lower = torch.exp(segments).masked_fill(~torch.ones(steps, steps, dtype=torch.bool).tril(), 0.0)
    return ((c @ b.T) * lower) @ x


def softmax_spec(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def softmax_shifted(x: Tensor) -> Tensor:
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def _problems() -> dict[str, Callable[[], Problem]]:
    r = torch.randn
    lstm = LstmOutputs(5, 6, batch_first=True)
    return {
        "softmax 8x32": lambda: Problem(softmax_spec, softmax_shifted, (r(8, 32),)),
        "lstm 2x7x6": lambda: Problem(lstm_spec, lstm_ahead, (r(2, 7, 6), r(6, 24), r(6, 24), r(24))),
        "nn.LSTM 2x7x5": lambda: _module_pair(lstm, LstmCells(lstm), r(2, 7, 5)),
        "gru 12x8x32": lambda: Problem(
            gru_spec, gru_ahead, (r(12, 8, 32), r(32, 96) / 6, r(32, 96) / 6, r(8, 32))
        ),
        "gru 5x2x6": lambda: Problem(gru_spec, gru_ahead, (r(5, 2, 6), r(6, 18), r(6, 18), r(2, 6))),
        "rnn 9x3x8": lambda: Problem(rnn_spec, rnn_ahead, (r(9, 3, 8), r(8, 8) / 3, r(8, 8) / 3)),
        "attention with a sink 4x12x8": lambda: Problem(
            sink_spec, sink_online, (r(1, 4, 12, 8), r(1, 4, 12, 8), r(1, 4, 12, 8), r(4))
        ),
        "attention 2x4x16x8": lambda: Problem(
            attention_spec, attention_online, (r(2, 4, 16, 8), r(2, 4, 16, 8), r(2, 4, 16, 8))
        ),
        "gated delta rule 8x4": lambda: Problem(
            delta_spec, delta_mixed, (r(8, 4), r(8, 4), r(8, 4), r(8), r(8))
        ),
        "ssd 8x4": lambda: Problem(ssd_spec, ssd_quadratic, (r(8, 6), r(8), r(8, 4), r(8, 4))),
    }  # fmt: skip


def judge_one(name: str, questions: Sequence[str]) -> dict[str, Any]:
    """The verdict, its causes, the seconds and the peak memory in MB of one problem, in this process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    problem = _problems()[name]()
    judge(softmax_shifted, softmax_spec, (torch.randn(3, 4),), questions=["FWD:given", "COMP:compiled"], seed=0)
    start = time.process_time()
    judgement = judge(problem.candidate, problem.spec, problem.inputs, questions=questions, seed=0)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    causes = [cause.question for cause in judgement.causes]
    return {"verdict": judgement.verdict.value, "causes": causes, "seconds": seconds, "peak": peak}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="words of the problems' names; all of them by default")
    parser.add_argument("--questions", nargs="*", default=[], help="codes; all default questions by default")
    parser.add_argument("--here", action="store_true", help="judge one problem in this process, and print JSON")
    options = parser.parse_args()
    names = [name for name in _problems() if not options.names or any(word in name for word in options.names)]
    if options.here:
        print(json.dumps(judge_one(names[0], options.questions)))
        return 0
    missed = 0
    print(f"{'problem':32}{'CPU s':>8}{'peak MB':>9}  verdict")
    for name in names:
        command = [sys.executable, __file__, name, "--here", "--questions", *options.questions]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
        came = json.loads(output.decode().splitlines()[-1])
        missed += came["seconds"] > TARGET or came["verdict"] == "rejected"
        words = f"{came['verdict']} {', '.join(came['causes'])}"
        print(f"{name:32}{came['seconds']:8.1f}{came['peak']:9.0f}  {words}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
