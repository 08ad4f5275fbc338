"""One error that several elements, or several balls, have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

#: The ball of a factor. `ball.py` imports this module, so a ball is a parameter of the class here.
Factor = TypeVar("Factor")

#: After this many steps a coefficient is computed, so that its operands are not kept for as long as the whole graph.
_STEPS = 8


class Common(Generic[Factor]):
    """One common error: the ball of the factor that has it, and its coefficient in every element, with a sign.

    Most coefficients are never needed, because nothing cancels before the result. So each is computed at its first use.
    """

    __slots__ = ("_coefficient", "_make", "places", "source", "steps")

    def __init__(
        self,
        source: Factor,
        make: Callable[[], Any],
        before: Common[Factor] | None = None,
        places: Callable[[], Any] | None = None,
    ) -> None:
        """
        Args:
            source: the factor. make: computes the coefficient. before: the common error whose coefficient `make` uses.
            places: computes the index of the element of the factor that each element of the ball was multiplied by, an
                array that broadcasts to its shape; None where the factor itself broadcasts to that shape.
        """
        self.source, self.places, self._make, self._coefficient = source, places, make, None
        self.steps: int = 0 if before is None else before.steps + 1
        if self.steps > _STEPS:
            self.steps, self._coefficient = 0, make()

    @property
    def coefficient(self) -> Any:
        """An array that broadcasts to the shape of the ball."""
        if self._coefficient is None:
            self._coefficient = self._make()
            self.steps = 0
        return self._coefficient

    @property
    def key(self) -> tuple[Factor, int]:
        """Equal for two that are one error in every element."""
        return self.source, id(self.places)

    def changed(self, change: Callable[[Any], Any]) -> Common[Factor]:
        """The same error with another coefficient, made of its own."""
        return Common(self.source, lambda: change(self.coefficient), self, self.places)


class Shift(Common[Factor]):
    """The error of the largest element of a row, which is subtracted from the row before an exponential.

    Its coefficient has a sign: it is below zero where that element was subtracted.
    """
