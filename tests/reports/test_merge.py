"""Merging: shards of one run, and nothing else, become one record."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome, Verdict
from opassay.reports.collect import OTHER_SHARD
from opassay.reports.merge import MissingShards, merge, shard_of
from opassay.reports.record import RecordError, Run
from tests.reports.conftest import failed, make_run, verdict

NAMES = ("FWD", "VJP", "JVP")
ENVIRONMENT = {
    "python": "3.11.7",
    "torch": "2.13.0",
    "numpy": "2.1.0",
    "mpmath": "1.3.0",
    "hypothesis": "6.100.0",
    "platform": "Linux 6.1 x86_64",
    "cpu": "one",
    "libc": "glibc 2.36",
    "cuda": "not available",
}


def _shards(number: int = 3) -> list[Run]:
    def elsewhere(name: str) -> Verdict:
        return verdict(name, Outcome.NOT_RUN, Code.DESELECTED, judged=0, reason=OTHER_SHARD)

    return [
        replace(
            make_run(*(verdict(name) if j == i else elsewhere(name) for j, name in enumerate(NAMES[:number]))),
            settings={"shard": f"{i + 1}/{number}"},
            environment=dict(ENVIRONMENT),
        )
        for i in range(number)
    ]


def test_all_shards_make_the_whole() -> None:
    merged = merge(_shards()[::-1])
    assert [item.outcome for item in merged.verdicts] == [Outcome.VERIFIED] * 3
    assert (merged.exit_code, merged.notes) == (0, ())
    assert merged.settings == {"merged records": "3"}
    assert merge(_shards(1)).exit_code == 0


def test_a_missing_shard_is_named_and_nothing_is_merged() -> None:
    with pytest.raises(MissingShards, match="missing shards 1/3, 3/3; nothing was written"):
        merge(_shards()[1:2])
    merged = merge(_shards()[:2], partial=True)
    assert [(item.outcome, item.reason) for item in merged.verdicts][2] == (Outcome.NOT_RUN, "its shard is missing")
    assert (merged.exit_code, merged.settings["missing shards"]) == (4, "3/3")
    whole = merge([merged, _shards()[2]])  # the part that came late
    assert (whole.exit_code, "missing shards" in whole.settings) == (0, False)


def test_a_missing_shard_without_a_cell_is_missing_too() -> None:
    run = replace(make_run(verdict()), settings={"shard": "1/2"})
    merged = merge([run], partial=True)
    assert (merged.exit_code, merged.exit_reasons) == (4, ("missing shards 2/2",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": "0.1.1"}, "version: '0.1.0' and '0.1.1'"),
        ({"commit": "abc"}, "commit"),
        ({"profile": "dev"}, "profile"),
        ({"seed": 7}, "seed: '0' and '7'; the profiles dev and nightly draw a seed per shard"),
        ({"max_examples": 9}, "max_examples: 'None' and '9'"),
        ({"settings": {"shard": "2/3", "keyword": "FWD"}}, "keyword: 'none' and 'FWD'"),
        ({"settings": {"shard": "2/3", "several places": "gloo"}}, "several places"),
        ({"settings": {"shard": "2/4"}}, "number of shards: '3' and '4'"),
        ({"settings": {"shard": "4/3"}}, "need I/N"),
        ({"settings": {"shard": "١/٢"}}, "need I/N"),
        ({"settings": {"shard": "1" * 400 + "/2"}}, "need I/N"),
        ({"environment": {"torch": "1.0.0"}}, "torch: '2.13.0' and '1.0.0'"),
        ({"environment": {"numpy": "1.26.4"}}, "numpy"),
        ({"environment": {"mpmath": "1.4"}}, "mpmath"),
        ({"environment": {"hypothesis": "6.101"}}, "hypothesis"),
        ({"environment": {"python": "3.12.1"}}, "python minor version: '3.11' and '3.12'"),
        ({"environment": {"platform": "Linux 6.1 arm64"}}, "platform: 'Linux x86_64' and 'Linux arm64'"),
        ({"environment": {"platform": "Darwin 6.1 x86_64"}}, "platform"),
        ({"environment": {"cuda": "12.4"}}, "cuda"),
        ({"environment": {"gpu": "NVIDIA H100"}}, "gpu: 'none' and 'NVIDIA H100'"),
    ],
)
def test_what_was_asked_or_answered_otherwise_is_refused(changes: dict[str, Any], message: str) -> None:
    one, two, three = _shards()
    if "environment" in changes:
        changes = {"environment": ENVIRONMENT | changes["environment"]}
    with pytest.raises(RecordError, match=message.replace("(", r"\(")):
        merge([one, replace(two, **changes), three])


def test_what_decides_nothing_is_a_note() -> None:
    one, two, three = _shards()
    other = {
        "python": "3.11.9",
        "platform": "Linux 6.9 x86_64",
        "cpu": "two",
        "libc": "glibc 2.39",
        "torch threads": "4",
    }
    merged = merge([one, replace(two, environment=ENVIRONMENT | other), three])
    assert merged.exit_code == 0
    assert [note.split(":")[0] for note in merged.notes] == [
        f"merged records differ in {name}" for name in ("python", "platform", "cpu", "libc")
    ]


def test_a_shard_in_which_nothing_ran_says_nothing_of_where() -> None:
    one, two, three = _shards()
    lost = verdict("FWD", Outcome.NOT_RUN, Code.INTERRUPTED, judged=0)
    one = replace(one, verdicts=(lost, *one.verdicts[1:]), environment={"torch": "2.13.0+cpu"}, exit_code=4)
    merged = merge([one, two, three])
    assert merged.exit_code == 4
    assert merged.environment == ENVIRONMENT


def test_a_shard_that_the_framework_broke_is_not_green() -> None:
    one, two, three = _shards()
    merged = merge([one, replace(two, exit_code=3, exit_reasons=("the session broke",)), three])
    assert merged.exit_code == 3
    assert "the session broke" in merged.exit_reasons[0]


def test_the_worse_of_two_verdicts_counts() -> None:
    one, two, three = _shards()
    again = replace(one, verdicts=(replace(failed("FWD")), *one.verdicts[1:]))
    merged = merge([one, two, three, again])
    assert merged.verdicts[0].outcome is Outcome.FAIL
    assert merged.exit_code == 1
    assert any("the worst one counts" in note for note in merged.notes)


def test_the_shard_of_a_record() -> None:
    assert shard_of(make_run(verdict())) is None
    assert shard_of(_shards()[1]) == (2, 3)
