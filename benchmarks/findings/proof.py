"""What every program of this folder does: a library's numbers, the exact ones by mpmath, and what opassay rules.

A program computes something with a library and gives a `Proof`: the library's output, the exact values as mpmath
computes them from the same inputs, and a spec. Its exit code says what was found:

0: the output lies where opassay's bound for the spec lets it lie, so the fault is not there;
1: the fault is there;
2: nothing was found out, because the library is not installed;
3: mpmath and opassay disagree on the exact values or on the verdict, which would be a fault of ours.

Another version of the library than the page tells of is asked all the same, and the difference is printed.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import torch

from opassay import assert_conforms, bound

FIXED, PRESENT, NOT_RUN, DISAGREED = 0, 1, 2, 3
#: Enough that nothing here is a matter of mpmath's own rounding.
mpmath.mp.prec = 400
#: opassay gives the centres of its balls as float64 numbers.
_ROUNDING = mpmath.mpf(2) ** -53
#: How many elements are printed: those that are worst in bounds.
_ROWS = 4
_RULINGS = {True: "accepted", False: "refused"}


@dataclass(frozen=True)
class Proof:
    """What a library gave, and what it should have given.

    Attributes:
        call: what was called, in one line.
        computed: what it gave.
        exact: what it should have given, an mpf for each element in order; NaN where there is no value.
        spec: a plain PyTorch function or a NumPy formula that says what the call means.
        args: the inputs, as the spec takes them.
        terms: what opassay lets an implementation do.
        own: torch's own function of that name, as a second spec. It says what the algorithms of torch are allowed, so
            its bound may be much wider than that of `spec`.
    """

    call: str
    computed: torch.Tensor
    exact: Sequence[mpmath.mpf]
    spec: Callable[..., Any]
    args: tuple[Any, ...]
    terms: str = "torch"
    own: tuple[str, Callable[..., Any]] | None = None


def numbers(tensor: Any) -> list[mpmath.mpf]:
    """The elements of a tensor or array, without any rounding."""
    return [mpmath.mpf(float(value)) for value in tensor.reshape(-1)]


def normalised(tensor: Any, eps: str) -> list[mpmath.mpf]:
    """(x − mean) / sqrt(variance + eps) of all elements, by mpmath."""
    values, small = numbers(tensor), mpmath.mpf(eps)
    mean = mpmath.fsum(values) / len(values)
    variance = mpmath.fsum((value - mean) ** 2 for value in values) / len(values)
    return [(value - mean) / mpmath.sqrt(variance + small) for value in values]


def normalisation(eps: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The same as a spec."""

    def spec(x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean()
        return centred / torch.sqrt((centred * centred).mean() + eps)

    return spec


def result_or_nan(call: Callable[[], torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """What a call gives; NaN in the shape of a tensor where it raises, for then it gives no number."""
    try:
        return call()
    except RuntimeError:
        return torch.full_like(like, torch.nan, requires_grad=False)


def around(offset: float) -> torch.Tensor:
    """Eight float32 numbers around an offset, of a spread of 0.6."""
    return torch.tensor([0.1257, -0.1321, 0.6404, 0.1049, -0.5357, 0.3616, 1.3040, 0.9471]) + offset


def tell(library: str, version: str, proof: Callable[[], Proof]) -> int:
    """Print what was found, and return the exit code."""
    try:
        result = importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        print(f"{library} is not installed")
        return NOT_RUN
    result, _, _ = result.partition("+")  # torch's wheels name what they were built for
    if result != version:
        print(f"{library} {result} is installed; the page tells of {version}")
    code, lines = _judge(proof())
    print(f"{library} {result}", *lines, sep="\n")
    return code


def _judge(proof: Proof) -> tuple[int, list[str]]:
    limits = bound(proof.spec, *proof.args, contract=proof.terms)
    centres, widths = numbers(limits.centre), numbers(limits.half_width)
    computed = numbers(proof.computed.double())
    ratios = [_ratio(*each) for each in zip(computed, proof.exact, widths, strict=True)]
    worst = max(range(len(ratios)), key=lambda i: ratios[i])
    outside = sum(ratio > 1 for ratio in ratios)
    largest = sorted(sorted(range(len(ratios)), key=lambda i: -ratios[i])[:_ROWS])
    lines = [
        f"  call      {proof.call}",
        f"  computed  {', '.join(_short(computed[i]) for i in largest)}",
        f"  exact     {', '.join(_short(proof.exact[i]) for i in largest)} (mpmath)",
        f"  error     {_error(computed, proof.exact, worst)}; {outside} of {len(ratios)} outside",
    ]
    agree = all(map(_agree, centres, proof.exact, numbers(limits.radius)))
    accepted = _accepted(proof, proof.spec)
    ruling = _RULINGS[accepted]
    finite = mpmath.isfinite(ratios[worst])
    how = f": {_short(ratios[worst], 4)} times the bound {_short(widths[worst], 3)}" if finite else ""
    lines.append(f"  opassay   {ruling} under the terms '{proof.terms}'{how}")
    if proof.own is not None:
        name, function = proof.own
        lines.append(f"            {_RULINGS[_accepted(proof, function)]} with {name} itself as the spec")
    if not agree or accepted != (outside == 0):
        return DISAGREED, [*lines, "  mpmath and opassay disagree"]
    return (FIXED if accepted else PRESENT), lines


def _accepted(proof: Proof, spec: Callable[..., Any]) -> bool:
    try:
        assert_conforms(proof.computed, spec, *proof.args, contract=proof.terms)
    except AssertionError:
        return False
    return True


def _ratio(computed: mpmath.mpf, exact: mpmath.mpf, width: mpmath.mpf) -> mpmath.mpf:
    if mpmath.isnan(computed) or mpmath.isnan(exact):
        return mpmath.mpf(0) if mpmath.isnan(computed) and mpmath.isnan(exact) else mpmath.inf
    if computed == exact:  # also where nothing but that is allowed, as of a copy
        return mpmath.mpf(0)
    return abs(computed - exact) / width if width else mpmath.inf


def _agree(centre: mpmath.mpf, exact: mpmath.mpf, radius: mpmath.mpf) -> bool:
    """Whether the exact value lies in the ball."""
    if mpmath.isnan(centre) or mpmath.isnan(exact):
        return bool(mpmath.isnan(centre) and mpmath.isnan(exact))
    return bool(centre == exact or abs(centre - exact) <= radius + _ROUNDING * abs(centre))  # or both are infinite


def _error(computed: Sequence[mpmath.mpf], exact: Sequence[mpmath.mpf], worst: int) -> str:
    error = abs(computed[worst] - exact[worst])
    if not mpmath.isfinite(error):
        return "a NaN or an infinity on one side alone"
    largest = max(abs(value) for value in exact if mpmath.isfinite(value))
    shares = {"the element": abs(exact[worst]), "the largest": largest}
    parts = [f"{_short(error / whole, 3)} of {name}" for name, whole in shares.items() if whole]
    return _short(error, 3) + (f", which is {' and '.join(parts)}" if parts else "")


def _short(value: mpmath.mpf, digits: int = 7) -> str:
    return mpmath.nstr(value, digits, min_fixed=-4, max_fixed=7, strip_zeros=True).removesuffix(".0")


def run(module: str, library: str, version: str, proof: Callable[[], Proof]) -> None:
    """End the process with the exit code, where the program was started and not imported."""
    if module == "__main__":
        sys.exit(tell(library, version, proof))
