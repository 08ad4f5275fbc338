"""The table of checks: what each property asks of one sample, and which kind of sample it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .checks.autocast import autocast
from .checks.comm.devices import communicated
from .checks.compilation import compiled
from .checks.determinism import deterministic
from .checks.exact_data import exact_data
from .checks.fake import fakes
from .checks.laws import laws
from .checks.layout import layouts
from .checks.purity import dual, memory, pure
from .checks.refusals import refused
from .checks.saved import saved
from .checks.special import specials
from .checks.transforms.agree import agreeing
from .checks.transforms.forward_ad import forward_ad
from .checks.transforms.values import adjoint, forward, forward_and_reverse, reverse, second, tangent, third
from .checks.transforms.vmap import SLICES, nested, vmapped, words
from .judgement import Judgement
from .op import Sample

ALL = ("float64", "float32", "bfloat16", "float16")
#: The share of large samples in questions about values.
LARGE = 0.08


@dataclass(frozen=True)
class Question:
    """A property's check.

    Attributes:
        check: judges one sample, raises Violation at the first broken promise.
        kind: of the samples it takes: "ordinary", "integers", "empty" or "large".
        large: the share of samples of kind "large" among those of another kind: one at least.
        most: elements of a large sample's axes together.
        slices: how many further samples of the same structure it needs for batches.
        effort: examples, relative to a forward check.
        dtypes: those it applies to.
        judges: the implementation that is judged, where that is not the cell's subject.
        apart: whether it is judged in processes prepared for it (`properties.forward_ad`).
        compiles: whether it judges paths only (`Judgement.path`), so that it can be asked of compiled code.
    """

    check: Callable[[Judgement, Sample], None]
    kind: str = "ordinary"
    large: float = 0.0
    most: int = 70_000
    slices: int = 0
    effort: float = 1.0
    dtypes: tuple[str, ...] = ALL
    compiles: bool = False
    judges: str | None = None
    apart: bool = False

    def large_of(self, examples: int) -> int:
        """How many of so many samples are large; of two or fewer, none."""
        return max(1, round(self.large * examples)) if self.large and examples > 2 else 0


QUESTIONS: dict[str, Question] = {
    "FWD": Question(forward, effort=1.25, compiles=True, large=LARGE),
    "VJP": Question(reverse, effort=0.9, compiles=True, large=LARGE),
    "JVP": Question(tangent, effort=0.9, compiles=True, large=LARGE),
    "ORD2": Question(second, effort=0.25, compiles=True, large=LARGE, most=20_000),
    "ORD3": Question(third, effort=0.2, dtypes=("float64",)),
    "ADJ": Question(adjoint),
    "VMAP": Question(vmapped, slices=SLICES, effort=0.25),
    "NEST": Question(nested, slices=4, effort=0.07),
    "WORD": Question(words, slices=7, dtypes=("float64", "float32")),
    "DUAL": Question(dual),
    "LAW": Question(laws),
    "DATA": Question(exact_data, kind="integers"),
    "LAYOUT": Question(layouts),
    "SPECIAL": Question(specials, effort=0.15, compiles=True),
    "EMPTY": Question(forward_and_reverse, kind="empty", effort=0.3, compiles=True),
    "ERROR": Question(refused, effort=0.4),
    "PURE": Question(pure, effort=0.4),
    "FAKE": Question(fakes, effort=0.4),
    "COMP": Question(compiled, effort=0.01),
    "DET": Question(deterministic, kind="large", effort=0.12),
    "AUTOCAST": Question(autocast, effort=0.4),
    "MEM": Question(memory, effort=0.4),
    "COMM": Question(communicated, effort=0.15),
    "SAVE": Question(saved, effort=0.1),
    "AGREE": Question(agreeing, slices=7, effort=0.2, dtypes=("float64",)),
    "FWAD": Question(forward_ad, effort=0.25, judges="torch", apart=True),
}
