"""Coefficients of symbols, and what slopes make of them (docs/design/affine_forms.md has the proof)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .slopes import Slope
from .spread import SLACK

#: The number of the symbol that is one in every evaluation: of what is known to be left out to one side.
ONE = 0
#: A form that is so many times wider than its ball is forgotten.
TOO_WIDE = 2.0
#: Sums of coefficients and of slopes, in roundings for each element of a result, besides those of the summands.
STEPS = 12


@dataclass
class AffineForm:
    """Coefficients of symbols.

    Attributes:
        terms: coefficients along a last axis; symbol number k has the k-th, and those behind the last are zero.
        loose: what an element may be off besides, as in a ball.
        relative: whether this is of the logarithm of z / c, for elements that every evaluation has above zero
            (`logarithms.py`), and not of z - c.
    """

    terms: Any
    loose: Any
    relative: bool = False

    @functools.cached_property
    def size(self) -> Any:
        """The sum of the magnitudes of the coefficients, for every element."""
        return sum_of_magnitudes(self.terms)

    @property
    def reach(self) -> Any:
        """How far z - c may be from zero, or the logarithm of z / c."""
        return (self.size + self.loose) * (1.0 + 4.0 * SLACK)


def combine_forms(
    slopes: Sequence[tuple[Slope, AffineForm, Any]], radius: Any, least: Any, stretch: Any = 0.0, lean: Any = 0.0
) -> AffineForm:
    """The form that slopes make of the forms of operands.

    Args:
        slopes: with the forms and the radii of their operands. radius: of the result, by its rule.
        least: the same for operands without errors.
        stretch: how much farther than the linear part the result may be, as a share, which the rule has of its reach.
        lean: how far above the linear part the result may be, and never below it, which the rule has besides.
    """
    symbols = max(ONE + 1, *(form.terms.shape[-1] for _, form, _ in slopes))
    # What slopes bring on of the radii, and what they leave out.
    reach = sum((slope.sizes(radii) for slope, _, radii in slopes), np.zeros(()))
    rest = sum((slope.rest for slope, _, _ in slopes), np.zeros(()))
    slack = (STEPS + max(slope.terms for slope, _, _ in slopes)) * SLACK
    loose = np.maximum(radius - reach * (1.0 + stretch) - lean, 0.0) + 2.0 * rest + radius * slack + 0.5 * lean
    terms = np.zeros((*radius.shape, symbols))
    for slope, form, _ in slopes:
        size = slope.sizes(form.size)
        loose = loose + slope.sizes(form.loose) * (1.0 + slack) + size * (slack + symbols * SLACK)
        terms[..., : form.terms.shape[-1]] += slope.apply(form.terms)
    loose = loose + (sum_of_magnitudes(terms) + loose) * stretch
    terms[..., ONE] += 0.5 * lean
    # A rule that knows more of its operands than their radii, or a form that is too wide, leaves what the ball has.
    known = (radius + rest) * (1.0 + slack) < reach + least
    result = AffineForm(terms, loose)
    known |= ~(result.size + loose <= radius * TOO_WIDE)
    if known.any():
        terms[known] = 0.0
        result = AffineForm(terms, np.where(known, radius, loose))
    return result


def sum_of_magnitudes(terms: Any) -> Any:
    return np.sum(np.abs(terms), axis=-1) * (1.0 + (terms.shape[-1] + 2) * SLACK)


def padded(terms: Any, symbols: int) -> Any:
    return np.pad(terms, [(0, 0)] * (terms.ndim - 1) + [(0, symbols - terms.shape[-1])])
