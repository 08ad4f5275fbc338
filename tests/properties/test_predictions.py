"""What the report says of networks that are not there."""

from __future__ import annotations

import re

import pytest

from opassay.properties.engine.predictions import RANKS, predictions


@pytest.mark.parametrize(("op", "lines"), [("sync_batch_norm", 2), ("reduce_add_coalesced", 1), ("layer_norm", 0)])
def test_a_line_has_calls_bytes_and_time_for_every_number_of_ranks(op: str, lines: int) -> None:
    result = predictions(op)
    assert len(result) == lines
    for line in result:
        assert line.startswith("predicted, ")
        assert len(line) <= 300  # what a report shows of a note
        assert [int(n) for n in re.findall(r"(\d+) ranks \d+ calls \d+ kB \d+ µs", line)] == list(RANKS)


def test_sums_are_sent_once_each_way_whatever_the_number_of_ranks() -> None:
    sums, gathered = predictions("sync_batch_norm")
    assert set(re.findall(r"ranks (\d+) calls", sums)) == {"2"}
    sent = [int(kb) for kb in re.findall(r"calls (\d+) kB", gathered)]
    assert sent[-1] > 100 * sent[0], "gathered statistics grow with the ranks"
