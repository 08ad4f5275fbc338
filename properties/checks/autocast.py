"""AUTOCAST: dtype and values under autocast, also under vmap and in reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import OWN, Sample, flat_outputs
from ...oracles.op.paths import in_arguments
from ...oracles.op.script import CallVariant
from ...oracles.process import interrupt
from ...oracles.programs.along import defer_script


def check_autocast(judge: Judge, sample: Sample) -> None:
    """AUTOCAST: under autocast, the dtypes that torch's own op has there, and values in the accept set.

    Elements that torch's own evaluation of a reference has under autocast as well, bit for bit, are not judged.
    """
    under = _under_autocast(judge.subject, judge.device)
    got = flat_outputs(judge.call(under, *sample.args, what="under autocast"))
    _require_torch_dtype(judge, sample, got[0], under.lines)
    documented = judge.op.documented_by(judge.subject_name)
    beside_own = judge
    if documented.native is not None:
        own = replace(documented, native=_under_autocast(documented.native, judge.device))
        beside_own = judge.of(replace(judge.op, documented={**judge.op.documented, judge.subject_name: own}))
    beside_own.hold(sample, (), function=under, exactly=False)
    beside_own.hold(sample, ("vjp",), "eager", function=under, exactly=False)
    if "vmap" in judge.op.promises.without:
        return
    tensors = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    doubled = [torch.stack([sample.args[i]] * 2) for i in tensors]
    both = judge.call(torch.func.vmap(in_arguments(under, sample.args, tensors)), *doubled, what="vmap under autocast")
    judge.require_alike(both, got, "dtype", where="vmap under autocast", path="autocast")


def _under_autocast(function: Callable[..., Any], device: str) -> CallVariant:
    """A function under autocast to bfloat16 on a device, with the lines of a program that calls an op so."""

    def cast(*args: Any) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            return function(*args)

    lines = (
        "def call(*args):",
        f"    with torch.autocast({device!r}, dtype=torch.bfloat16):",
        "        return op(*args)",
        "",
    )
    return CallVariant(cast, lines)


def _require_torch_dtype(judge: Judge, sample: Sample, got: Any, lines: tuple[str, ...]) -> None:
    """Violation unless the production op's first output has the dtype of torch's own, if that takes these arguments."""
    if judge.subject_name != OWN or "torch" not in judge.op.subjects:
        return
    try:
        with torch.autocast(judge.device, dtype=torch.bfloat16):
            need = flat_outputs(judge.op.subject("torch")(*sample.args))[0]
    except Exception:  # torch's own op does not take these arguments
        interrupt.reraise()
        return

    script = defer_script(replace(judge.path(sample, (), ()), around=lines))
    judge.require_alike([got], [need], "dtype", where="under autocast", path="autocast", make_script=script)
