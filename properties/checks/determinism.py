"""DET: the same bits run to run; and with one thread and several, where deterministic algorithms are asked for."""

from __future__ import annotations

import functools

import torch

from ...oracles.judge.judge import Judge
from ...oracles.machine.ptx import hardware
from ...oracles.op.declaration import EXECUTED, OWN, Sample, Tensor
from ...oracles.programs import particular as programs
from ...oracles.verdicts.violation import Code, Violation
from .agreement import require_equal, require_same, reverse_path
from .layout import lay_out

THREADS = (1, 2, 3)
RUNS = 3
#: A sum with a single result that torch shares among threads in every format: its threshold lies below this length.
SINGLE_SUM = 65_536


def check_determinism(judge: Judge, sample: Sample) -> None:
    """DET: forward and reverse mode, repeated; then under `torch.use_deterministic_algorithms` with 1, 2 and 3 threads.

    The number of threads is varied in the second part alone, because torch's own contract is that sums over rows may
    depend on it unless the user asks for deterministic algorithms. Tensors of four and of five dims are also laid out
    with channels last, for which kernels of images have code of their own. A subject that documents no bits may divide
    a sum among its threads in either mode; with another number of them it must stay within the bound. The production op
    must also be right under deterministic algorithms, which no other property switches on; where it promises so, its
    second gradients must not depend on the number of threads either. Of kernels as PTX the order of warps, and what
    unwritten memory holds, take the place of threads.
    """
    if judge.subject_name == EXECUTED:
        _judge_orders(judge, sample)
        return
    _call_repeatedly(judge, sample)
    if any(_of_images(a) for a in sample.args):
        _call_repeatedly(
            judge, sample.with_args([lay_out(a, "channels_last")[0] if _of_images(a) else a for a in sample.args])
        )


def _judge_orders(judge: Judge, sample: Sample) -> None:
    first = _run(judge, sample)
    with hardware.on(hardware.APART):
        require_same(judge, _run(judge, sample), first, str(hardware.APART))


def _of_images(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.ndim in (4, 5)


def _call_repeatedly(judge: Judge, sample: Sample) -> None:
    threads, enabled = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        _judge_runs(judge, sample)
    except Violation as violation:
        if violation.code is not Code.BITS:
            raise
        violation.make_script = functools.partial(programs.script_repeats, reverse_path(judge, sample), THREADS, RUNS)
        raise
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(enabled)


def _judge_runs(judge: Judge, sample: Sample) -> None:
    # A difference from run to run comes from threads that race, so the runs use the largest number of threads.
    torch.set_num_threads(max(THREADS))
    first = _run(judge, sample)
    for run in range(1, RUNS):
        require_same(judge, _run(judge, sample), first, f"run {run + 1} with {max(THREADS)} threads")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(THREADS[0])
    plain, first = first, _run(judge, sample)
    second = _second_gradients(judge, sample)
    if judge.subject_name == OWN:
        _require_equal_runs(judge, sample, first, plain, "deterministic algorithms on")
    for count in THREADS[1:]:
        torch.set_num_threads(count)
        what = f"{count} threads, deterministic algorithms on"
        if judge.op.documented_by(judge.subject_name).bits:
            require_same(judge, _run(judge, sample), first, what)
        else:
            _require_equal_runs(judge, sample, _run(judge, sample), first, what)
        require_same(judge, _second_gradients(judge, sample), second, f"{what}, vjp∘vjp")


def _require_equal_runs(judge: Judge, sample: Sample, got: list[Tensor], plain: list[Tensor], what: str) -> None:
    """Violation unless the results of a run have the bits of another run, or lie in the accept set."""
    gradients = len(judge.op.differentiable_positions(sample.args))
    path = judge.path(sample, ("vjp",), plain[: len(plain) - gradients], "eager")
    count = len(path.primal)
    require_equal(judge, path.along((), ()), got[:count], plain[:count], what)
    require_equal(judge, path, got[count:], plain[count:], f"{what}, vjp")


def _second_gradients(judge: Judge, sample: Sample) -> list[Tensor]:
    """The second gradients, where the op promises their bits and torch shares its sums among threads; else nothing."""
    largest = max((a.numel() for a in sample.args if isinstance(a, Tensor)), default=0)
    if not (largest >= SINGLE_SUM and judge.subject_name == OWN and judge.op.promises.arithmetic.steady):
        return []
    grads = judge.run(reverse_path(judge, sample, ("vjp", "vjp")), what="vjp∘vjp")
    return [t.detach() for t in grads]


def _run(judge: Judge, sample: Sample) -> list[Tensor]:
    path = reverse_path(judge, sample)
    return [t.detach() for t in (*path.primal, *judge.run(path, what="vjp"))]
