"""What a judgement draws: from a seed as ever, or from a secret that the verdict tells."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from opassay.properties.candidates.host import temporary
from opassay.properties.candidates.host.temporary import TemporaryFolder
from opassay.properties.candidates.judge_draws import Draws
from opassay.reports.cli.main import main

DIGITS = "0123456700112233445566778899aabbccddeeff"


def test_a_seed_draws_what_it_drew_ever() -> None:
    draws = Draws.of(7)
    assert (draws.inputs(0), draws.inputs(3), draws.seed, draws.origin) == (7, 10, 7, 7)
    assert draws.generator("OFFSET").integers(1 << 30) == 508322915


def test_a_secret_is_another_each_time_and_draws_the_same_again() -> None:
    one, other = Draws.of(None), Draws.of(None)
    assert one.secret != other.secret
    again = Draws.of(one.origin)
    assert again == one
    for question in ("FWD:given", "FWD:offset"):
        assert again.generator(question).integers(1 << 62) == one.generator(question).integers(1 << 62)
        assert other.generator(question).integers(1 << 62) != one.generator(question).integers(1 << 62)
    assert len({one.inputs(0), one.inputs(1), one.inputs(2), one.seed}) == 4
    assert all(0 <= seed < 2**31 for seed in (one.inputs(0), one.seed))


@pytest.mark.parametrize("seed", [-1, "", "12", DIGITS[:-1] + "x", DIGITS + "0"])
def test_other_digits_are_refused(seed: int | str) -> None:
    with pytest.raises(ValueError, match="need"):
        Draws.of(seed)


FILE = """
import torch
def reference(x):
    return torch.relu(x)
def kernel(x):
    return torch.clamp(x, min=0) * 1.0001
def inputs():
    return (torch.randn(4, 8),)
"""
WORDS = ["judge", "mine.py:kernel", "--spec", "mine.py:reference", "-k", "FWD:given", "-k", "FWD:seeds"]


@pytest.fixture
def _mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(FILE)


@pytest.mark.usefixtures("_mine")
def test_draws_that_are_none_are_a_wrong_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--draws", DIGITS, "--seed", "1", "--json"]) == 2
    assert main([*WORDS, "--draws", "12", "--json"]) == 2
    assert "need 40 hexadecimal digits" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.usefixtures("_mine")
def test_the_verdict_tells_its_draws_and_they_can_be_given_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--json"]) == 1
    reply = json.loads(capsys.readouterr().out)
    assert len(reply["draws"]) == 40
    assert main([*WORDS, "--json", "--draws", reply["draws"]]) == 1
    again = json.loads(capsys.readouterr().out)
    assert (again["causes"], again["draws"]) == (reply["causes"], reply["draws"])
    assert main([*WORDS]) == 1
    report = capsys.readouterr().out
    assert report.startswith("kernel against reference\n")
    assert reply["draws"] not in report
    assert report.splitlines()[-1].endswith(" draws the same")


def test_what_a_killed_judgement_left_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary.tempfile, "gettempdir", lambda: str(tmp_path))  # type: ignore[attr-defined]
    monkeypatch.setattr(temporary.tempfile, "tempdir", str(tmp_path))  # type: ignore[attr-defined]
    abandoned = tmp_path / "opassay-judgement-left"
    (abandoned / "own").mkdir(parents=True)
    (abandoned / "own" / "answer").write_text("x")
    (abandoned / "own").chmod(0)
    (tmp_path / "others").mkdir()
    with TemporaryFolder() as used:
        assert abandoned.is_dir()  # it may be one that is being made
        later = time.time() + 120
        monkeypatch.setattr(temporary.time, "time", lambda: later)  # type: ignore[attr-defined]
        with TemporaryFolder() as other:
            assert not abandoned.exists()
            assert os.path.isdir(used.path)
            assert os.path.isdir(other.path)
        assert not os.path.exists(other.path)
    assert [path.name for path in tmp_path.iterdir()] == ["others"]
