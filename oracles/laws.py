"""LAW: metamorphic relations, bit for bit where the declaration says exact, else within both bounds."""

from __future__ import annotations

import numpy as np
import torch

from .judgement import Judgement, Unsupported
from .op import Sample, flat_outputs
from .purity import require_same
from .verdict import Code


def laws(j: Judgement, sample: Sample) -> None:
    """LAW: every declared relation, on finite results."""
    if not j.op.laws:
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} declares no laws")
    for i, law in enumerate(j.op.laws):
        args = law.transform(sample.args, np.random.default_rng([sample.seed, 17, i]))
        if args is None:
            continue
        first = flat_outputs(j.call(j.subject, *sample.args, what=law.name))
        second = flat_outputs(j.call(j.subject, *args, what=law.name))
        expected = flat_outputs(law.relate(first))
        if not all(bool(torch.isfinite(y).all()) for y in expected):
            j.not_judged += sum(y.numel() for y in expected)
            continue
        if law.exact:
            # +0 and −0 are one number: a law between values does not tell them apart.
            require_same(j, [y + 0.0 for y in second], [y + 0.0 for y in expected], f"law: {law.name}")
        else:
            j.path(sample.with_args(args), (), exactly=False)
