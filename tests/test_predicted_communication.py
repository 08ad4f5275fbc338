"""The tables of predicted communication in the guides are those that the script computes, and its inputs are sound."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.impl.comm import DryComm

REPOSITORY = Path(__file__).resolve().parents[1]
LATENCY, BANDWIDTH = 5e-6, 25e9


def _script() -> Any:
    path = REPOSITORY / "benchmarks" / "predicted_communication.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@pytest.mark.parametrize(
    ("page", "table"), [("ranks.md", SCRIPT.batch_norm_table), ("devices.md", SCRIPT.bucket_table)]
)
def test_the_table_of_a_page_is_what_the_script_computes(page: str, table: Any) -> None:
    assert f"\n\n{table()}\n" in (REPOSITORY / "docs" / page).read_text(encoding="utf-8")


def test_the_parameters_are_those_of_a_resnet50() -> None:
    shapes = SCRIPT.resnet50()
    assert len(shapes) == 161
    assert sum(math.prod(shape) for shape in shapes) == 25_557_032  # as torchvision counts them


@pytest.mark.parametrize("limit", SCRIPT.LIMITS.values())
def test_all_parameters_travel_once_and_only_a_large_one_exceeds_a_bucket(limit: int | None) -> None:
    elements = [math.prod(shape) for shape in SCRIPT.resnet50()]
    messages = SCRIPT.messages(limit)
    assert sum(messages) == sum(elements)
    if limit is not None:
        assert all(4 * n <= limit or n in elements for n in messages)


@pytest.mark.parametrize("ranks", [8, 4096])
def test_a_step_takes_at_most_what_the_best_of_two_algorithms_does_and_at_least_what_any_must(ranks: int) -> None:
    steps = int(math.log2(ranks))
    most = least = 0.0
    for elements in SCRIPT.messages(2**20):
        tree = steps * (LATENCY + 4 * elements / BANDWIDTH)
        pipeline = (steps + ranks - 1) * LATENCY + 2 * 4 * elements * (ranks - 1) / ranks / BANDWIDTH
        most += 2 * min(tree, pipeline)
        least += 2 * max(steps * LATENCY, 4 * elements / BANDWIDTH)
    result = sum(entry.seconds for entry in SCRIPT.step(DryComm(1, ranks), 2**20))
    slack = 2**-40 * most  # sums of a few hundred numbers in another order
    assert least - slack <= result <= most + slack


@pytest.mark.parametrize("channels", SCRIPT.CHANNELS)
def test_batch_norm_makes_a_call_each_way_whose_payload_does_not_grow(channels: int) -> None:
    for ranks in (8, 512):
        (forward,), (backward,) = SCRIPT.sums(DryComm(0, ranks), channels)
        assert (forward.call.shape, backward.call.shape) == ((2 * channels + 1,), (2 * channels,))
        assert forward.call.dtype == backward.call.dtype == torch.float64
        (gather,), (reduce,) = SCRIPT.gathered(DryComm(0, ranks), channels)
        assert gather.sent_bytes == 4 * (2 * channels + 1) * (ranks - 1)
        assert (reduce.call.shape, reduce.call.dtype) == ((2 * channels,), torch.float32)


def test_sums_are_sent_once_each_way_whatever_the_number_of_ranks() -> None:
    few, many = ([SCRIPT.sums(DryComm(0, size), 256), SCRIPT.gathered(DryComm(0, size), 256)] for size in (8, 4096))
    assert [len(entries) for entries in (*few[0], *many[0])] == [1, 1, 1, 1]
    sent = [sum(entry.sent_bytes for part in schemes[1] for entry in part) for schemes in (few, many)]
    assert sent[1] > 100 * sent[0], "gathered statistics grow with the ranks"
