"""Strategies: Hypothesis draws the structure, NumPy fills the bulk from one seed.

A draw costs the same for ten elements as for ten thousand, and a failure shrinks in structure: fewer rows, fewer
columns, a simpler regime.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ...oracles.op.declaration import Draft
from ...reference.formats import FORMATS, Format, bits_to_float64, round_array
from ..names import collect_names, require_known
from .choices import choose as choose

Generator = Any
Rows = Callable[[Generator, tuple[int, ...], Format], Any]

#: Extents around vector widths, primes and odd ones; small first, so that shrinking ends at 1.
EXTENTS: tuple[int, ...] = (1, 2, 3, 4, 5, 7, 8, 9, 13, 15, 16, 17, 31, 32, 33)
#: Extents of the long axis of a large sample: the sizes at which kernels take other code (vectors, warps, blocks,
#: second stages), one less and one more, and sizes beyond all of those. Shrinks towards 73.
LARGE_EXTENTS: tuple[int, ...] = (
    *(73, 63, 64, 65, 71, 72, 127, 128, 129, 1023, 1024, 1025, 4095, 4096),
    *(4097, 4099, *(4160, 4224, 5000, 5003, 4999) * 4, 8191, 8192, 8193, 16_385, 32_769),
)
#: Extents of the other axes of a large sample: of the first axis, which is a row where there are rows, and of the rest.
#: The gradient of a norm in rows of one or two elements is zero, or nearly so.
SHORT_ROWS: tuple[int, ...] = (3, 4)
SHORT_EXTENTS: tuple[int, ...] = (1, 1, 2)
#: Extents of a large sample in which no axis is much longer than the others.
MIDDLE_EXTENTS: tuple[int, ...] = (9, 17, 33, 63, 64, 65, 127, 129, 257, 512)
#: More dims than most kernels are written for. Torch's elementwise ops, and its sums, take any number.
MANY_DIMS: tuple[int, ...] = (5, 6)
#: Elements of a large sample's tensor: at most the first number, and mostly at most the second.
LARGEST, MOSTLY = 70_000, 16_500
#: The largest number of elements of an ordinary sample's tensors, where an op does not set a smaller one.
ORDINARY = 72


def to_dtype(values: Any, dtype: str) -> torch.Tensor:
    """float64 values as a contiguous tensor of a dtype, rounded once, clipped to its finite range."""
    fmt = FORMATS[dtype]
    rounded = np.asarray(round_array(fmt, np.clip(values, -fmt.max, fmt.max)))
    # NumPy makes a vector of an array without axes when it makes it contiguous.
    return torch.from_numpy(np.ascontiguousarray(rounded).reshape(rounded.shape)).to(getattr(torch, dtype))


def _offset(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    """Mean far above the spread, up to where the mean takes half of the digits."""
    size = 2.0 ** rng.uniform(2, fmt.precision / 2)
    return rng.standard_normal(shape) + size * rng.choice([-1.0, 1.0])


def _small_variance(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    """Variance about 1e-5, the usual eps."""
    return rng.standard_normal(shape) * 10.0 ** rng.uniform(-3.5, -1.5)


def outlier(most: float) -> Rows:
    """Rows in one of which a single element is large, up to a power of ten.

    In a table of more than 72 elements, one row has an element at least 100 above the others, and one below: there are
    few samples of so many, and each is to show what is done with a difference whose exponential overflows in float32.
    """

    def fill(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
        values = rng.standard_normal(shape)
        if values.size > ORDINARY:
            row = values.reshape(-1, shape[-1])[rng.integers(values.size // shape[-1])]
            row[rng.integers(shape[-1], size=2)] = 10.0 ** rng.uniform(2, most, 2) * (1.0, -1.0)
        elif values.size:
            values.flat[rng.integers(values.size)] = 10.0 ** rng.uniform(1, most)
        return values

    return fill


def _huge(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    """Up to where squares reach the largest finite value, and now and then up to that value itself."""
    end = fmt.exponent_max - 3 if rng.random() < 0.1 else fmt.exponent_max / 2 - 4
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(fmt.exponent_max / 8, end)


def _tiny(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(fmt.exponent_min, fmt.exponent_min / 4)


def _many_binades(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    """Magnitudes over many binades in one row."""
    spread = min(40.0, -fmt.exponent_min / 2)
    return rng.standard_normal(shape) * 2.0 ** rng.uniform(-spread, spread / 4, shape)


def _bit_patterns(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    """Every finite bit pattern equally likely; for the wide formats, exponents within a quarter of the range.

    Patterns of bfloat16 above 2^60 are scaled down: the square of one overflows in binary32, where rows are
    accumulated, so that no element of its row could be judged. Regime "huge" has such numbers.
    """
    if fmt.bits > 16:
        signs = rng.choice([-1.0, 1.0], shape)
        return signs * (1 + rng.random(shape)) * 2.0 ** rng.uniform(fmt.exponent_min / 4, fmt.exponent_max / 4, shape)
    values = bits_to_float64(fmt, rng.integers(0, 2**16, shape, dtype=np.uint32))
    values = np.where(np.isfinite(values), values, 1.0)
    beyond = (np.abs(values) > 2.0**60) & (fmt.exponent_max > 60)
    return np.where(beyond, values * 2.0**-128, values)


#: A regime that hardly differs from a benign one, and shows what a kernel of its size does with numbers far apart.
OUTLYING = "one outlier"
REGIMES: dict[str, Rows] = {
    "benign": lambda rng, shape, fmt: rng.standard_normal(shape),
    "large offset": _offset,
    "small variance": _small_variance,
    "constant rows": lambda rng, shape, fmt: np.broadcast_to(rng.standard_normal((*shape[:-1], 1)), shape),
    OUTLYING: outlier(3),
    "ties": lambda rng, shape, fmt: rng.integers(-2, 3, shape).astype(np.float64),
    "wide": _many_binades,
    "tiny": _tiny,
    "huge": _huge,
    "subnormal": lambda rng, shape, fmt: rng.integers(-7, 8, shape) * fmt.smallest_subnormal,
    "bit patterns": _bit_patterns,
}
#: Regimes inside the domain of every norm, each listed as often as it should be drawn.
WEIGHTED = ("benign",) * 4 + ("large offset", "small variance") * 2 + tuple(REGIMES)


def regimes(kind: str = "ordinary", weighted: Sequence[str] = WEIGHTED) -> st.SearchStrategy[str]:
    """Names of input regimes; shrinks towards "benign", the regime of half of the large samples, which test sizes.

    While sizes are drawn it is "benign", or `OUTLYING` if that is one of `weighted`.
    """
    if _SIZING:
        return choose("regime", ("benign", OUTLYING) if OUTLYING in weighted else ("benign",))
    return choose("regime", (("benign",) * len(weighted) if kind == "large" else ()) + tuple(weighted))


def integers(rng: Generator, shape: tuple[int, ...], fmt: Format) -> Any:
    """Small integers times one power of two: sums of them are exact in any order."""
    return rng.integers(-3, 4, shape) * 2.0 ** int(rng.integers(-4, 5))


#: Extents at which kernels take other code, in bands: vectors and warps, their tails, odd tails of a block, blocks,
#: limits of a grid and of 16 bits, and extents whose samples take seconds.
SIZE_BANDS: tuple[tuple[int, ...], ...] = (
    (32, 64, 128),
    (31, 33, 63, 65, 127, 129),
    (513, 515, 769, 899, 1021, 1023, 4095),
    (1024, 1025),
    (4096, 4097),
    (65_536, 65_537),
    (2**17 + 1, 2**18 - 1, 2**20, 2**20 + 1),
)
#: Extents of the other axes of a sample with such an extent: of a row that is not long, of the rows beside a long one,
#: and of the rest. What goes wrong between two rows needs two.
SIZE_ROWS, SIZE_BESIDE, SIZE_OTHERS = (3, 2), (2,), (1, 2)
#: Not empty while drafts with an axis of an extent in `SIZE_BANDS` are drawn.
_SIZING: list[bool] = []


@contextlib.contextmanager
def sizing(wanted: bool) -> Iterator[None]:
    """Give large samples that are drawn inside one axis of an extent in `SIZE_BANDS`, and nearly benign data."""
    if wanted:
        _SIZING.append(True)
    try:
        yield
    finally:
        if wanted:
            _SIZING.pop()


#: One of some whole numbers, or of some bands of them. Strategies are made once, here and below: to make one, and to
#: have Hypothesis check it, takes longer than to draw from it.
_one_of = functools.cache(st.sampled_from)


@functools.cache
@st.composite
def extents(draw: st.DrawFn, kind: str, count: int, limit: int, inner: int = 1) -> list[int]:
    """Extents of `count` axes with at most `limit` elements together; shrinks towards 1.

    Kind "empty" has at least one zero. Kind "large" has one long axis and short ones, or all of a middling length.
    The first `inner` axes are those of a row.
    """
    if kind == "large" and _SIZING:
        return draw(_extents_of_a_size(count, limit, inner)) if count else []
    if kind == "large":
        return draw(_large_extents(count, limit)) if count else []
    lengths = [draw(_one_of((0, 1, 3) if kind == "empty" else EXTENTS)) for _ in range(count)]
    if kind == "empty" and count and 0 not in lengths:
        lengths[-1] = 0
    return _limit_extents(lengths, limit)


@functools.cache
@st.composite
def _extents_of_a_size(draw: st.DrawFn, count: int, limit: int, inner: int) -> list[int]:
    """Extents of `count` axes, one of them in `SIZE_BANDS`; a long axis of a row has rows beside it, another a row."""
    long = draw(st.integers(0, count - 1))
    # In samples of an op that splits its budget among many tensors, no tensor gets more than twice its share.
    bands = [band for band in SIZE_BANDS if limit == LARGEST or band[-1] <= 2 * limit]
    extent = draw(_one_of(draw(_one_of(tuple(bands)))))
    lengths = [draw(_one_of(SIZE_OTHERS)) for _ in range(count)]
    # The axis that crosses the long one: of rows where that is an axis of a row, of a row where it is not.
    across = inner if long < inner else 0
    if across < count:
        lengths[across] = draw(_one_of(SIZE_BESIDE if across else SIZE_ROWS))
    lengths[long] = 1
    if math.prod(lengths) > SIZE_ROWS[0]:
        lengths = [length if i == across else 1 for i, length in enumerate(lengths)]
    lengths[long] = extent
    return lengths


@functools.cache
@st.composite
def _large_extents(draw: st.DrawFn, count: int, limit: int) -> list[int]:
    long = draw(st.integers(0, count - 1))
    budget = min(limit, draw(_one_of((MOSTLY,) * 5 + (LARGEST,))))
    # Hypothesis shrinks integers towards 0. So the rarer form is the largest number, and a failing sample shrinks to
    # the usual form.
    if count > 1 and draw(st.integers(0, 3)) == 3:
        middling = [draw(_one_of(MIDDLE_EXTENTS)) for _ in range(count)]
        return _limit_extents(middling, draw(_one_of((budget, limit))))
    extent = min(draw(_one_of(LARGE_EXTENTS)), limit)
    # The first axis is the row. Where another axis is the long one, the row gets at least three elements, because the
    # gradient of a norm in shorter rows is zero, or nearly so.
    others = [draw(_one_of(SHORT_EXTENTS if i or not long else SHORT_ROWS)) for i in range(count - 1)]
    room = min(max(SHORT_ROWS[-1], budget // extent), limit // extent)
    others = [*others[:1], *([1] * (count - 2) if math.prod(others) > room else others[1:])]
    others = _limit_extents(others, room)
    return [*others[:long], extent, *others[long:]]


def _limit_extents(lengths: list[int], limit: int) -> list[int]:
    """The extents, the largest of them halved until there are at most `limit` elements."""
    while math.prod(lengths) > limit:
        at = lengths.index(max(lengths))
        lengths[at] = max(1, lengths[at] // 2)
    return lengths


@functools.cache
@st.composite
def shapes(
    draw: st.DrawFn, kind: str, inner_rank: int, outer_rank: int, limit: int = ORDINARY
) -> tuple[tuple[int, ...], ...]:
    """(outer extents, inner extents) with at most `limit` elements; up to 70,000 for kind "large", whatever `limit`.

    Args:
        kind: of the samples. inner_rank, outer_rank: how many axes. limit: how many elements, at most.
    """
    # The inner axes come first, because `_large_extents` takes the first axis for the row.
    both = draw(extents(kind, inner_rank + outer_rank, LARGEST if kind == "large" else limit, inner_rank))
    return tuple(both[inner_rank:]), tuple(both[:inner_rank])


def axes_beside(name: str, axes: int, usual: Sequence[int]) -> st.SearchStrategy[int]:
    """How many axes a tensor has beside others; now and then so many that it has `MANY_DIMS` in all.

    Args:
        name: of the choice. axes: how many others there are. usual: the numbers of the other draws, the simplest first.
    """
    return choose(name, (*tuple(usual) * 6, *(dims - axes for dims in MANY_DIMS if dims - axes not in usual)))


def rows_and_row(outer: Sequence[int], inner: Sequence[int]) -> dict[str, int]:
    """`Draft.extents` of a tensor of rows."""
    return {"rows": math.prod(outer), "row": math.prod(inner)}


def seeds() -> st.SearchStrategy[int]:
    """Seeds of the bulk data; shrinks towards 0."""
    return st.integers(0, 2**32 - 1)


#: Regimes far from overflow and underflow, where the order of a product does not matter.
MODERATE = ("benign", "large offset", "small variance", "constant rows", "one outlier", "ties")


def require_regimes(regimes: str | Sequence[str]) -> tuple[str, ...]:
    """The regimes, of which there is one at least.

    Raises:
        ValueError: there is none, or one is not of `REGIMES`.
    """
    names = collect_names(regimes)
    if not names:
        raise ValueError(f"regimes: got none, need some of {', '.join(REGIMES)}")
    require_known("regime", names, REGIMES)
    return names


def same_shape(count: int, regimes: Sequence[str] = MODERATE) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples of an op of `count` tensors of one shape, for an op's declaration: (dtype name, kind) -> strategy.

    Every tensor has a regime of its own, drawn from `regimes` (names of `REGIMES`). Shrinks towards one benign element.

    Raises:
        ValueError: there are to be no tensors, or a regime is not one of `REGIMES`.
    """
    if count < 1:
        raise ValueError(f"count={count}: need at least 1")
    regime_names = require_regimes(regimes)

    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        # One axis of a row, and up to two of rows: a regime fills a table (rows, row).
        outer, inner = draw(shapes(kind, 1, draw(axes_beside("axes of rows", 1, (1, 0, 2)))))
        names = ["integers" if kind == "integers" else draw(choose("regime", regime_names)) for _ in range(count)]
        fills = [integers if name == "integers" else REGIMES[name] for name in names]
        shape = (*outer, *inner)
        rows = (math.prod(outer), math.prod(inner))

        def fill(rng: Generator) -> tuple[torch.Tensor, ...]:
            return tuple(to_dtype(np.reshape(one(rng, rows, FORMATS[dtype]), shape), dtype) for one in fills)

        return Draft(fill, ", ".join(dict.fromkeys(names)), rows_and_row(outer, inner))

    return samples
