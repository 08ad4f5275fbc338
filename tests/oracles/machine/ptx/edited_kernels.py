"""Faults in the PTX of the library's kernels, and what cells of subject "ptx" say of them; not a test itself.

`python -m tests.oracles.machine.ptx.edited_kernels` prints, as JSON, the outcomes and codes of the cells of every edit.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator

from opassay.properties.places import interpreting

#: Of every edit: what it replaces (of `re`, the first place or all), by what, and the op and the properties asked.
EDITS = {
    "none": ("softmax", ("FWD", "SPECIAL"), "$^", "", 1),
    "no edit of a backward pass": ("softmax_backward_data", ("FWD", "SPECIAL"), "$^", "", 1),
    "first barrier removed": ("layer_norm", ("FWD", "VJP"), r"bar\.sync\s+0;", "", 1),
    "predicate of a store dropped": ("softmax", ("FWD", "SPECIAL"), r"@%p\d+ (st\.global)", r"\1", 1),
    "lt to le": ("softmax", ("FWD", "SPECIAL"), r"setp\.lt\.s32", "setp.le.s32", 1),
    "operands of fma swapped": (
        "log_sigmoid_backward", ("FWD",), r"(fma\.rn\.f32 \s*%r\d+, %r\d+), (\S+), (\S+);", r"\1, \3, \2;", 0,
    ),
    "distance of a shuffle": ("layer_norm", ("VJP",), r"(bfly\.b32 \s*%r\d+, %r\d+, )16", r"\g<1>8", 1),
    "subnormal numbers flushed": (
        "softmax_backward_data", ("SPECIAL",), r"\b(mul|sub)\.rn\.f32\b", r"\1.rn.ftz.f32", 0,
    ),
    "an unknown rounding": ("softmax", ("FWD",), r"add\.rn\.f32", "add.rna.f32", 1),
}  # fmt: skip


def answers() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """The name of every edit, and the outcome and the code of each of its cells."""
    interpreting.install_executor()
    from opassay.impl.gpu import launching
    from opassay.oracles.machine.ptx.executor import Executor
    from opassay.oracles.verdicts.verdict import Cell
    from opassay.properties.engine import cells, guard, samples

    settings = samples.Settings("commit", max_examples=4, simpler=False)
    for name, (op, properties, pattern, replacement, count) in EDITS.items():
        machine = Executor(edit=functools.partial(re.compile(pattern).sub, replacement, count=count))
        with launching.on(machine):
            faults = []
            for code in properties:
                cell = Cell(op, code, "float32", "cpu", "ptx")
                verdict = guard.guard(cell, functools.partial(cells.judge_cell, cell, settings))
                faults.append((verdict.outcome.value, verdict.code.value))
            yield name, faults


if __name__ == "__main__":
    print(json.dumps(dict(answers())))
