"""Accesses that are kept, and entered in the books only where others meet them, give the verdicts of books alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opassay.oracles.machine.ptx import books
from opassay.oracles.machine.ptx.books import Access, Books
from opassay.oracles.machine.ptx.extents import Extent
from opassay.oracles.machine.ptx.space import Space
from opassay.oracles.machine.ptx.sparse import SparseSpace, StorageRegion
from opassay.oracles.verdicts.violation import Violation

_BLOCKS, _THREADS = 3, 64
_LANES = np.arange(_BLOCKS * _THREADS)
#: Bytes of a block's part of shared memory, and where operands are in global memory.
_PART, _OPERANDS, _END = 1024, [(1024, 4096), (5120, 8192), (9216, 12288)], 13312
_KINDS = ("shared", "global", "sparse")


def _memory(kind: str) -> Space:
    if kind == "shared":
        return Space("shared", _PART * _BLOCKS, _BLOCKS, _THREADS, poison=7, apart=True)
    if kind == "global":
        space = Space("global", _END, _BLOCKS, _THREADS, poison=7, apart=False)
        for number, (first, behind) in enumerate(_OPERANDS):
            space.allow(f"p{number}", [(first, first + 64), (first + 64, behind)] if number else [(first, behind)])
        return space
    regions = [StorageRegion(first, np.zeros(behind - first, np.uint8)) for first, behind in _OPERANDS]
    extents = [Extent(f"p{first}", first, 4, ((behind - first) // 4,), (4,)) for first, behind in _OPERANDS]
    return SparseSpace(regions, extents, 1 << 30, _BLOCKS, _THREADS, 7)


def _access(generator: np.random.Generator, kind: str) -> Access:
    """Elements in one of four patterns, by some threads: of one warp, of several, all."""
    width, count = (int(generator.choice(each, p=[0.2, 0.6, 0.2])) for each in ([2, 4, 8], [4, 1, 2]))
    count = min(count, 16 // width)
    lanes = _LANES[generator.random(_LANES.size) < generator.choice([0.3, 1.0])]
    if generator.random() < 0.7:
        lanes = lanes[lanes // 32 == generator.integers(_LANES.size // 32)]
    first, behind = (0, _PART) if kind == "shared" else _OPERANDS[int(generator.choice(3, p=[0.2, 0.3, 0.5]))]
    start = lanes // _THREADS * _PART if kind == "shared" else first
    own, by = lanes * 16 % (behind - first), int(generator.integers(4) * (generator.random() < 0.06))
    patterns = (own + 16 * by, own // 128 * 16, 0 * own, generator.integers(0, 60, lanes.size) * 16)
    place = patterns[int(generator.choice(4, p=[0.94, 0.02, 0.02, 0.02]))] % (behind - first)
    return Access(start + place, lanes, width, count, f"instruction {generator.integers(3)}")


def _step(generator: np.random.Generator, kind: str, space: Space, begun: list[Any]) -> Any:
    """One operation, and what it gives."""
    what = generator.choice(
        ["load", "store", "update", "barrier", "begin", "end"], p=[0.35, 0.3, 0.03, 0.22, 0.05, 0.05]
    )
    access = _access(generator, kind)
    some, strong = generator.integers(0, 3, 3), bool(generator.random() < 0.03)
    words = [access.addresses // 8 % 3 * (some[0] > 0) + some[1] for _ in range(access.count)]
    values = [np.asarray(each).astype(f"u{access.width}") for each in words]
    passing = np.flatnonzero(generator.random(_BLOCKS) < generator.choice([0.5, 1.0]))
    if what == "barrier":
        return space.pass_barrier(passing)
    if what == "load":
        return [each.tolist() for each in space.load(access, strong)]
    if what == "update":
        return [each.tolist() for each in space.update(access, lambda old, which, n: old + values[n][which], strong)]
    if what == "begin" and kind == "shared":
        space.begin(access, values)
        begun.append((access, values))
    elif what == "end" and begun:
        space.end(*begun.pop(0))
    elif what == "store":
        space.store(access, values, strong)
    return None


def _story(seed: int, kind: str) -> list[Any]:
    """What comes of some operations, up to the first violation; what one shows of memory is there, too."""
    generator, space = np.random.default_rng(seed), _memory(kind)
    events, begun = [], list[Any]()
    try:
        for _ in range(25):
            events.append(_step(generator, kind, space, begun))
    except Violation as violation:
        return [*events, violation.code, str(violation)]
    return [*events, space.cells.tolist(), space.unwritten, space.shared_updates, space.doubt and str(space.doubt)]


def _differences(monkeypatch: pytest.MonkeyPatch, kind: str, seeds: range) -> tuple[int, int]:
    """Of how many seeds the story is another one where all is entered at once, and of how many there is a violation."""
    stories = [_story(seed, kind) for seed in seeds]
    with monkeypatch.context() as patch:
        patch.setattr(Books, "meets", lambda *_: True)
        patch.setattr(Space, "_was_written", lambda *_: True)
        pairs = [(story, _story(seed, kind)) for story, seed in zip(stories, seeds, strict=True)]
    print("seeds", seeds)
    return sum(story != other for story, other in pairs), sum("OA113" in map(str, story) for story in stories)


@pytest.mark.parametrize("kind", _KINDS)
def test_what_is_kept_gives_the_verdicts_of_what_is_entered_at_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    seeds = range(120)
    different, races = _differences(monkeypatch, kind, seeds)
    assert different == 0
    assert len(seeds) // 10 < races < len(seeds) * 9 // 10


@pytest.mark.parametrize("kind", _KINDS)
def test_few_are_kept_at_once(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(books, "_MOST", 100)
    assert _differences(monkeypatch, kind, range(50))[0] == 0


@pytest.mark.parametrize("kind", _KINDS)
def test_books_that_forget_are_found(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(Books, "keep", lambda *_: None)
    assert _differences(monkeypatch, kind, range(50))[0] > 0
