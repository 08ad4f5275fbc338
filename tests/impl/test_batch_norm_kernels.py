"""Batch norm's Triton kernels, interpreted: known bits, memory formats, launches, traffic, memory of the outputs."""

from __future__ import annotations

import importlib.util
import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.impl.norms.kernels_cuda.batch_norm import Cut, cut_of

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("interpreted_batch_norm.py")
SIZES = {"torch.float32": 4, "torch.bfloat16": 2, "torch.float64": 8}

#: Elements of the input; and launches of a training forward and of a backward, whose channels are in pieces or not.
CASES = {
    "within a tile": (8 * 4 * 16, 1, 1),
    "a few rows": (64 * 40, 1, 1),
    "long lines": (2 * 2 * 16384, 3, 3),
    "many rows": (512 * 40, 3, 3),
    "short lines": (128 * 3 * 4, 3, 3),
    "many short lines": (4096 * 16, 3, 3),
    "image": (4 * 3 * 256, 1, 1),
    "volume": (2 * 3 * 256, 1, 1),
    "image, channels last": (4 * 3 * 256, 3, 3),
    "volume, channels last": (2 * 3 * 256, 3, 3),
}


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    """What the program found."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed; opassay[triton] brings it, on Linux")
    done = subprocess.run([sys.executable, "-W", "ignore", str(PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("case", CASES)
def test_every_bit_is_known_and_every_output_owns_its_memory(
    interpreted: dict[str, Any], case: str, dtype: str
) -> None:
    results = interpreted["results"][f"{case}, {dtype}"]
    assert len(results) == 11
    for call, result in results.items():
        assert result["wrong"] == [], call
        assert result["another layout"] == [], call
        assert result["shared storages"] == 0, call


@pytest.mark.parametrize("case", CASES)
def test_launches(interpreted: dict[str, Any], case: str) -> None:
    _, forward, backward = CASES[case]
    launches = {call: result["launches"] for call, result in interpreted["results"][f"{case}, torch.float32"].items()}
    assert launches["training"] == forward
    assert launches["evaluation"] == 1
    for call in ("all gradients", "input alone", "through the statistics"):
        assert launches[f"backward, {call}"] == backward
    # Without a gradient of the input there is no second sweep.
    assert launches["backward, sums alone"] == launches["backward, bias alone"] == (1 if backward == 1 else 2)
    assert launches["evaluation backward, all gradients"] == launches["evaluation backward, sums alone"] == 2
    assert launches["evaluation backward, input alone"] == 1


@pytest.mark.parametrize("dtype", SIZES)
def test_running_statistics_are_written_by_the_kernel_that_has_the_moments(
    interpreted: dict[str, Any], dtype: str
) -> None:
    result = interpreted["updates"][dtype]
    assert len(result) >= 60
    assert [case for case, right in result.items() if not right] == []


def test_running_statistics_that_share_memory_with_what_is_read_are_updated_at_the_end(
    interpreted: dict[str, Any],
) -> None:
    result = interpreted["shared"]
    assert len(result) == 6
    assert [case for case, right in result.items() if not right] == []
    # Had the host code not asked, the results would be others, or the machine would end the launch.
    unasked = interpreted["shared and not asked about"]
    assert [case for case, right in unasked.items() if not right] == [
        "mean is var", "mean is weight", "var is bias", "every other"
    ]  # fmt: skip


@pytest.mark.parametrize("dtype", SIZES)
def test_no_more_is_moved_than_must_be(interpreted: dict[str, Any], dtype: str) -> None:
    """Of long lines, whose statistics and partial results are little beside them: within 1 %."""
    size = CASES["long lines"][0] * SIZES[dtype]
    moved = {call: result["bytes"] / size for call, result in interpreted["results"][f"long lines, {dtype}"].items()}
    must = {
        "training": 3, "evaluation": 2, "backward, all gradients": 5, "backward, sums alone": 2,
        "backward, bias alone": 1, "evaluation backward, all gradients": 3, "evaluation backward, input alone": 2,
        "evaluation backward, bias alone": 1,
    }  # fmt: skip
    assert {call: math.floor(moved[call] * 100) / 100 for call in must} == {call: float(n) for call, n in must.items()}


def test_a_channel_within_a_tile_is_read_once(interpreted: dict[str, Any]) -> None:
    """Its 64 elements are 256 bytes; its statistics, parameters and gradients are fewer than 40."""
    size = CASES["within a tile"][0] * 4
    moved = {call: result["bytes"] for call, result in interpreted["results"]["within a tile, torch.float32"].items()}
    assert 2 * size <= moved["training"] <= 2 * size + 4 * 40
    assert 3 * size <= moved["backward, all gradients"] <= 3 * size + 4 * 40


@pytest.mark.parametrize("case", ["many rows", "volume, channels last"])
def test_a_channel_has_the_same_bits_alone_and_among_others(interpreted: dict[str, Any], case: str) -> None:
    assert interpreted["alone"][case] == []


def test_no_call_falls_back(interpreted: dict[str, Any]) -> None:
    assert interpreted["fallbacks"] == 0


# ------------------------------------------------------------------------------------------------------ cutting


def _of_a_channel(cut: Cut) -> tuple[object, ...]:
    samples, _, length, over, _ = cut.extents
    return samples, length, over, cut.each, cut.pieces, cut.elements, dict(cut.constants), dict(cut.parts), cut.warps


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("rest", [(7,), (700,), (64, 3), (2, 9000), (33, 7, 7), (1, 1, 1)])
def test_how_a_channel_is_cut_does_not_depend_on_the_others(rest: tuple[int, ...], last: bool, operands: int) -> None:
    cuts = [
        cut_of(
            torch.Size((rest[0], c, *rest[1:])),
            torch.channels_last if last else torch.contiguous_format,
            torch.float32,
            operands,
        )
        for c in (1, 2, 31, 64, 5000)
    ]
    assert all(_of_a_channel(cut) == _of_a_channel(cuts[0]) for cut in cuts)


def test_a_channel_of_more_elements_is_cut_otherwise() -> None:
    few, many = (cut_of(torch.Size((n, 8, 64, 64)), torch.contiguous_format, torch.float32, 1) for n in (2, 3))
    assert few.whole
    assert not many.whole


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(1, 1), (300, 5), (70, 2, 3), (5, 2, 9000), (3, 40, 20, 10), (1, 3, 1 << 31)])
def test_the_tiles_cover_every_element_once(shape: tuple[int, ...], last: bool, operands: int) -> None:
    cut = cut_of(torch.Size(shape), torch.channels_last if last else torch.contiguous_format, torch.float32, operands)
    samples, lines, length, over, tiles = cut.extents
    sizes = [cut.constants[name] for name in ("SAMPLES", "POSITIONS", "LINES")]
    at_once, along, side = (int(str(size)) for size in sizes)
    assert samples * lines * length == math.prod(shape)
    assert (over - 1) * along < length <= over * along
    assert (tiles - 1) * side < lines <= tiles * side
    assert cut.pieces == -(-samples // at_once) * over
    assert at_once * along * side <= 8192
