"""Answers of a candidate's process are a stranger's data: whatever cannot be read rejects it, and ends nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.host import calls, exchange
from opassay.properties.candidates.host.apart import CandidateApart
from opassay.properties.candidates.host.calls import (
    Aliases,
    Answer,
    BackwardCall,
    CandidateCall,
    GoneError,
    Making,
    Pulled,
    Sequel,
    Writes,
    WrittenTensors,
)  # fmt: skip
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.question_plan import QuestionPlan

CALL = CandidateCall.of(
    CallArguments.of((torch.ones(3), torch.ones(2), 5)),
    sequel=Sequel(times=4, writes=Writes(after=True)),
    backward=BackwardCall(moving=[0, 1], wanted=["w"]),
)
RIGHT = Answer(
    [torch.ones(3)],
    "*",
    writes=WrittenTensors(after=[torch.ones(3), torch.ones(2)]),
    aliases=Aliases(shared=[-1]),
    pulled=Pulled([torch.ones(3), None, None]),
)

PARTS = ("writes", "aliases", "repeat", "pulled")


@pytest.fixture
def between() -> Iterator[exchange.Exchange]:
    opened = exchange.Exchange()
    yield opened
    opened.close()


def test_an_answer_that_has_what_was_asked_is_read(between: exchange.Exchange) -> None:
    for answer in (RIGHT, Answer(raised="ValueError: no"), _with(gradients=[]), _with(differs=3)):
        calls.write(Path(between.place()), answer)
        assert between.answer(CALL).raised == answer.raised
    calls.write(Path(between.place()), Answer([torch.arange(4)]))
    assert torch.equal(between.answer(None).outputs[0], torch.arange(4))


def _with(**fields: Any) -> Answer:
    """The right answer with other attributes, of its own or of its parts."""
    parts: dict[str, Any] = {}
    for name, value in fields.items():
        homes = () if name in RIGHT.__struct_fields__ else PARTS
        part = next((p for p in homes if name in getattr(RIGHT, p).__struct_fields__), None)
        parts |= (
            {name: value} if part is None else {part: msgspec.structs.replace(getattr(RIGHT, part), **{name: value})}
        )
    return msgspec.structs.replace(RIGHT, **parts)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"seconds": float("nan")}, "got seconds=nan"),
        ({"seconds": -1.0}, "got seconds=-1.0"),
        ({"seconds": "long"}, "Expected `float`"),
        ({"outputs": ["text"]}, "got outputs of a str"),
        ({"outputs": [None]}, "got outputs of a NoneType"),
        ({"different": [[torch.ones(1)]]}, "got different of a list"),
        ({"outputs": [torch.zeros(1, dtype=torch.bits8)]}, "got dtype='bits8'"),
        (
            {"outputs": [torch.zeros(1, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)]},
            "got outputs of a torch.float4_e2m1fn_x2",
        ),
        ({"after": []}, "got 0 of after, need 2"),
        ({"shared": []}, "got 0 of shared, need 1"),
        ({"shared": [7]}, r"got shared=\[7\]"),
        ({"gradients": [None]}, "got 1 of gradients, need 3"),
        ({"differs": 5}, "got differs=5"),
        ({"shapes": [(-1,)]}, "got shapes="),
        ({"changed": ["x" * 2**18] * 2}, "characters"),
        ({"form": "x" * 2**19}, "characters"),
        ({"plain": [[1]]}, "got plain with something else"),
        ({"plain": [torch.ones(1)]}, "got plain with something else"),
        ({"buffers": [None]}, "got 1 of buffers, need 0"),
        ({"overlaps": [(1, 0)]}, r"got overlaps=\[\(1, 0\)\]"),
    ],
)
def test_a_field_that_no_host_gives_is_refused(
    fields: dict[str, Any], message: str, between: exchange.Exchange
) -> None:
    calls.write(Path(between.place()), _with(**fields))
    with pytest.raises(GoneError, match=message):
        between.answer(CALL)


def _nested(path: Path) -> None:
    head = b"\x91" * 100_000
    path.write_bytes(len(head).to_bytes(8, "little") + head)


def _sparse(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 60 * 2**30)


def _linked(path: Path) -> None:
    calls.write(path.with_name("elsewhere"), RIGHT)
    path.symlink_to("elsewhere")


def _tensors_of_no_bytes(path: Path) -> None:
    tensor = msgspec.msgpack.Ext(
        1, msgspec.msgpack.encode({"dtype": "float32", "shape": [0, 2**62], "start": 0, "size": 0})
    )
    head = msgspec.msgpack.encode({"outputs": [tensor]})
    path.write_bytes(len(head).to_bytes(8, "little") + head)


@pytest.mark.parametrize(
    "leave",
    [os.mkfifo, os.mkdir, _nested, _sparse, _linked, _tensors_of_no_bytes, Path.touch, lambda path: None,
     lambda path: path.write_bytes(b"\xff" * 100), lambda path: path.write_bytes(bytes(8) + b"\x80" * 3)],
)  # fmt: skip
def test_what_stands_in_the_place_of_an_answer_is_refused(
    leave: Callable[[Path], object], between: exchange.Exchange
) -> None:
    leave(Path(between.place()))
    with pytest.raises(GoneError, match="cannot be read"):
        between.answer(CALL)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_the_judge_writes_through_no_link(
    link: Callable[[str, str], None], between: exchange.Exchange, tmp_path: Path
) -> None:
    victim = Path(between.place()).with_name("victim")
    victim.write_text("mine")
    number = between.write(CALL)
    os.unlink(number)
    link(str(victim), number)
    between.write(CALL)
    assert victim.read_text() == "mine"
    folder = victim.parent
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path)
    between.write(Making(CALL))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["moved"]
    folder.unlink()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"loaded": 3}, "Expected `str`"),
        ({"loaded": "f", "changed": [["x"]]}, "Expected `str`"),
        ({"loaded": "f", "shapes": {"w": ["x"]}}, "Expected `int`"),
        ({"done": True}, "it names no candidate"),
        ({"refusal": "x" * 2**19}, "characters"),
    ],
)
def test_a_line_that_names_no_candidate_is_refused(line: dict[str, Any], message: str) -> None:
    with pytest.raises(GoneError, match=message):
        exchange.loaded(line)


SPEC = "import torch\ndef reference(x):\n    return x * 2\ndef inputs():\n    return (torch.randn(5, 4),)\n"
ZEROS = "def candidate(x):\n    return x * 0\n"
#: What a wrong candidate does so that nothing be said of it, and what is said of it.
CHEATS = {
    "seconds": (
        "from opassay.properties.candidates.host import host\nold = host.CandidateHost.finish\n"
        "change = host.msgspec.structs.replace\n"
        "host.CandidateHost.finish = lambda self, *a: change(old(self, *a), repeat=host.Repeat("
        "seconds=float('nan')))\n" + ZEROS,
        "FWD:given", "got seconds=nan",
    ),
    "fifo": (
        "import os\nfrom opassay.properties.candidates.host import calls\n"
        "calls.write = lambda path, said: os.mkfifo(path)\n" + ZEROS,
        "FWD:given", "no regular file",
    ),
    "line": (
        "import json\nold = json.dumps\n"
        "json.dumps = lambda said, **o: old({'loaded': 3} if 'loaded' in said else said, **o)\n" + ZEROS,
        "PURE:process", "cannot be read",
    ),
    "lacking": (
        "from opassay.properties.candidates.host.module_files import GivenError\nraise GivenError('no such file')\n",
        "PURE:process", "raised GivenError",
    ),
    "silent": ("import os\nos.closerange(3, 100)\n" + ZEROS, "PURE:process", "died"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_candidate_whose_answers_cannot_be_read_is_rejected(cheat: str, tmp_path: Path) -> None:
    text, question, message = CHEATS[cheat]
    candidate, spec = tmp_path / f"cheat_{cheat}.py", tmp_path / f"spec_of_{cheat}.py"
    candidate.write_text(text)
    spec.write_text(SPEC)
    files, limits = (str(candidate), str(spec)), Confinement(seconds=20)
    judgement = judge_file(
        *files, contract="torch", confinement=limits, plan=QuestionPlan(["FWD:given", "CALLS:again"])
    )
    assert judgement.verdict is Ruling.REJECTED, str(judgement)
    assert judgement.causes[0].question == question
    assert message in judgement.causes[0].text


def test_the_seconds_of_a_call_are_those_of_one_call(
    between: exchange.Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several calls in one question, and what the process does besides, take nothing of a candidate's time."""
    limits: list[float] = []
    monkeypatch.setattr(CandidateApart, "_next_reply", lambda self, seconds: limits.append(seconds))
    monkeypatch.setattr(exchange.Exchange, "answer", lambda self, call: Answer())
    apart = CandidateApart.__new__(CandidateApart)
    apart._executes = False
    apart._seconds, apart._exchange, apart._stores, apart._process = 3.0, between, False, _Deaf()  # type: ignore[assignment]
    for call in (CandidateCall.of(CallArguments.of(())), msgspec.structs.replace(CALL, backward=None), CALL):
        apart.ask(call)
    apart.fetch([0])
    # Each call, what is asked of it afterwards, and the rows.
    least = (3, 0, 3, 3 * 3, 2 * 3, 3 * 3, 0)
    assert all(limit > each for limit, each in zip(limits, least, strict=True)), limits


class _Deaf:
    def ask(self, question: dict[str, Any]) -> None:
        """Takes a question, and does nothing."""
