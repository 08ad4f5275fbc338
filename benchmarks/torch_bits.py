"""Which of torch's own operations keep the bits of a row along which axis, on this CPU.

    python benchmarks/torch_bits.py [NAME]... [--write]

prints a line for each operation and dtype, and with `--write` writes docs/torch_bits.md, in some minutes. Each is asked
as `opassay judge --invariant all` asks, by its own text as the spec.

    python benchmarks/torch_bits.py --kernels

judges the kernels of tests/properties/candidates/invariant_kernels.py along all axes, by their specs and alone, and
ends with 1 where a breaker is not rejected along its axis within 60 calls, or a right one is accused.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as f

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.question_plan import ALL_AXES, INVARIANT
from tests.properties.candidates import invariant_kernels

PAGE = Path(__file__).resolve().parents[1] / "docs" / "torch_bits.md"
TABLE = PAGE.parent / "tables" / "torch_bits.txt"
_MOST_CALLS = 60
#: Name -> the operation, and the shapes of its arguments.
OPERATIONS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "x @ w": (lambda x, w: x @ w, ((4, 64), (64, 8))),
    "linear": (f.linear, ((4, 64), (8, 64), (8,))),
    "bmm": (torch.bmm, ((3, 4, 64), (3, 64, 8))),
    "einsum bmk,kn": (lambda x, w: torch.einsum("bmk,kn->bmn", x, w), ((3, 4, 64), (64, 8))),
    "mv": (torch.mv, ((4, 64), (64,))),
    "conv1d": (f.conv1d, ((2, 3, 40), (4, 3, 5))),
    "conv2d": (f.conv2d, ((2, 3, 12, 12), (4, 3, 3, 3))),
    "attention": (f.scaled_dot_product_attention, ((2, 2, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16))),
    "softmax": (lambda x: torch.softmax(x, -1), ((4, 70),)),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), ((4, 70),)),
    "logsumexp": (lambda x: torch.logsumexp(x, -1), ((4, 70),)),
    "sum": (lambda x: x.sum(-1), ((4, 70),)),
    "mean": (lambda x: x.mean(-1), ((4, 70),)),
    "var": (lambda x: x.var(-1), ((4, 70),)),
    "norm": (lambda x: x.norm(dim=-1), ((4, 70),)),
    "cumsum": (lambda x: x.cumsum(-1), ((4, 70),)),
    "layer_norm": (lambda x, w, b: f.layer_norm(x, (70,), w, b), ((4, 70), (70,), (70,))),
    "rms_norm": (lambda x, w: f.rms_norm(x, (70,), w), ((4, 70), (70,))),
    "group_norm": (lambda x: f.group_norm(x, 2), ((4, 6, 11),)),
    "batch_norm": (lambda x: f.batch_norm(x, None, None, training=True), ((8, 6),)),
    "gelu": (f.gelu, ((4, 70),)),
    "exp": (torch.exp, ((4, 70),)),
    "avg_pool1d": (lambda x: f.avg_pool1d(x, 3), ((4, 3, 31),)),
    "interpolate": (lambda x: f.interpolate(x, scale_factor=1.7, mode="linear"), ((4, 3, 31),)),
}


def rows(names: list[str]) -> Iterator[list[str]]:
    """For each operation and dtype what came of each axis: "kept", "lost", or "-" where it is not asked."""
    words = {Outcome.VERIFIED: "kept", Outcome.FAIL: "**lost**"}
    for name, (operation, shapes) in OPERATIONS.items():
        for dtype in (torch.float32, torch.bfloat16) if not names or name in names else ():
            generator = torch.Generator().manual_seed(0)
            inputs = tuple(torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
            judgement = opassay.judge(
                operation, operation, inputs, invariant=["all"], questions=["PURE:process"], seed=0
            )
            outcomes = {each.question: words.get(each.outcome, "-") for each in judgement.findings}
            titles = [each.wrong.title for each in judgement.causes if each.wrong is not None]
            least = titles[0].partition(": out")[0].partition(": gradient")[0] if titles else ""
            kind = str(dtype).removeprefix("torch.")
            yield [f"`{name}`", kind, *(outcomes.get(INVARIANT[axis], "-") for axis in ALL_AXES), least]


def pages(table: list[list[str]]) -> dict[Path, str]:
    """The page and its table, by their paths."""
    columns = [i for i in range(len(table[0])) if i < 2 or i == len(table[0]) - 1 or any(r[i] != "-" for r in table)]
    heads = ["operation", "dtype", *ALL_AXES, "the first least case"]
    cells = [heads, ["---"] * len(heads), *table]
    lines = ["| " + " | ".join(row[i] for i in columns) + " |" for row in cells]
    whole = sum("**lost**" not in row for row in table)
    text = f"""# torch's own operations, and their bits

Does a row of an operation of torch keep its bits whatever is computed beside it? Each operation was asked along the
axes of [`opassay judge --invariant`](equal_bits.md), rows along axis 0, with gradients: of rows, and
in `runs` and `threads` of weights, too.
All values are right; what is lost is that a batch, a neighbour or a thread changes no bit.
Of {len(table)} rows {whole} lose nothing.

`python benchmarks/torch_bits.py --write` made this page, with torch {torch.__version__} on {platform.machine()}
({torch.backends.cpu.get_cpu_capability()}), and {torch.get_num_threads()} threads, unless `threads` is asked.
Other machines and versions have other kernels. "-" is not asked: the formula mixes rows, or has no such axis.

## All operations

On the built site a table stands here that is filtered by dtype and text. In a checkout it is
[tables/torch_bits.txt](tables/torch_bits.txt).
"""
    return {PAGE: text, TABLE: "## Operations\n\n" + "\n".join(lines) + "\n"}


def judge_kernels() -> int:
    """The number of kernels of the table that are not judged as they should be."""
    ask, calls, wrong = CandidateHost.ask, [0], 0

    def counting(self: CandidateHost, call: Any) -> Any:
        calls[0] += 1
        return ask(self, call)

    CandidateHost.ask = counting  # type: ignore[method-assign]
    for name, case in {**invariant_kernels.BREAKERS, **invariant_kernels.RIGHT}.items():
        for spec in (case.spec, None):
            invariant_kernels.WORKSPACE[0], calls[0], start = 0, 0, time.monotonic()
            questions = ["PURE:process"] if spec is not None else []
            axes = [case.axis] if case.axis else ["all"]
            judgement = opassay.judge(case.kernel, spec, case.inputs, invariant=axes, questions=questions, seed=0)
            causes = [cause.question.partition(":")[2] for cause in judgement.causes]
            right = causes == [case.axis] and calls[0] <= _MOST_CALLS if case.axis else not causes
            wrong += not right
            how = "by its spec" if spec is not None else "alone"
            seconds = time.monotonic() - start
            print(
                f"{'ok' if right else 'WRONG':6}{name:28}{how:12}{calls[0]:4} calls {seconds:6.1f} s  {causes}",
                flush=True,
            )
    return wrong


def main(words: list[str]) -> int:
    """The exit code."""
    if "--kernels" in words:
        return int(judge_kernels() > 0)
    table = []
    for row in rows([word for word in words if not word.startswith("--")]):
        table.append(row)
        print(*row, flush=True)
    if "--write" in words:
        for path, text in pages(table).items():
            path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
