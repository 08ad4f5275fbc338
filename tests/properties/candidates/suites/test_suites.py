"""Files of public suites as they stand: their tests, what is drawn and judged, and what a wrong one lacks."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.oracles.verdicts.verdict import Code
from opassay.properties.candidates.host.module_files import GivenError
from opassay.properties.candidates.host.quarters import Confinement
from opassay.properties.candidates.host.timing import Timing, measure
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.question_plan import QuestionPlan
from opassay.properties.candidates.suites.opening import cases_of, open_pair, task_of
from opassay.properties.candidates.suites.task import Pair

from .examples import (
    BACKWARD,
    KERNEL,
    WRITING,
    write_definition,
    write_gpu_mode,
    write_robust_kbench,
    write_solution,
    write_workloads,
)

QUICK = ("FWD:given", "FWD:seeds", "VJP:grad", "PURE:left")


def _opened(spec: Path | str, candidate: Path | str, folder: Path, **operands: Any) -> Pair:
    return open_pair(str(spec), str(candidate), folder / "opened", 0, operands)


def _judge(spec: Path | str, candidate: Path | str, **operands: Any) -> Judgement:
    return judge_file(str(candidate), str(spec), contract="torch", values=operands, plan=QuestionPlan(QUICK))


def _draw(pair: Pair, seed: int) -> Sequence[Any]:
    """The arguments of a call, which have no names."""
    arguments = pair.problem.draw(seed)
    assert not isinstance(arguments, Mapping)
    return arguments


def test_a_python_file_and_a_folder_of_problems_are_no_task(tmp_path: Path) -> None:
    (tmp_path / "spec.py").write_text("")
    assert task_of(str(tmp_path)) is task_of(str(tmp_path / "spec.py")) is task_of("module:name") is None
    assert cases_of("module:name", {}) == [{}]


def test_the_tests_of_a_file_are_its_cases_and_values_choose_or_change_one(tmp_path: Path) -> None:
    _, task = write_gpu_mode(tmp_path)
    first, second = {"rows": 5, "columns": 8, "seed": 11}, {"rows": 7, "columns": 16, "seed": 12}
    assert cases_of(task, {}) == cases_of(f"{task}/task.yml", {}) == [first, second]
    assert cases_of(task, {"columns": 16}) == [second]
    assert cases_of(task, {"columns": 9}) == [first | {"columns": 9}]
    definition, workloads = write_definition(tmp_path), write_workloads(tmp_path)
    assert cases_of(str(definition), {}) == [{"rows": 4, "n": 7, "eps": 1.0}]
    assert cases_of(str(workloads), {}) == [{"rows": 3, "n": 2, "eps": 1e-5}, {"rows": 9, "n": 2, "eps": 1e-6}]
    forward = write_robust_kbench(tmp_path)
    assert cases_of(str(forward), {}) == [{"deep": 5, "batch_size": size, "wide": 4} for size in (3, 2)]
    assert cases_of(str(forward / "config_backward.json"), {}) == [{"deep": 5, "batch_size": 3, "wide": 4}]


def test_a_test_of_gpu_mode_draws_what_its_seed_gives_and_zeros_for_what_is_not_written(tmp_path: Path) -> None:
    submission, task = write_gpu_mode(tmp_path)
    pair = _opened(task, submission, tmp_path)
    ((x, _, output),) = _draw(pair, 0)
    assert torch.equal(x.cpu(), torch.randn(5, 8, generator=torch.Generator().manual_seed(11))) or x.is_cuda
    assert not output.any()
    assert not torch.equal(_draw(pair, 1)[0][0], x)
    own = Path(pair.candidate.rpartition(":")[0]).parent
    assert sorted(path.name for path in own.iterdir()) == ["helpers.py", "submission.py", "task.py"]
    assert pair.problem.path == Path(task) / "reference.py"


@pytest.mark.slow
def test_a_definition_draws_by_its_axes_and_takes_destinations_where_the_solution_writes_them(tmp_path: Path) -> None:
    definition = write_definition(tmp_path)
    x, index, eps = _draw(_opened(definition, write_solution(tmp_path), tmp_path, rows=3, eps=0.5), 0)
    assert (x.shape, index.shape, index.dtype, eps) == ((3, 12), (7,), torch.int64, 0.5)
    assert bool((index < 3).all())
    for solution in (write_solution(tmp_path, WRITING), write_solution(tmp_path, destination_passing_style=True)):
        judgement = judge_file(str(solution), str(definition), contract="torch")
        assert judgement.verdict == "accepted", str(judgement)


def test_a_model_of_robust_kbench_hands_its_arguments_to_the_function(tmp_path: Path) -> None:
    task, kernel = write_robust_kbench(tmp_path), tmp_path / "kernel.py"
    kernel.write_text(KERNEL)
    arguments = _draw(_opened(task, kernel, tmp_path), 0)
    assert [tuple(t.shape) for t in arguments] == [(3, 4), (5, 4), (5,)]
    assert not any(t.requires_grad for t in arguments)
    backward = _draw(_opened(task / "config_backward.json", kernel, tmp_path), 0)
    assert all(t.requires_grad for t in backward)


def _broken_task(text: str) -> Callable[[Path], tuple[str, str]]:
    def write(folder: Path) -> tuple[str, str]:
        submission, task = write_gpu_mode(folder)
        (Path(task) / "task.yml").write_text(text)
        return submission, task

    return write


def _pair_of(**changes: Any) -> Callable[[Path], tuple[Path, Path]]:
    return lambda folder: (write_solution(folder), write_definition(folder, **changes))


def _solution_of(main: str = "", **spec: Any) -> Callable[[Path], tuple[Path, Path]]:
    return lambda folder: (write_solution(folder, main, **spec), write_definition(folder))


def _robust(text: str, name: str = "kernel.py") -> Callable[[Path], tuple[Path, Path]]:
    def write(folder: Path) -> tuple[Path, Path]:
        task = write_robust_kbench(folder)
        (task / "func_forward.py").write_text(text)
        (folder / name).write_text("")
        return folder / name, task

    return write


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (_broken_task("tests: 3"), r"task.yml: tests: got 3, need a list of mappings"),
        (_broken_task("lang: [py"), r"task.yml: no YAML of a task: "),
        (_broken_task('tests: [{"rows": 2}]\nfiles: [{"name": "a.py", "source": "a.py"}]'), r"a.py: No such file"),
        (_broken_task('tests: [{"rows": 2}]\nfiles: [{"name": "../a.py", "source": "task.py"}]'), r"path below"),
        (_broken_task('tests: [{"seed": 2}]\nfiles: [{"name": "task.py", "source": "task.py"}]'), r"needs rows, col"),
        (_pair_of(reference=3), r"row_scale.json: reference: got 3, need a str"),
        (_pair_of(reference="x = 1"), r"row_scale.json: reference: has no function run"),
        (_pair_of(name="other"), r"solution.json: definition: got 'row_scale', need 'other'"),
        (_pair_of(inputs={"x": {"shape": ["rows"], "dtype": "float4_e2m1"}}), r"x: dtype: got 'float4_e2m1'"),
        (_pair_of(inputs={"x": {"shape": ["deep"], "dtype": "float32"}}), r"x: shape: got \['deep'\], need axes"),
        (_solution_of(entry_point="kernel.cu::run"), r"spec.entry_point: got 'kernel.cu::run', need FILE.py::FUNC"),
        (lambda folder: (folder / "none.py", write_definition(folder)), r"none.py: no such file"),
        (lambda folder: (write_solution(folder), write_workloads(folder)), r"its definition is at none of .*row_scale"),
        (_robust("x = 1"), r"func_forward.py raised AttributeError: .*forward_fn"),
        (_robust(BACKWARD.replace("fn(x, self.weight)", "x")), r"config_forward.json raised ValueError: "),
        (_robust("", "kernel.cu"), r"kernel.cu: need a Python file with a function forward"),
    ],
)
def test_a_wrong_file_is_named_with_what_it_lacks(write: Any, message: str, tmp_path: Path) -> None:
    candidate, spec = write(tmp_path)
    with pytest.raises(GivenError, match=message):
        _opened(spec, candidate, tmp_path).problem.draw(0)


def test_a_workload_of_other_data_and_an_unknown_axis_are_named(tmp_path: Path) -> None:
    definition, solution = write_definition(tmp_path), write_solution(tmp_path)
    with pytest.raises(GivenError, match=r"row_scale.jsonl: with 3: chosen: type: got 'safetensors', need 'random' or"):
        cases_of(str(write_workloads(tmp_path, type="safetensors")), {})
    with pytest.raises(GivenError, match=r"got deep=3, need axes and scalars of \['rows', 'n', 'eps'\]"):
        _opened(definition, solution, tmp_path, deep=3)


@pytest.mark.slow
def test_submissions_of_gpu_mode_are_judged_by_what_they_write(tmp_path: Path) -> None:
    judgement = _judge(*reversed(write_gpu_mode(tmp_path)))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert [each.output for each in judgement.coverage] == ["out", "written data[2]"]
    judgement = _judge(*reversed(write_gpu_mode(tmp_path, "x.abs()")), columns=16)
    assert (judgement.verdict, judgement.causes[0].question) == (Ruling.REJECTED, "FWD:given")


@pytest.mark.slow
def test_solutions_are_judged_in_both_styles(tmp_path: Path) -> None:
    definition = write_definition(tmp_path)
    for main in ("", WRITING):
        judgement = _judge(definition, write_solution(tmp_path, *filter(None, [main])), rows=6)
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
        assert [each.output for each in judgement.coverage] == ["out"]
    judgement = _judge(
        write_workloads(tmp_path), write_solution(tmp_path, WRITING.replace("eps))", "2 * eps))")), eps=1e-5
    )
    assert judgement.verdict is Ruling.REJECTED, str(judgement)


@pytest.mark.slow
def test_kernels_of_robust_kbench_are_judged_forward_and_backward(tmp_path: Path) -> None:
    task, kernel = write_robust_kbench(tmp_path), tmp_path / "kernel.py"
    for value, verdict in (("torch.addmm(bias, x, weight.T)", Ruling.ACCEPTED), ("x @ weight.T", Ruling.REJECTED)):
        kernel.write_text(KERNEL.format(value=value))
        assert _judge(task, kernel).verdict is verdict
    for scale, causes in (("1", []), ("1.001", ["VJP:grad"])):
        kernel.write_text(f"def backward(grad, x, weight):\n    return grad @ weight, ({scale} * grad).T @ x\n")
        judgement = _judge(task / "config_backward.json", kernel)
        assert [each.question for each in judgement.causes] == causes, str(judgement)


@pytest.mark.slow
def test_a_candidate_that_writes_its_task_is_seen(tmp_path: Path) -> None:
    submission, task = write_gpu_mode(tmp_path, "x.clamp(min=0)")
    with open(submission, "a") as file:
        file.write(f"\nopen({task!r} + '/reference.py', 'a').write('#')\n")
    # Isolated it could not write there.
    open_to_it = Confinement(isolation="none")
    judgement = judge_file(submission, task, contract="torch", confinement=open_to_it, plan=QuestionPlan(QUICK))
    assert [each.question for each in judgement.causes] == ["PURE:left"], str(judgement)
    assert judgement.causes[0].wrong is not None
    assert judgement.causes[0].wrong.code is not Code.CRASHED


def test_times_are_taken_in_turn_and_each_call_has_its_own_arguments() -> None:
    calls: list[str] = []

    def spec(x: torch.Tensor) -> torch.Tensor:
        calls.append("spec")
        return x.add_(1)

    def candidate(x: torch.Tensor) -> torch.Tensor:
        calls.append("candidate")
        assert not x.any()
        return x.add_(1)

    timing = measure(spec, candidate, [torch.zeros(3)]).require()
    assert calls == ["spec", "candidate"] * (len(calls) // 2)
    assert timing.record["runs"] == len(timing.spec) == len(calls) // 2 - 2


def test_times_give_a_ratio_with_its_spread_and_odd_ones_are_refused() -> None:
    timing = Timing([2.0, 2.0, 3.0, 2.0, 2.0], [1.0, 1.0, 1.0, 1.0, 1.0]).require()
    assert str(timing) == "2 times as fast as the spec (5 runs in turn: median; half of them 2 to 2.5), 1 s and 2 s"
    assert timing.record == {"ratio": 2.0, "low": 2.0, "high": 2.5, "runs": 5, "spec": 2.0, "candidate": 1.0}
    for times in ([1.0] * 4, [0.0] * 5, [float("nan")] * 5, [float("inf")] * 5, [1.0] * 201, [1.0] * 6):
        with pytest.raises(ValueError, match="got"):
            Timing([1.0] * 5, times).require()


@pytest.mark.slow
def test_times_stand_beside_an_accepted_verdict_alone(tmp_path: Path) -> None:
    submission, task = write_gpu_mode(tmp_path)
    ask = {"contract": "torch", "plan": QuestionPlan(["FWD:given"], timed=True), "confinement": Confinement(20)}
    judgement = judge_file(submission, task, **ask)  # type: ignore[arg-type]
    record = json.loads(judgement.as_json())
    assert record["time"]["runs"] >= 5, record["time"]
    assert "  time: " in judgement.summary
    write_gpu_mode(tmp_path, "x.abs()")
    assert "time" not in json.loads(judge_file(submission, task, **ask).as_json())  # type: ignore[arg-type]
    # A candidate that ends when it is called more often than that has a verdict, and no times.
    write_gpu_mode(
        tmp_path,
        "x.clamp(min=0) if torch.is_grad_enabled() or not __import__('sys').modules.get('reference') else exit()",
    )
    judgement = judge_file(submission, task, **ask)  # type: ignore[arg-type]
    assert judgement.verdict is Ruling.ACCEPTED
    assert "time: not taken: the candidate's process" in judgement.summary


_MODEL = """import torch


class {name}(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(8, 4)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.randn(3, 8)]
"""


@pytest.mark.slow
def test_a_candidate_is_timed_in_the_dtype_in_which_it_is_judged(tmp_path: Path) -> None:
    for file, name in (("spec.py", "Model"), ("candidate.py", "ModelNew")):
        (tmp_path / file).write_text(_MODEL.format(name=name))
    plan = QuestionPlan(["FWD:given"], dtype="bfloat16", timed=True)
    judgement = judge_file(str(tmp_path / "candidate.py"), str(tmp_path / "spec.py"), contract="torch", plan=plan)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert judgement.assignment.dtype == "bfloat16"
    assert "as fast as the spec" in str(judgement), str(judgement)
