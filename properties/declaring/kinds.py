"""What a sample of each kind must be, and the error about a declaration that gives another one."""

from __future__ import annotations

import inspect
import math
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import torch
from hypothesis import strategies as st

from ...oracles.bound.rounding.lattice import lowest_bit
from ...oracles.judge.tally import regimes_of
from ...oracles.op.declaration import Draft, Op, Sample, is_float, to_array
from ...oracles.verdicts.violation import Unsupported
from . import choices, strategies

#: The largest integer in samples of kind "integers", as a multiple of its tensor's power of two.
LARGEST_INTEGER = 2.0**8
#: The first extents of the classes of extents: none, one, fewer than a vector, a vector and more.
EXTENT_CLASSES = (0, 1, 2, 9)


#: Modules of `reference` that hold readings; the others hold formulas.
_READINGS = {"array", "derivative", "exact", "formats"}


#: The folder that the folders of this package are in; in a repository, tests and environments stand beside them.
_PACKAGE = Path(__file__).parents[2]
_FOLDERS = ("reference", "impl", "oracles", "properties", "reports")


class DeclarationError(BaseException):
    """A function of a declaration raised, or gave a wrong object; the text names the field and the object.

    This is no Exception, because Hypothesis takes every Exception for a failure of the op and would shrink it.
    """


def drafts_of(op: Op, dtype: str, kind: str, others: int = 0) -> st.SearchStrategy[Draft]:
    """The op's drafts of a kind, each with so many others of other structures; errors become a DeclarationError.

    Drafts of kind "sizes" are large ones with an axis of a chosen extent.

    Raises:
        Unsupported: the op offers no samples of this kind.
        DeclarationError: the declaration raised, or gave no strategy.
    """
    sizes, kind = kind == "sizes", "large" if kind == "sizes" else kind
    what = f"samples({dtype!r}, {kind!r})"
    strategy = call_declaration(what, lambda: op.samples(dtype, kind), op.samples)
    if not isinstance(strategy, st.SearchStrategy):
        raise DeclarationError(f"{what}: got {type(strategy).__name__}, need a Hypothesis strategy of Draft")

    @st.composite
    def drafts(draw: st.DrawFn) -> Draft:
        with choices.record_choices() as record, strategies.sizing(sizes):
            first, *more = [call_declaration(what, lambda: draw(strategy)) for _ in range(1 + others)]
            for each in (first, *more):
                if not isinstance(each, Draft):
                    raise DeclarationError(f"{what}: drew {type(each).__name__}, need Draft")
            draft: Draft = first
            for name in regimes_of(draft.regime):
                record.note("regime", name, (name,))
        for name, extent in draft.extents.items():
            record.note(f"{name} of", class_of(extent), (class_of(extent),))
        return replace(draft, values=frozenset(record.values), declared=record.declared, others=tuple(more))

    return drafts()


def class_of(extent: int) -> str:
    """The name of the class of an extent of an ordinary sample: "1", "2 to 8"."""
    least = max(first for first in EXTENT_CLASSES if first <= extent)
    above = [first for first in EXTENT_CLASSES if first > extent]
    return str(least) if above and above[0] == least + 1 else f"{least} to {above[0] - 1}" if above else f"{least} up"


def call_declaration(what: str, give: Callable[[], Any], function: Any = None) -> Any:
    """The result of a call of one of the declaration's functions.

    Args:
        what: the field, with its arguments. give: makes the call.
        function: the function; the error says where it is written, if no line of the declaration raised.

    Raises:
        Unsupported: as raised. DeclarationError: another exception was raised.
    """
    try:
        return give()
    except (Unsupported, DeclarationError, hypothesis.errors.UnsatisfiedAssumption):
        raise
    except hypothesis.errors.HypothesisException as err:
        # By most of its exceptions Hypothesis steers its own test, so they have to reach it. InvalidArgument says that
        # a strategy was made from wrong arguments, which is a mistake of the declaration.
        if not isinstance(err, hypothesis.errors.InvalidArgument):
            raise
        raise DeclarationError(_raised(what, err, function)) from err
    except Exception as err:
        raise DeclarationError(_raised(what, err, function)) from err


def _raised(what: str, err: Exception, function: Any) -> str:
    text = (str(err).strip().splitlines() or [""])[0]
    where = line_of(err) if function is None or author_frame(err) is not None else place_of(function)
    return f"{what}: raised {type(err).__name__}: {text} ({where})"


def place_of(function: Callable[..., Any]) -> str:
    """The file and the first line of a function; "no source" where it has none."""
    code = getattr(inspect.unwrap(getattr(function, "func", function)), "__code__", None)
    return "no source" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def line_of(err: BaseException) -> str:
    """The last line of a traceback that belongs to a declaration: to no library, and of this package to the catalog."""
    frame = author_frame(err) or traceback.extract_tb(err.__traceback__)[-1]
    return f"{frame.filename}:{frame.lineno}"


def is_ours(frame: traceback.FrameSummary) -> bool:
    """Whether a line belongs to this package."""
    return any(Path(frame.filename).is_relative_to(_PACKAGE / folder) for folder in _FOLDERS)


def author_frame(err: BaseException) -> traceback.FrameSummary | None:
    """The last frame of a traceback that belongs to a declaration (see `line_of`); None if there is none."""
    here = _PACKAGE / "properties"
    libraries = [Path(module.__file__ or "").parent for module in (hypothesis, torch, np)]
    libraries.append(Path(sysconfig.get_paths()["stdlib"]))
    installed = Path(sysconfig.get_paths()["purelib"])

    def own(frame: traceback.FrameSummary) -> bool:
        path = Path(frame.filename)
        if is_ours(frame):
            formula = path.parent == _PACKAGE / "reference" and path.stem not in _READINGS
            return formula or path.is_relative_to(here / "catalog") or path.is_relative_to(here / "functions")
        # Installed packages come before the standard library, whose folder may contain theirs: an installed package
        # that is no library of ours may be the declaration.
        if path.is_relative_to(installed):
            return not any(path.is_relative_to(folder) for folder in libraries[:-1])
        return not any(path.is_relative_to(folder) for folder in libraries)

    frames = traceback.extract_tb(err.__traceback__)
    return next((frame for frame in reversed(frames) if own(frame)), None)


def sample_of(draft: Draft, seed: int, slices: int, kind: str) -> Sample:
    """The sample of a draft and a seed.

    Raises:
        DeclarationError: the draft raised, gave no arguments, or no sample of its kind.
    """
    sample: Sample = call_declaration("samples: fill of a Draft", lambda: draft.sample(seed, slices))
    # A list would pass for arguments in most places, and fail far from here, where arguments are joined as tuples.
    for args in (sample.args, *sample.slices, *sample.others):
        if not isinstance(args, tuple):
            raise DeclarationError(f"samples: fill of a Draft gave {type(args).__name__}, need a tuple of arguments")
    require_kind(kind, sample)
    return sample


def require_kind(kind: str, sample: Sample) -> None:
    """DeclarationError unless a sample of kind "empty" or "integers" is of that kind."""
    every = [a for a in sample.args if isinstance(a, torch.Tensor)]
    tensors = [a for a in every if is_float(a)]
    shapes = ", ".join(str(tuple(t.shape)) for t in (every if kind == "empty" else tensors)) or "none"
    if kind == "empty" and all(t.numel() for t in every):
        raise DeclarationError(
            f"samples: kind 'empty' gave tensors of shapes {shapes}, need one of no elements (or raise"
            " Unsupported for this kind)"
        )
    if kind == "integers" and not any(_are_integers(to_array(t)) for t in tensors):
        raise DeclarationError(
            f"samples: kind 'integers' gave floating tensors of shapes {shapes}, none of which holds integers of at"
            f" most {LARGEST_INTEGER:.0f} times one power of two; need one (or raise Unsupported for this kind)"
        )


def _are_integers(values: Any) -> bool:
    if not np.isfinite(values).all():
        return False
    unit = float(np.min(lowest_bit(values), initial=math.inf))
    return bool(np.max(np.abs(values), initial=0.0) <= LARGEST_INTEGER * unit)


def largest_of(sample: Sample) -> int:
    """Elements of the sample's largest tensor: of floating numbers, or of indices, which make outputs as large."""
    return max((a.numel() for a in sample.args if isinstance(a, torch.Tensor)), default=0)
