"""`python -m workshop mutate`: what its table makes of a log, how it goes on, and how it ends."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workshop.calling import workshop
from workshop.commands.mutant_log import fates
from workshop.commands.mutant_tables import contradictions, family_table, score_of, survivor_lines
from workshop.mutation import campaign
from workshop.mutation.campaign import every_mutant, groups_of
from workshop.mutation.equivalents import Equivalent, read_equivalents, why_equivalent
from workshop.mutation.mutants import Mutant

KILLED = {"outcome": "killed", "by": "VJP", "cell": "trace::VJP[float32-cpu-opassay]", "how": "fail", "asked": 1}


def _mutant(new: str, file: str = "linalg/trace.py") -> Mutant:
    return Mutant(file, "trace", "operator", "return a + b", "a + b", new, 0, 12, 12)


def _record(mutant: Mutant, **message: Any) -> dict[str, Any]:
    return {"mutant": mutant.key, "group": "linalg", "of": 3, "seconds": 0.1, **message}


def test_a_mutant_has_survived_only_if_the_ops_of_no_module_refused_it() -> None:
    one, two, three, four, five = (_mutant(f"a {sign} b") for sign in "-*/%@")
    survived: dict[str, Any] = {"outcome": "survived", "asked": 6}
    records = [
        _record(one, **survived), _record(one, **KILLED), _record(two, **survived), _record(three, **survived),
        _record(four, outcome="not planted", asked=0), {"done": "linalg"},
    ]  # fmt: skip
    table = [Equivalent("linalg/trace.py", "trace", "a + b", (three.new, one.new), "For a reason.")]
    result = fates([one, two, three, four, five], records, table)
    assert [fate.outcome for fate in result] == ["killed", "survived", "equivalent", "not planted", "not reached"]
    assert score_of(result) == 0.5
    assert family_table(result).cells[0][:9] == ("linalg", "5", "1", "1", "1", "0", "1", "1", "50.00%")
    (line,) = survivor_lines(result)
    assert line.startswith("linalg/trace.py:12 trace") and "a + b  ->  a * b" in line  # noqa: PT018
    (wrong,) = contradictions(result)
    assert "'For a reason.', and trace::VJP[float32-cpu-opassay] refused it" in wrong


def test_ops_are_asked_by_the_modules_that_declare_them_few_first() -> None:
    assert groups_of(["softmax", "trace", "log_softmax"]) == {
        "linalg": ["trace"],
        "softmax": ["softmax", "log_softmax"],
    }


def _log(path: Path, outcomes: tuple[str, ...]) -> list[str]:
    """A log of `python -m workshop mutate --op trace --file linalg --most 0`, and the words for its table."""
    table = read_equivalents()
    mutants = [mutant for mutant in every_mutant(["linalg"]) if not why_equivalent(mutant, table)]
    words = ["mutate", "--op", "trace", "--file", "linalg", "--most", "0", "--log", str(path), "--table"]
    assert workshop([*words]) == 5
    heading = json.loads(path.read_text().splitlines()[0])
    message = [KILLED if outcome == "killed" else {"outcome": outcome, "asked": 6} for outcome in outcomes]
    records = [_record(mutant, **one) for mutant, one in zip(mutants[: len(message)], message, strict=True)]
    path.write_text("".join(json.dumps(line) + "\n" for line in (heading, *records)) + '{"mutant": "cut of')
    return words


@pytest.mark.slow
def test_the_table_of_a_log_its_file_and_its_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, into = tmp_path / "mutants.jsonl", tmp_path / "mutants.json"
    words = _log(path, ("killed", "killed", "survived"))
    assert workshop([*words, "--json", str(into)]) == 1
    out = capsys.readouterr().out
    assert "66.67%" in out
    assert "asked 6 questions of 3 cells" in out
    document = json.loads(into.read_text())
    assert {mutant["outcome"] for mutant in document["mutants"]} >= {"killed", "survived", "not reached"}
    assert workshop([*words, "--least", "0.5"]) == 0
    assert workshop([*words, "--seed", "7"]) == 2
    assert "got seed=0, need 7" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--op", "nobody"], 2, "unknown op: got op='nobody'"),
        (["--file", "nowhere"], 5, "no mutant in nowhere"),
        (["--log", "{log}"], 2, "exists; need another file, or --resume"),
        (["--log", "{log}", "--resume"], 2, "is no log of opassay mutate"),
    ],
)
def test_what_cannot_be_done_is_told(
    words: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mutants.jsonl"
    path.write_text("no log\n")
    assert workshop(["mutate", *(word.format(log=path) for word in words)]) == code
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_mutants_of_the_graph_are_those_that_the_process_has_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, program = tmp_path / "mutants.jsonl", str(Path(__file__).with_name("stub_mutants.py"))
    monkeypatch.setattr(campaign, "PROGRAM", (sys.executable, program))
    words = ["mutate", "--graph", "--op", "trace", "--file", "linalg", "--log", str(path)]
    assert workshop(words) == 1
    out = capsys.readouterr().out
    assert "linalg: lines of 116/116 cells" in out
    # Two of the file that was asked for; what runs on CUDA alone is left out, and so is another folder.
    assert "linalg: 2 mutants of lines that it runs" in out
    assert "aten.trace.default  ->  " in out
    assert "50.00%" in out
    assert workshop([*words, "--table"]) == 1
    assert workshop([*(word for word in words if word != "--graph"), "--resume"]) == 2
    assert "got graph=True, need None" in capsys.readouterr().err


def test_a_campaign_asks_logs_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, program = tmp_path / "mutants.jsonl", str(Path(__file__).with_name("stub_mutants.py"))
    monkeypatch.setattr(campaign, "PROGRAM", (sys.executable, program))
    words = ["mutate", "--op", "trace", "--file", "linalg", "--most", "4", "-n", "2", "--log", str(path)]
    assert workshop(words) == 1
    out = capsys.readouterr().out
    assert "linalg: lines of 117/117 cells, 116 held" in out
    assert "trace::DATA[float32-cpu-opassay] does not hold" in out
    lines = path.read_text().splitlines()
    assert json.loads(lines[-1]) == {"done": "linalg"}
    assert json.loads(lines[1])["excluded"] == "trace::DATA[float32-cpu-opassay]"
    assert [json.loads(line).get("outcome") for line in lines[2:-1]] == ["killed", "survived", "survived", "survived"]
    # Half of a line is asked again, and what was asked is not.
    path.write_text("\n".join(lines[:4]) + "\n" + lines[4][:20])
    assert workshop([*words, "--resume"]) == 1
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert again[:4] == [json.loads(line) for line in lines[:4]]
    assert {one["mutant"] for one in again[2:-1]} == {json.loads(line)["mutant"] for line in lines[2:-1]}


@pytest.mark.slow
def test_a_cell_that_ends_the_process_is_excluded_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, program = tmp_path / "mutants.jsonl", str(Path(__file__).with_name("stub_mutants.py"))
    monkeypatch.setattr(campaign, "PROGRAM", (sys.executable, program))
    monkeypatch.setenv("OPASSAY_STUB_ENDS", "VJP")
    words = ["mutate", "--op", "trace", "--file", "linalg", "--most", "2", "--log", str(path)]
    assert workshop([*words, "--json", str(tmp_path / "all.json")]) == 1
    out = capsys.readouterr().out
    assert "linalg: lines of 116/116 cells, 115 held" in out
    assert "  trace::VJP[float64-cpu-opassay] (crash): its process died (killed by SIGSEGV)" in out
    assert "  trace::DATA[float32-cpu-opassay] (fail): planted" in out
    document = json.loads((tmp_path / "all.json").read_text())
    assert [one["outcome"] for one in document["excluded"]] == ["crash", "fail"]
    lines = path.read_text().splitlines()
    # The log knows the cell: it is not judged again, where it would end another process.
    path.write_text("\n".join(lines[:-1]) + "\n")
    assert workshop([*words, "--resume"]) == 1
    assert "VJP[float64-cpu-opassay] does not hold" not in capsys.readouterr().out
    assert path.read_text().splitlines() == lines


def test_a_survivor_that_changed_no_call_of_all_its_questions_is_none() -> None:
    one, two, three = (_mutant(f"a {sign} b") for sign in "-*/")
    records = [
        _record(one, outcome="survived", asked=6, calls=0), _record(two, outcome="survived", asked=6, calls=1),
        _record(three, outcome="survived", asked=5, calls=0),
    ]  # fmt: skip
    assert [fate.outcome for fate in fates([one, two, three], records, ())] == ["not planted", "survived", "survived"]


def test_a_mutant_that_ends_its_process_is_refused_and_said_to_end_it() -> None:
    one = _mutant("a - b")
    (fate,) = fates([one], [_record(one, **{**KILLED, "how": "crash"})], ())
    assert family_table([fate]).cells[0][-1] == "VJP 1; 1 by a crash"


def test_a_mutant_whose_time_was_over_is_asked_again_where_there_is_more() -> None:
    short = {"mutant": "m", "group": "g", "outcome": "survived", "asked": 5, "of": 4, "seconds": 20.3}
    longer = campaign.Settings(seconds=90.0)
    assert campaign._was_short(short, longer)
    assert not campaign._was_short(short, campaign.Settings(seconds=20.0))
    assert not campaign._was_short({**short, "asked": 8}, longer)
    assert not campaign._was_short({**short, "outcome": "killed"}, longer)
