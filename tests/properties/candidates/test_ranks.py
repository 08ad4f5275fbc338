"""Candidates of several ranks: where collectives meet, how tensors are cut, and what is found of wrong kernels."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch.distributed.tensor import Partial, Replicate, Shard

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.host.calls import Answer, CandidateCall
from opassay.properties.candidates.placements import PartsError, Placements, placements_of
from opassay.properties.candidates.question_plan import mesh_of
from opassay.properties.candidates.rank_parts import CallNames, CallParts
from opassay.properties.candidates.rank_world import RankGroup
from opassay.properties.candidates.ranks.collectives import POSTED, RankCall
from opassay.properties.places import wire
from opassay.reference.meeting import ANY, Delivery, Meeting, MeetingError, Post, Turn
from tests.properties.candidates import over_ranks

_KERNELS = Path(over_ranks.__file__).parent


def _post(number: int, op: str, *tensors: Any, size: int = 2, **others: Any) -> Post:
    tensors = tuple(torch.tensor(each) for each in tensors)
    words = {name: others[name] for name in ("root", "reduction") if name in others}
    text = RankCall(op, **words).describe("float32[2]", range(size))
    return Post(number, op, "world", list(range(size)), list(tensors), text, **others)


def _meet(meeting: Meeting, *programs: Callable[[Callable[[Turn], Delivery]], Any]) -> list[Any]:
    """What programs of ranks give, each of which takes turns at a meeting; an exception is its text."""
    results: dict[int, Any] = {}

    def run(rank: int) -> None:
        try:
            results[rank] = programs[rank](lambda turn: meeting.take_turn(rank, turn))
        except MeetingError as err:
            results[rank] = str(err)
        meeting.leave(rank, "has returned")

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(len(programs))]
    for each in threads:
        each.start()
    for each in threads:
        each.join(20)
    return [results.get(rank, "hangs") for rank in range(len(programs))]


def _one(post: Post) -> Callable[[Callable[[Turn], Delivery]], Any]:
    return lambda take: [t.tolist() for t in take(Turn([post], post.number)).tensors]


def test_a_sum_is_on_all_ranks() -> None:
    posts = [_post(0, "all_reduce", [1.0, 2.0], reduction="sum"), _post(0, "all_reduce", [3.0, 5.0], reduction="sum")]
    assert _meet(Meeting(2), *map(_one, posts)) == [[[4.0, 7.0]], [[4.0, 7.0]]]


@pytest.mark.parametrize(
    ("op", "tensors", "root", "need"),
    [
        ("all_gather", ([[1.0]], [[2.0]]), ANY, [[[1.0], [2.0]], [[1.0], [2.0]]]),
        ("gather", ([[1.0]], [[2.0]]), 1, [[], [[1.0], [2.0]]]),
        ("broadcast", ([[1.0]], [[2.0]]), 1, [[[2.0]], [[2.0]]]),
        ("scatter", ([[1.0], [7.0]], []), 0, [[[1.0]], [[7.0]]]),
        ("all_to_all", ([[1.0], [2.0]], [[3.0], [4.0]]), ANY, [[[1.0], [3.0]], [[2.0], [4.0]]]),
        ("reduce_scatter", ([[1.0], [2.0]], [[3.0], [4.0]]), ANY, [[[4.0]], [[6.0]]]),
        ("reduce", ([[1.0]], [[2.0]]), 0, [[[3.0]], []]),
        ("barrier", ([], []), ANY, [[], []]),
    ],
)  # fmt: skip
def test_every_collective_has_its_meaning(op: str, tensors: Any, root: int, need: Any) -> None:
    reduction = "sum" if "reduce" in op else ""
    posts = [_post(0, op, *each, root=root, reduction=reduction) for each in tensors]
    assert _meet(Meeting(2), *map(_one, posts)) == need


def test_messages_come_in_the_order_of_their_channel() -> None:
    sends = [_post(i, "send", [float(i)], root=1) for i in range(2)]
    takes = [_post(i, "recv", root=0) for i in range(2)]

    def send(take: Callable[[Turn], Delivery]) -> None:
        take(Turn(sends, 1))

    def receive(take: Callable[[Turn], Delivery]) -> list[Any]:
        second = take(Turn(takes, 1)).tensors
        return [take(Turn([], 0)).tensors[0].item(), second[0].item()]

    assert _meet(Meeting(2), send, receive)[1] == [0.0, 1.0]


def test_two_that_send_to_each_other_wait_for_good() -> None:
    first, second = _meet(Meeting(2), _one(_post(0, "send", [1.0], root=1)), _one(_post(0, "send", [1.0], root=0)))
    calls = (f"rank {i} waits in call 1, send(float32[2], to rank {1 - i})" for i in range(2))
    assert first == second == "; ".join(calls)


def test_a_rank_that_leaves_is_named() -> None:
    words, _ = _meet(Meeting(2), _one(_post(0, "all_reduce", [1.0], reduction="sum")), lambda take: None)
    assert words == "rank 0 waits in call 1, all_reduce(float32[2], sum); rank 1 has returned after call 0"


def test_different_calls_are_named() -> None:
    posts = _post(0, "all_reduce", [1.0], reduction="sum"), _post(0, "all_reduce", [1.0], reduction="max")
    first, second = _meet(Meeting(2), *map(_one, posts))
    calls = (f"rank {i} waits in call 1, all_reduce(float32[2], {kind})" for i, kind in enumerate(("sum", "max")))
    assert first == second == f"different calls: {'; '.join(calls)}"


def test_a_message_of_any_rank_is_of_the_first_in_the_order() -> None:
    programs = [
        lambda take: take(Turn([_post(0, "recv", size=3)], 0)).source,
        _one(_post(0, "send", [1.0], root=0, size=3)), _one(_post(0, "send", [2.0], root=0, size=3)),
    ]  # fmt: skip
    assert _meet(Meeting(3), *programs)[0] == 1
    assert _meet(Meeting(3, (2, 1, 0)), *programs)[0] == 2


def test_who_waits_for_a_lost_rank_is_told() -> None:
    meeting = Meeting(2, broken=1)
    posts = [_post(0, "all_reduce", [1.0], reduction="sum") for _ in range(2)]
    first, second = _meet(meeting, *map(_one, posts))
    assert second == "rank 1 has lost its connection to all others"
    assert first.startswith("rank 0 waits in call 1, all_reduce")
    assert meeting.victims == {0, 1}


@pytest.mark.parametrize("n", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("lying", [Shard(0), Shard(-1), Replicate(), Partial()])
def test_parts_make_the_whole(n: int, lying: Any) -> None:
    whole, placements = torch.arange(3.0 * n).reshape(n, 3), Placements((4,))
    parts = [placements.cut(whole, (lying,), rank) for rank in range(4)]
    if lying.is_shard():
        lengths = [part.shape[lying.dim] for part in parts]
        chunks = whole.chunk(4, lying.dim)
        assert lengths == [*(each.shape[lying.dim] for each in chunks), *[0] * (4 - len(chunks))][:4]
    assert torch.equal(placements.join(parts, (lying,), lambda *_: None), whole)


def test_a_mesh_of_two_axes_cuts_by_both() -> None:
    whole, placements = torch.arange(24.0).reshape(4, 6), placements_of({"x": (Shard(0), Shard(1))}, (2, 3))
    parts = [placements.cut(whole, placements.of("x"), rank) for rank in range(6)]
    assert parts[5].tolist() == whole[2:, 4:].tolist()
    assert torch.equal(placements.join(parts, placements.of("x"), lambda *_: None), whole)


def test_a_replica_of_other_bits_is_noted() -> None:
    pairs: list[tuple[int, bool]] = []
    parts = [torch.ones(2), torch.ones(2), torch.ones(2) + 1e-6]
    Placements((3,)).join(
        parts, (Replicate(),), lambda rank, part, first: pairs.append((rank, torch.equal(part, first)))
    )
    assert pairs == [(1, True), (2, False)]


def test_no_parts_of_one_tensor_are_refused() -> None:
    places = Placements((2,))
    with pytest.raises(PartsError, match=r"rank 1 has float32\[2, 4\] and rank 0 float32\[2, 3\], no parts by"):
        places.join([torch.ones(2, 3), torch.ones(2, 4)], (Shard(0),), lambda *_: None)
    with pytest.raises(PartsError, match=r"rank 0 has 1 of 4 along axis 0, and by Shard\(0\) 2"):
        places.join([torch.ones(1), torch.ones(3)], (Shard(0),), lambda *_: None)


def test_a_partial_sum_is_cut_exactly() -> None:
    whole = torch.tensor([0.1, float("inf"), float("nan"), -3.0])
    parts = [Placements((3,)).cut(whole, (Partial(),), rank) for rank in range(3)]
    assert torch.equal(torch.stack(parts).nan_to_num(7.0, 8.0).sum(0), whole.nan_to_num(7.0, 8.0))


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"x": 0}, r"placements: got x=0, need Shard\(dim\), Replicate\(\) or Partial\(\)"),
        ({"x": (Shard(0), Shard(1))}, "placements: got 2 of x, need one for each of 1 axes of the mesh 4"),
        ({"y": Shard(0)}, "placements: got 'y'"),
    ],
)
def test_placements_of_nothing_are_refused(words: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        placements_of(words, (4,)).require_names(["x"])


@pytest.mark.parametrize(("text", "need"), [("4", (4,)), ("2x2", (2, 2)), ("8", (8,))])
def test_a_mesh_is_read(text: str, need: tuple[int, ...]) -> None:
    assert mesh_of(text) == need


@pytest.mark.parametrize("text", ["0", "nine", "3x3", "-1", "2x"])
def test_no_mesh_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="world: got "):
        mesh_of(text)


def _judge(
    file: str, kernel: str, *words: str, world: str = "4", spec: str = "reference"
) -> tuple[str, str]:  # fmt: skip
    """The verdict of a kernel of `over_ranks`, and all that is said."""
    path = _KERNELS / f"{file}.py"
    command = [sys.executable, "-m", "opassay", "judge", f"{path}:{kernel}", "--spec", f"{path}:{spec}"]
    command += ["--world", world, "--seed", "0", *words]
    out = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    lines = [line for line in out.stdout.splitlines() if line.startswith(("accepted", "rejected", "weak"))]
    return lines[0].partition(":")[0] if lines else out.stderr, out.stdout


#: Questions that are answered in few calls.
_QUICK = ("-k", "FWD:given", "-k", "VJP:grad", "-k", "COMM")


def test_a_right_kernel_is_accepted() -> None:
    verdict, text = _judge("linear", "right", *_QUICK)
    assert verdict == "accepted", text
    assert "on 4 ranks: x S(1), weight S(1), bias R, return R" in text


def test_a_gradient_times_the_world_is_found() -> None:
    verdict, text = _judge("linear", "wrong_gradient", "-k", "VJP:grad", world="2")
    assert verdict == "rejected"
    assert "off by the factor 2" in text


@pytest.mark.parametrize(("kernel", "need"), [("right", "accepted"), ("wrong_gradient", "rejected")])
def test_a_spec_may_be_written_for_the_parts_of_one_rank(kernel: str, need: str) -> None:
    questions = ("-k", "FWD:given", "-k", "VJP:grad")
    assert _judge("linear", kernel, *questions, world="2", spec="reference_of_parts")[0] == need


def test_other_bits_on_the_ranks_are_found() -> None:
    verdict, text = _judge("sums", "wrong_own_order", *_QUICK)
    assert verdict == "rejected"
    assert "COMM:replicas: rank " in text


def test_a_half_type_may_travel_where_it_is_the_dtype() -> None:
    assert _judge("sums", "right_ring", "--dtype", "bf16", "-k", "FWD:given")[0] == "accepted"
    assert _judge("sums", "wrong_narrow_hop", "-k", "FWD:given")[0] == "rejected"


@pytest.mark.parametrize(
    ("file", "kernel", "words", "words_of_card"),
    [
        ("sums", "wrong_without_wait", ["-k", "FWD:given"], "FWD:given"),
        ("sums", "wrong_swallowed", ["-k", "FWD:given", "-k", "COMM:errors"], "COMM:errors"),
        ("experts", "wrong_without_tokens", ["-k", "SIZE"], ", all_to_all"),
    ],
)
def test_what_ranks_alone_have_wrong_is_found(file: str, kernel: str, words: list[str], words_of_card: str) -> None:
    verdict, text = _judge(file, kernel, *words)
    assert verdict == "rejected", text
    assert words_of_card in text


def test_what_ranks_are_not_asked_is_said() -> None:
    text = _judge("linear", "right", "-k", "ALL")[0]
    assert "world: got ALL, which several ranks are not asked" in text


def test_a_record_is_asked_again_on_as_many_ranks(tmp_path: Path) -> None:
    verdict, text = _judge("linear", "wrong_gradient", "-k", "VJP:grad", "--report-dir", str(tmp_path), world="2")
    assert verdict == "rejected", text
    (case,) = (tmp_path / "cases").glob("*.json")
    command = [sys.executable, "-m", "opassay", "replay", str(case), "--op", f"{_KERNELS / 'linear.py'}:wrong_gradient"]
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert again.returncode == 1, again.stderr
    assert "on 2 ranks" in again.stdout


def _serve_rank(process: Any, meeting: Meeting, rank: int, folder: Path) -> None:
    """Speak for a rank where collectives meet."""
    for _ in process.stdout:
        turn = wire.decode((folder / POSTED).read_bytes(), Turn)
        try:
            (folder / "delivered").write_bytes(wire.encode(meeting.take_turn(rank, turn)))
            reply = {"delivered": str(folder / "delivered")}
        except MeetingError as err:
            reply = {"failed": str(err)}
        process.stdin.write(json.dumps(reply) + "\n")
        process.stdin.flush()
    meeting.leave(rank, "has returned")


@pytest.mark.slow
def test_every_collective_gives_the_bits_of_gloo(tmp_path: Path) -> None:
    """The same program in processes that talk over gloo, and as ranks of a judge."""
    size, store, program = 3, tmp_path / "store", Path(__file__).with_name("every_collective.py")
    meeting = Meeting(size)
    for way in ("gloo", "judge"):
        words = [[sys.executable, str(program), str(r), str(size), way, str(store)] for r in range(size)]
        pipes: Any = {} if way == "gloo" else {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        for r in range(size):
            (tmp_path / f"store.{r}").mkdir(exist_ok=True)
        processes = [subprocess.Popen(each, **pipes) for each in words]
        threads = [
            threading.Thread(target=_serve_rank, args=(each, meeting, r, tmp_path / f"store.{r}"), daemon=True)
            for r, each in enumerate(processes)
        ]
        for each in threads if pipes else ():
            each.start()
        assert [each.wait(120) for each in processes] == [0] * size
    for rank in range(size):
        ours, theirs = (torch.load(f"{store}.{way}.{rank}") for way in ("judge", "gloo"))
        known = {name: y for name, y in theirs.items() if not isinstance(y, str)}
        assert len(known) > 15, theirs
        wrong = {name: (ours[name], y) for name, y in known.items() if not torch.equal(ours[name], y)}
        assert not wrong


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the rehearsal device is built by g++, which is not here")
def test_tensors_of_a_gpu_are_rehearsed_on_ranks() -> None:
    verdict, text = _judge("sums", "right_library", "-k", "FWD:given", "--device", "rehearsal", world="2")
    assert verdict == "accepted", text
    assert "on the rehearsal device" in text


def test_a_mean_over_ranks_gives_each_its_share_of_the_cotangent() -> None:
    words = {"return": Partial("avg"), "x": Partial()}
    assert placements_of(words, (4,)).share_of_cotangent("return") == 0.25
    assert placements_of({**words, "return.grad": Replicate()}, (4,)).share_of_cotangent("return") == 1.0
    with pytest.raises(ValueError, match=r"placements: got x=Partial\(.*avg.*\), need Partial of sum"):
        placements_of({"x": Partial("avg")}, (4,))


@pytest.mark.parametrize(("kernel", "need"), [("right", "accepted"), ("wrong_sum", "rejected")])
def test_gradients_that_are_averaged_afterwards_are_those_of_the_mean(kernel: str, need: str) -> None:
    assert _judge("averaged", kernel, "-k", "FWD:given", "-k", "VJP:grad", world="2")[0] == need


class _Rank:
    """A candidate that gives these answers, and keeps what it has returned."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.outputs = list(answers), list[torch.Tensor]()

    def ask(self, _: CandidateCall) -> Answer:
        answer = self.answers.pop(0)
        self.outputs += answer.outputs
        return answer

    def review(self) -> Answer:
        return Answer(earlier=self.outputs)


@pytest.mark.parametrize("other", [Answer(raised="ValueError: rows"), Answer([torch.ones(2).bfloat16()], "*")])
def test_outputs_that_stay_are_those_of_their_call(other: Answer) -> None:
    """Where one rank refused a call before, or gave no part of it, the others have kept what they gave."""
    first, second = Answer([torch.ones(2)], "*"), Answer([torch.full((2,), 7.0)], "*")
    parts = CallParts(Placements((2,)), CallNames((), (("return", torch.float32),)))
    ranks = RankGroup(parts, aparts=cast(Any, [_Rank(first, second), _Rank(other, second)]))
    call = CandidateCall.of(CallArguments.of(()))
    assert ranks.ask(call).raised
    assert ranks.ask(call).outputs[0].tolist() == [7.0, 7.0]
    assert [y.tolist() for y in ranks.review().earlier] == [[7.0, 7.0]]
