"""Ranks in processes of their own, on gloo: the collectives, a training loop, and ranks that disagree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opassay.impl.comm import LockstepWorld
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.reference.derivative import vjp

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("gloo_ranks.py")


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What every rank of a group found, in order; one start of processes for all tests."""
    size, store = request.param, tmp_path_factory.mktemp("store") / "store"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    cases = "collectives,training,different"
    started = [
        subprocess.Popen(
            [sys.executable, str(PROGRAM), str(rank), str(size), str(store), cases],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )
        for rank in range(size)
    ]  # fmt: skip
    try:
        results = [process.communicate(timeout=120) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * size, results[0][1][-2000:]
    return [json.loads(out.splitlines()[-1]) for out, _ in results]


def test_collectives_move_what_they_say(ranks: list[dict[str, Any]]) -> None:
    size = len(ranks)
    rows = [[[10 * r + 2 * j + i for j in range(3)] for i in range(2)] for r in range(size)]
    for rank, result in enumerate(ranks):
        for dtype, got in result["collectives"].items():
            if dtype == "max":
                assert got == [size - 1]
                continue
            assert got["all_reduce"] == [[sum(rows[r][i][j] for r in range(size)) for j in range(3)] for i in range(2)]
            assert got["broadcast"] == rows[size - 1]
            assert got["all_gather"] == [rows[r][: r + 1] for r in range(size)]
            assert got["gather"] == ([rows[r][:r] for r in range(size)] if rank == 0 else [])
            assert got["scatter"] == [0, 2, 4]
            assert got["all_to_all"] == [10 * r + rank for r in range(size)]


def _trained(*arrays: Any) -> tuple[Any, ...]:
    """Three steps of the same training on the whole batch, as a formula: weights and running statistics."""
    *parameters, data, target = arrays
    mean, var = np.zeros(6), np.ones(6)

    def loss(w1: Any, b1: Any, scale: Any, shift: Any, w2: Any, b2: Any) -> Any:
        hidden = np.matmul(data, np.transpose(w1)) + b1
        deviation = hidden - np.mean(hidden, axis=0)
        normal = deviation / np.sqrt(np.mean(np.square(deviation), axis=0) + 1e-5) * scale + shift
        return np.sum(np.square(np.matmul(normal, np.transpose(w2)) + b2 - target))

    for _ in range(3):
        hidden = np.matmul(data, np.transpose(parameters[0])) + parameters[1]
        mean = 0.9 * mean + 0.1 * np.mean(hidden, axis=0)
        var = 0.9 * var + 0.1 * (np.var(hidden, axis=0) * (12 / 11))
        value, pull = vjp(loss, parameters)
        gradients = pull(value[0].lift(np.ones(())))
        parameters = [p - 0.01 * g for p, g in zip(parameters, gradients, strict=True)]
    return (*parameters, mean, var)


def test_training_on_parts_is_training_on_the_whole(ranks: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)).double()
    data, target = torch.randn(12, 4).double(), torch.randn(12, 2).double()
    operands = [p.detach().numpy() for p in (*model.parameters(), data, target)]
    readings = balls(_trained, operands, contract("float64", order=1))
    names = [name for name, _ in model.named_parameters()] + ["1.running_mean", "1.running_var"]
    for name, ball in zip(names, readings, strict=True):
        mine = [np.reshape(result["training"][name], ball.shape) for result in ranks]
        assert all(np.array_equal(m, mine[0]) for m in mine), f"{name} differs between ranks"
        assert np.all(np.abs(mine[0] - ball.centre) <= ball.radii()), name
        assert np.all(ball.radii() < 1e-9), f"{name}: the bound says nothing"


def test_ranks_that_disagree_are_named_and_the_group_stays_usable(ranks: list[dict[str, Any]]) -> None:
    for result in ranks:
        text = result["different"]["error"]
        assert text.startswith(
            "different calls: rank 0 in call 1, all_reduce[gradients](float32[3], sum); rank 1 in call 1"
        )
        assert "rank 1 in call 1, all_reduce[gradients](float32[3], max)" in text
        assert result["different"]["long"].startswith("different calls: rank 0 in call 1, all_reduce[xxx")


def test_gloo_and_lockstep_mean_the_same(ranks: list[dict[str, Any]]) -> None:
    def program(comm: Any) -> list[float]:
        x = (torch.arange(6).reshape(3, 2).t() + 10 * comm.rank).float()
        result: list[float] = comm.all_reduce(x).tolist()
        return result

    assert LockstepWorld(len(ranks)).run(program) == [f["collectives"]["torch.float32"]["all_reduce"] for f in ranks]
