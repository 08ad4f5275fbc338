"""DET: the same bits run to run; and with one thread and several, where deterministic algorithms are asked for."""

from __future__ import annotations

import functools

import torch

from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import OWN, Sample, Tensor
from ...oracles.programs import particular as programs
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import Violation
from .agreement import require_equal, require_same
from .layout import relaid

THREADS = (1, 2, 3)
RUNS = 3
#: torch shares a sum with a single result among threads from somewhere below so many elements on, in every format.
SINGLE_SUM = 65_536


def deterministic(judge: Judge, sample: Sample) -> None:
    """DET: forward and reverse mode, repeated; then under `torch.use_deterministic_algorithms` with 1, 2 and 3 threads.

    torch's own contract stands behind the split: sums over rows may depend on how many threads share them, unless the
    user asks for deterministic algorithms. Tensors of four dims and of five are laid out with channels last, too: there
    kernels of images take other ways. The production op is to be right in that mode, which no other property switches
    on, and where it promises so, its gradients of gradients do not hang on threads either.
    """
    _call_repeatedly(judge, sample)
    if any(_of_images(a) for a in sample.args):
        _call_repeatedly(
            judge, sample.with_args([relaid(a, "channels_last")[0] if _of_images(a) else a for a in sample.args])
        )


def _of_images(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.ndim in (4, 5)


def _call_repeatedly(judge: Judge, sample: Sample) -> None:
    threads, asked = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    try:
        _repeated(judge, sample)
    except Violation as violation:
        if violation.code is not Code.BITS:
            raise
        with torch.no_grad():
            path = judge.path(sample, ("vjp",), judge.primal(sample), "eager")
        violation.make_script = functools.partial(programs.repeating, path, THREADS, RUNS)
        raise
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(asked)


def _repeated(judge: Judge, sample: Sample) -> None:
    # A difference from run to run comes from threads that race, so the runs are made with as many as are asked
    # about.
    torch.set_num_threads(max(THREADS))
    first = _everything(judge, sample)
    for run in range(1, RUNS):
        require_same(judge, _everything(judge, sample), first, f"run {run + 1} with {max(THREADS)} threads")
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(THREADS[0])
    plain, first = first, _everything(judge, sample)
    second = _second(judge, sample)
    if judge.subject_name == OWN:
        _right_in_this_mode(judge, sample, first, plain)
    for count in THREADS[1:]:
        torch.set_num_threads(count)
        what = f"{count} threads, deterministic algorithms on"
        require_same(judge, _everything(judge, sample), first, what)
        require_same(judge, _second(judge, sample), second, f"{what}, vjp∘vjp")


def _right_in_this_mode(judge: Judge, sample: Sample, got: list[Tensor], plain: list[Tensor]) -> None:
    """Violation unless what deterministic algorithms give has the bits that others gave, or lies in the accept set."""
    gradients = len(judge.op.differentiable_positions(sample.args))
    path = judge.path(sample, ("vjp",), plain[: len(plain) - gradients], "eager")
    count, what = len(path.primal), "deterministic algorithms on"
    require_equal(judge, path.along((), ()), got[:count], plain[:count], what)
    require_equal(judge, path, got[count:], plain[count:], f"{what}, vjp")


def _second(judge: Judge, sample: Sample) -> list[Tensor]:
    """The gradients of gradients, where the op promises their bits: of sums that torch shares among threads."""
    largest = max((a.numel() for a in sample.args if isinstance(a, Tensor)), default=0)
    if not (largest >= SINGLE_SUM and judge.subject_name == OWN and judge.op.promises.steady):
        return []
    with torch.no_grad():
        primal = judge.primal(sample)
    found = judge.run(judge.path(sample, ("vjp", "vjp"), primal, "eager"), what="vjp∘vjp")
    return [t.detach() for t in found]


def _everything(judge: Judge, sample: Sample) -> list[Tensor]:
    with torch.no_grad():
        primal = judge.primal(sample)
    grads = judge.run(judge.path(sample, ("vjp",), primal, "eager"), what="vjp")
    return [t.detach() for t in (*primal, *grads)]
