"""What formulas may say: idioms of NumPy that are read, what the others end with, and the page that lists the words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.reference import array, derivative
from opassay.reference.exact import evaluate, exact, to_float_pair
from opassay.reference.missing import NoReadingError
from tests.reference.idioms import IDIOMS, UNREAD

SHAPES = {"x": (3, 4), "y": (3, 4), "p": (3, 4), "v": (4,), "m": (4, 4), "t": (2, 3, 4)}
#: Idioms of which a reading needs primitives that are no composition: products, scans, orders, windows.
NOT_ELEMENTWISE = ("einsum", "matmul", "@", "cum", "prod", "sort", "arg", "median", "partition", "sliding")


def _values() -> list[Any]:
    rng = np.random.default_rng(0)
    return [rng.uniform(0.5, 2.0, s) if name == "p" else rng.standard_normal(s) for name, s in SHAPES.items()]


def _formula(text: str) -> Any:
    known = {"np": np, "i": np.array([0, 1, 1, 0]), "erf": array.erf, "erfc": array.erfc, "sigmoid": array.sigmoid}
    code = compile(text, text, "eval")
    return lambda *arrays: eval(code, known | dict(zip(SHAPES, arrays, strict=True)))


def _read(text: str) -> None:
    """Read in every way; what NumPy computes in float64 is within the ball of float32."""
    formula, values, terms = _formula(text), _values(), contract("float32")
    (ball,) = balls(formula, values, terms)
    high, low = to_float_pair(evaluate(formula, *values)[0][0])
    computed = formula(*values)
    assert np.shape(computed) == ball.shape
    assert np.all(np.abs((ball.centre - high) - low) <= ball.radii()), "the exact value is not in the ball"
    assert np.all(np.abs(computed - ball.centre) <= ball.radii()), "NumPy's value is not in the ball"
    assert np.all(np.isfinite(ball.radii()))

    def gradients(*arrays: Any) -> Any:
        outputs, pull = derivative.vjp(formula, arrays)
        return pull(*(y.lift(np.ones(y.shape)) for y in outputs))

    balls(gradients, values, terms)


@pytest.mark.parametrize("text", [text for text in IDIOMS if text not in UNREAD])
def test_an_idiom_is_read(text: str) -> None:
    try:
        _read(text)
    except (NoReadingError, ValueError, IndexError):
        if not any(part in text for part in NOT_ELEMENTWISE):
            raise


def test_nearly_all_idioms_are_read() -> None:
    """The figure that is told of the language; those that are not read end in an error that says so."""
    unread = []
    for text in IDIOMS:
        try:
            balls(_formula(text), _values(), contract("float32"))
        except (NoReadingError, ValueError, IndexError):
            unread.append(text)
    assert len(IDIOMS) == 277
    assert len(IDIOMS) - len(unread) >= 254, unread


@pytest.mark.parametrize("text", UNREAD)
def test_an_idiom_without_a_reading_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(NoReadingError, match=r"has no reading; write"):
        balls(_formula(text), _values(), contract("float32"))


def test_a_planted_wrong_word_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    from opassay.reference.array.kind import WORDS

    right = WORDS[np.roll]
    monkeypatch.setitem(WORDS, np.roll, lambda a, shift, axis=None: right(a, -np.asarray(shift), axis))
    with pytest.raises(AssertionError, match="NumPy's value"):
        _read("np.roll(x, 1, axis=1)")


REFUSALS = {
    "float(x)": "numpy.exp and not math.exp",
    "int(x)": "numpy.trunc",
    "x.__setitem__(0, 1.0)": r"numpy\.where",
    "x.item()": r"numpy\.where",
    "x.dtype": "as an argument of the formula",
    "x.maxx()": r"did you mean 'max'\?.*known are T, ",
    "np.asarray(x)": r"numpy\.stack",
    "np.i0(x)": "has no reading; write it with functions that have one.*absolute, add",
    "np.sum(x, axis=1, out=y)": r"write it as sum\(a, axis=None",
    "x.astype(int)": r"numpy\.trunc",
    "x if x else y": "keep it as an array",
    "np.multiply.reduce(x)": r"there are numpy\.add\.reduce",
    "np.nan_to_num(x / 0.0)": "posinf=",
    "np.spacing(x)": "the constant",
}


@pytest.mark.parametrize("text", REFUSALS)
def test_what_has_no_reading_says_what_to_write(text: str) -> None:
    arrays = [exact(value) for value in _values()]
    with pytest.raises(NoReadingError, match=REFUSALS[text]):
        _formula(text)(*arrays)


def test_an_array_has_protocols_only_where_it_has_them() -> None:
    x = exact(np.ones(3))
    assert not hasattr(x, "dtype")
    assert not hasattr(x, "__array_interface__")
    assert hasattr(x, "sum")


def test_a_cast_to_a_narrower_format_is_a_rounding_that_the_formula_asks_for() -> None:
    (narrow,) = balls(lambda x: x.astype(np.float16), [np.array([1.0 + 2.0**-20])], contract("float32"))
    (wide,) = balls(lambda x: x.astype(np.float64), [np.array([1.0])], contract("float32"))
    assert narrow.radii() >= 2.0**-11
    assert wide.radii() == 0


PAGE = Path(__file__).parents[2] / "docs" / "words.md"


def test_the_page_lists_every_word() -> None:
    from workshop.words import page

    assert PAGE.read_text() == page(), "run python -m workshop.words > docs/words.md"
