"""DATA: where every partial result is exact in any order, the output must be equal bit for bit.

On integers times a power of two, sums and products that stay below 2^p are exact, whatever the order, the tree or the
number of partial sums. Where the contract has a lattice (`oracles.bound.rounding.lattice`), the rounding reading gives
such numbers a radius of zero. An output element whose radius is zero in every algorithm of the formula must be exact.
"""

from __future__ import annotations

import functools

import numpy as np

from ...oracles.bound.accept import Edges
from ...oracles.bound.contract import Contract
from ...oracles.bound.rounding import Ball
from ...oracles.judge import native
from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import Sample, dtype_name, to_array
from ...oracles.op.paths import Expected
from ...oracles.op.transforms import word_name
from ...oracles.programs.along import along_path
from ...oracles.programs.questions import of_element
from ...oracles.verdicts.violation import Code, Unsupported
from ...reference.algorithms import Inapplicable, algorithms
from ...reference.choice import has_residual
from ...reference.formats import FORMATS, round_array


def _read_all_algorithms(expected: Expected, contract: Contract) -> tuple[Ball, ...]:
    """The outputs as balls; a radius is zero only where every algorithm of the formula is exact in any order."""
    terms = contract.on_lattice
    centres = [np.asarray(v, dtype=terms.centre_type) for v in expected.operands]
    balls: tuple[Ball, ...] = ()
    for formula in (expected.formula, *algorithms(expected.formula)):
        try:
            with np.errstate(all="ignore"):
                readings = tuple(formula(*(Ball(c, None, terms) for c in centres)))
        except Inapplicable:
            continue
        # A difference x - m that is zero is exact; x a - m a, which another algorithm may compute instead, need not be.
        balls = tuple(map(_widen, balls, readings)) if balls else readings
    return balls


def _widen(a: Ball, b: Ball) -> Ball:
    """The first of two readings of an output, with the larger radius of the two."""
    return Ball(a.centre, np.maximum(a.radii(), b.radii()), a.contract)


def check_exact_data(judge: Judge, sample: Sample) -> None:
    """DATA: forward and reverse mode."""
    primal = judge.primal(sample)
    for word in ((), ("vjp",)):
        path = judge.path(sample, word, primal, "eager")
        # The cotangents must be small integers, too: products with other numbers would be rounded, and no element would
        # have to be exact.
        path = path.along(word, [(d * 2).round() for d in path.directions])
        computed = judge.run(path, what="vjp") if word else primal
        expected = path.expected(word_name(word))
        with judge.tally.clock("reference"):
            readings = _read_all_algorithms(expected, judge.contract)
        script = functools.partial(along_path, path)
        judge.require_alike(computed, readings, "shape", where=expected.path, make_script=script)
        if has_residual(readings):
            raise Unsupported(Code.NOT_APPLICABLE, "what is judged by its residual has no exact value")
        for number, (name, tensor, ball) in enumerate(zip(expected.names, computed, readings, strict=True)):
            certain = ball.radii() == 0
            got, fmt = to_array(tensor), FORMATS[dtype_name(tensor.dtype)]
            need = round_array(fmt, np.asarray(ball.centre, dtype=np.float64))
            wrong = certain & (got != need)
            judge.tally.count(int(certain.sum()))
            if wrong.any():
                wrong &= ~native.match_native(judge.tally, expected, number, tensor, wrong)
            if wrong.any():
                at = tuple(int(i) for i in np.argwhere(wrong)[0])
                lines = [f"{name}{list(at)}: got {float(got[at]).hex()}, need {float(need[at]).hex()} in any order"]
                violation = judge.violation(Code.BITS, f"{name} is not exact on exact data", lines, where=expected.path)
                exact = float(need[at])
                element = number, at, repr(exact), Edges(exact, exact), f"{judge.op.name} {name}{list(at)}"
                raise violation.showing(functools.partial(of_element, script, *element))
