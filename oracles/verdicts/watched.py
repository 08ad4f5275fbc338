"""What a watched program shows: call sites, the order of calls, and where the accuracy of its loss went.

Standard library only, so that a page can be made on a machine without torch. `data` writes it and reads it strictly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from .verdict import Outcome


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where a program makes a call.

    Attributes:
        op: the operation, "aten::mm"; of a region with a spec, its name.
        module: the path of the module around it, "model.layers.0.mlp"; empty outside of modules.
        line: the program's own line, "train.py:41"; of a backward call that of its forward. Empty where none is known.
        node: the autograd node of a backward call, "MmBackward0"; empty in the forward pass.
        number: which of the sites of this operation, module and node it is, from 0.
    """

    op: str
    module: str = ""
    line: str = ""
    node: str = ""
    number: int = 0

    @property
    def name(self) -> str:
        """The operation as a record names it within its module: "aten::mm", "aten::mm backward#2"."""
        side = " backward" if self.node and not self.op.endswith(" backward") else ""
        return f"{self.op}{side}{f'#{self.number + 1}' if self.number else ''}"

    @property
    def text(self) -> str:
        """In one line."""
        where = ", ".join(part for part in (self.module, self.line) if part)
        return f"{self.op}{f' of {self.node}' if self.node else ''}{f' ({where})' if where else ''}"


@dataclass(frozen=True, slots=True)
class SiteTotals:
    """The calls of a site, added up.

    Attributes:
        calls: that the program made. judged: of them. elements: of the results that were judged.
        seconds: of its calls alone. contribution: to the error of the loss; NaN if not known. size: of magnitudes.
    """

    calls: int = 0
    judged: int = 0
    elements: int = 0
    seconds: float = 0.0
    contribution: float = math.nan
    size: float = 0.0


@dataclass(frozen=True, slots=True)
class Site:
    """A call site: the calls of one operation from one place, and what was found about them.

    Attributes:
        place, dtype: where, and the dtype of the results.
        kind: "computes", "casts", "moves", "integers", "region" (has a spec of the user's), or what has no numbers to
            hold: "random", "memory", "silent"; "unkept" where no call was recorded.
        outcome: verified (held), fail (outside), weak, or unsupported (not read). reason: one sentence.
        ratio: the largest error as a multiple of its bound.
        totals: of its calls. first: the number of its first call in the step.
        card: of the worst call outside: the card's lines. operands: facts of the operands of the worst call, a line
            each. case: the name of the file with the operands of that call, which `opassay watch --call` judges again;
            of a compiled graph "NAME.py", the program of its smallest piece that is outside.
    """

    place: CallPlace
    dtype: str
    kind: str
    outcome: Outcome
    reason: str
    ratio: float = 0.0
    totals: SiteTotals = field(default_factory=SiteTotals)
    first: int = 0
    card: str = ""
    operands: tuple[str, ...] = ()
    case: str = ""


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call in the order of the program.

    Attributes:
        site: by position. ratio: its largest error over its bound; NaN where it was not judged.
        contribution: to the error of the loss, signed; NaN where none is known.
    """

    site: int
    ratio: float = math.nan
    contribution: float = math.nan


@dataclass(frozen=True, slots=True)
class LossFacts:
    """The scalar whose error is followed.

    Attributes:
        name: "loss", or of how many it is the sum; of another number its element, "logits[0, 3]". value: as computed.
        explained: the sum of the contributions of all calls to its error. size: the sum of their magnitudes.
        unknown: operations without a known derivative, or not read. about: of another number than a loss, what it is.
        error: against the same calls in float64; NaN where they could not be made, and shares are first order.
    """

    name: str
    value: float
    explained: float = math.nan
    size: float = math.nan
    unknown: tuple[str, ...] = ()
    about: str = ""
    error: float = math.nan


@dataclass(frozen=True, slots=True)
class FirstSpecial:
    """The first call that gives a NaN or an infinity from finite operands, or a NaN from operands that have none.

    Attributes:
        site: by position. call: its number. what: "out[3, 4] is NaN", why: the reason in words, "0/0: ...".
        operands: facts of its operands, a line each. chain: sites, by position, through which it reaches the loss.
    """

    site: int
    call: int
    what: str
    why: str
    operands: tuple[str, ...] = ()
    chain: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgramDifference:
    """A call at which a program and another form of it differ.

    Attributes:
        here, there: the call in this program and in the other one; None where it has none. text: what differs.
        wrong: "here" or "there" where the call is outside of its own bound, so that its program is wrong; else empty.
        ratio: the distance of the programs, or the call's own error, over what is allowed.
    """

    here: CallPlace | None
    there: CallPlace | None
    text: str
    wrong: str = ""
    ratio: float = math.inf

    @property
    def line(self) -> str:
        """In one line."""
        place = self.here or self.there
        side = "" if self.here else "there, "
        return f"{side}{place.text if place else 'the program'}: {self.text}"


@dataclass(frozen=True, slots=True)
class ProgramComparison:
    """A program, compared with another form of it.

    Attributes:
        other: the name of the other. differences: in the order of the program.
        here, there: calls that compute. same: how many of those here the other program has as well, with their values.
        unknown: why values were taken to be the same without being compared, and how often.
    """

    other: str
    differences: tuple[ProgramDifference, ...] = ()
    here: int = 0
    there: int = 0
    same: int = 0
    unknown: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Watched:
    """What was seen of a program.

    Attributes:
        program: its name. sites: in the order of their first calls. calls: all recorded ones, in order.
        loss: None where no backward was run. special: None where none was found.
        kinds: kind of a call -> how many. choice: which calls were recorded, in words. regions: names of custom
            operators and functions without a spec, with the number of their calls.
    """

    program: str
    sites: tuple[Site, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    loss: LossFacts | None = None
    special: FirstSpecial | None = None
    kinds: tuple[tuple[str, int], ...] = ()
    choice: str = "all calls"
    regions: tuple[tuple[str, int], ...] = ()
    against: ProgramComparison | None = None
