"""The first guilty line of programs after public reports is the answer."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.oracles.verdicts.watched import Site, Watched
from tests.watch.reported_programs import REPORTED


def _watch(name: str, source: str) -> Watched:
    torch.manual_seed(0)
    variables = {"torch": torch, "F": F, "math": math}
    with opassay.watch() as watcher:
        exec(compile(source, name, "exec"), variables)
        if "loss" in variables:
            variables["loss"].backward()
    assert watcher.result is not None
    return watcher.result


def first_guilty(watched: Watched) -> Site:
    """The site that the report names first: the first one outside, else where the first NaN begins."""
    outside = [site for site in watched.sites if site.outcome is Outcome.FAIL]
    if outside:
        return min(outside, key=lambda site: site.first)
    assert watched.special is not None
    return watched.sites[watched.special.site]


@pytest.mark.filterwarnings("ignore:std")
@pytest.mark.parametrize("name", REPORTED)
def test_the_first_guilty_line_is_the_answer(name: str) -> None:
    thread, source = REPORTED[name]
    (line,) = [number for number, text in enumerate(source.splitlines(), 1) if text.endswith("# here")]
    site = first_guilty(_watch(f"/{Path(name).name}.py", source))
    assert int(site.place.line.rpartition(":")[2]) == line, f"{thread}: {site.place.text}"


def test_every_report_names_a_thread() -> None:
    assert len(REPORTED) == 12
    assert all(re.match(r"[a-z]+#\d+: ", thread) for thread, _ in REPORTED.values())
