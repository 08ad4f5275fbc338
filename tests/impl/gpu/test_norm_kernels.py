"""The Triton kernels of layer and group norm, interpreted: what the cells of subject "triton" do not ask."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "norms_program.py"


def _ask(question: str) -> Any:
    pytest.importorskip("triton", reason="Triton is not installed, so nothing interprets kernels")
    command = [sys.executable, str(PROGRAM), question]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["fallbacks"] == 0
    return answer["answer"]


def test_a_row_has_the_same_bits_alone_and_in_a_batch() -> None:
    same = _ask("bits")
    assert len(same) == 56
    assert all(same)


def test_forward_is_one_launch_and_backward_two() -> None:
    assert _ask("launches") == {
        "layer_norm": {"layer_norm_forward": 1},
        "its backward": {"layer_norm_backward": 1, "add_partial_sums": 1},
        "group_norm": {"group_norm_forward": 1},
        "its backward, too": {"group_norm_backward": 1, "add_partial_sums": 1},
        "without parameters": {"layer_norm_forward": 1, "layer_norm_backward": 1},
        "fused_add_rms_norm": {"layer_norm_forward": 1},
        "its backward, the sum's included": {"layer_norm_backward": 1, "add_partial_sums": 1},
    }


def test_a_tangent_is_one_launch_and_three_where_a_channel_is_in_pieces() -> None:
    result = _ask("tangents")
    assert {name: [kernel for kernel in kernels if "jvp" in kernel] for name, kernels in result.items()} == {
        "layer_norm": ["layer_norm_jvp"],
        "group_norm": ["group_norm_jvp"],
        "batch_norm": ["batch_norm_jvp_whole"],
        "in pieces": ["batch_norm_jvp_moments", "batch_norm_jvp_combine", "batch_norm_jvp_apply"],
        "evaluation": ["batch_norm_jvp_apply"],
        "softmax": ["softmax_jvp"],
        "log_softmax": ["softmax_jvp"],
        "a batch of tangents": ["layer_norm_jvp"],
        "second order": ["softmax_jvp"],
    }
    # At the first order no expression is evaluated beside the kernel: that of softmax would launch softmax again.
    assert result["softmax"] == {"softmax_forward": 1, "softmax_jvp": 1}


def test_sums_over_more_rows_than_programs_share_lie_in_their_bound() -> None:
    # A sum of n terms in any order errs by (n - 1) u Σ|terms| at most; the terms of d_weight have a few roundings more,
    # which n = 700 has room for.
    for row in _ask("sums"):
        assert row < 1.0


def test_the_mean_of_a_row_with_an_infinity_is_what_mathematics_has() -> None:
    for up, down, neither, seven in _ask("infinities"):
        assert (up, down, seven) == (math.inf, -math.inf, 7.0)
        assert math.isnan(neither)
