"""Candidates of several ranks over a wire of torch's own: the same verdicts, and an end for whoever waits in vain."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from opassay.oracles.verdicts.violation import Violation
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.host.calls import Answer, CandidateCall
from opassay.properties.candidates.placements import Placements
from opassay.properties.candidates.rank_parts import CallParts
from tests.properties.candidates import over_ranks

_KERNELS = Path(over_ranks.__file__).parent
_FILE = '''
import os
import torch
import torch.distributed as dist
from torch.distributed.tensor import Shard

placements = {"x": Shard(0)}


def inputs():
    return (torch.randn(4, 3),)


def reference(x):
    return x.sum(0)


def right(x):
    y = x.sum(0)
    dist.all_reduce(y)
    return y


def leaves(x):
    return x.sum(0) if dist.get_rank() else right(x)


def raises(x):
    if dist.get_rank():
        raise ValueError("of no rank")
    return right(x)


def dies(x):
    return os._exit(3) if dist.get_rank() else right(x)


def averages(x):
    y = x.sum(0)
    dist.all_reduce(y, dist._make_nccl_premul_sum(1.0 / dist.get_world_size()))
    return y * dist.get_world_size()


def swallows(x):
    y = x.sum(0)
    try:
        dist.all_reduce(y)
    except RuntimeError:
        pass
    return y


def refuses(x):
    sizes = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([float(len(x))]))
    if dist.get_rank() == 0 and len({float(n) for n in sizes}) > 1:
        raise ValueError("need as many rows on each rank")
    return right(x)
'''  # fmt: skip


def _judge(address: str, spec: str, *words: str) -> str:
    command = [sys.executable, "-m", "opassay", "judge", address, "--spec", spec, "--seed", "0", *words]
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    return out.stdout + out.stderr


def _judge_text(tmp_path: Path, kernel: str, *words: str) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(_FILE)
    return _judge(f"{path}:{kernel}", f"{path}:reference", "--world", "2", "--wire", "gloo", *words)


def test_a_right_kernel_is_accepted_and_asked_all_but_who_is_late(tmp_path: Path) -> None:
    text = _judge_text(tmp_path, "right", "-k", "FWD:given", "-k", "COMM:late", "-k", "COMM:errors")
    assert "\naccepted" in text, text
    assert "executed: on 2 ranks over gloo: x S(0), return R" in text
    assert re.search(r"-\s+COMM:late .*not asked on gloo", text)
    assert re.search(r"ok\s+COMM", text)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("leaves", r"FWD:given: rank 0 raised RuntimeError: .*Timed out waiting.*; rank 1 has returned"),
        ("raises", r"ValueError: of no rank \(rank 1 of 2\)\n.*rank 0 raised RuntimeError: .*[Cc]onnection closed"),
        ("dies", r"died \(exit status 3\).*\(rank 1 of 2\)"),
    ],
)  # fmt: skip
def test_nobody_waits_for_good(tmp_path: Path, kernel: str, words: str) -> None:
    began = time.monotonic()
    text = _judge_text(tmp_path, kernel, "-k", "FWD:given", "--seconds", "10" if kernel == "leaves" else "200")
    assert "\nrejected" in text, text
    assert re.search(words, text), text
    assert time.monotonic() - began < 150


@pytest.mark.slow
def test_whoever_swallows_the_loss_of_a_rank_is_wrong(tmp_path: Path) -> None:
    text = _judge_text(tmp_path, "swallows", "-k", "FWD:given", "-k", "COMM:errors")
    assert "rejected: COMM:errors" in text, text


@pytest.mark.slow
def test_ranks_that_refuse_apart_begin_once_more(tmp_path: Path) -> None:
    text = _judge_text(tmp_path, "refuses", "-k", "FWD:given", "-k", "COMM:parts", "-k", "CALLS", "-k", "PURE:left")
    assert "\naccepted" in text, text


@pytest.mark.slow
def test_what_gloo_lacks_is_no_fault_of_a_kernel(tmp_path: Path) -> None:
    text = _judge_text(tmp_path, "averages", "-k", "FWD:given")
    assert "\nerror: " in text, text
    assert "Cannot use ReduceOp.PREMUL_SUM with Gloo" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "need"),
    [
        ("linear:right", "accepted"), ("attention:right_ring", "accepted"), ("experts:right", "accepted"),
        ("linear:wrong_gradient", "rejected"), ("experts:wrong_splits", "rejected"),
        ("attention:wrong_stale", "rejected"), ("sums:wrong_own_order", "rejected"),
    ],
)  # fmt: skip
def test_a_kernel_has_the_verdict_that_it_has_by_the_judge(kernel: str, need: str) -> None:
    file, _, name = kernel.partition(":")
    path = _KERNELS / f"{file}.py"
    words = ("--world", "4", "--wire", "gloo", "-k", "FWD:given", "-k", "VJP:grad", "-k", "COMM:replicas")
    assert f"\n{need}" in _judge(f"{path}:{name}", f"{path}:reference", *words)


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="this machine has what is said to be lacking")
def test_a_wire_that_cannot_be_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(_FILE)
    pair = f"{path}:right", f"{path}:reference"
    assert "wire: got gloo without a world, need world=N ranks" in _judge(*pair, "--wire", "gloo")
    words = ("--world", "2", "--wire", "nccl")
    assert "wire: got nccl, not run: nccl moves tensors of CUDA devices; these are on cpu" in _judge(*pair, *words)


def test_an_error_of_its_own_is_no_end_of_a_wire() -> None:
    parts, call = CallParts(Placements((2,))), CandidateCall.of(CallArguments.of(()))
    lost = "RuntimeError: [/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:7"
    with pytest.raises(Violation, match=r"rank 0 raised RuntimeError: .* closed by peer .*; rank 1 has returned"):
        parts.join(call, [call, call], [Answer(raised=lost), Answer()])
    own = "ValueError: gloo/ is no folder"
    answer, _ = parts.join(call, [call, call], [Answer(raised=lost), Answer(raised=own)])
    assert answer.raised.startswith("ValueError: gloo/ is no folder (rank 1 of 2)\nrank 0 raised RuntimeError: ")
