"""What is asked of a candidate: which questions, of which dtype, in which order, and when they end."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..names import collect_names, nearest_of
from ..table import FORMER_NAMES, KINDS, TABLE, property_of
from .judge_draws import Draws

#: The largest number of ranks.
_MOST_RANKS = 8
#: Draws after which questions have the table's order.
NO_SECRET = Draws(0)
#: The word for every question and every property.
ALL_CODES = "ALL"
#: Few kernels are called with so many rows: whoever wants to know of it names it.
FAR = "FAR"
#: Asked where there is another candidate beside; of what the questions before it have asked.
PARITY = "PARITY"
_FOR_PARITY = tuple(code for code in KINDS if property_of(code) in ("FWD", "DATA", "VJP", "SIZE"))
#: LIKELY looks at the answers to these.
_FOR_LIKELY = ("FWD:given", "FWD:seeds")
#: Between the address of another candidate, the device that it runs on, and the Python that it runs under.
ON, UNDER, DEVICES = " on ", " under ", ("cpu", "cuda", "rehearsal")
#: Axis along which bits are asked -> the code of its kind.
INVARIANT = {code.partition(":")[2]: code for code in KINDS if property_of(code) == "INV"}
#: What "all" is. A gradient that sums over rows follows from all of them, so what is asked of it has to be declared.
ALL_AXES = tuple(axis for axis in INVARIANT if axis != "shared")
#: What somebody may say of the gradients that rows share, beside their order: the sum of single rows, or of any order.
_SHARED = ("shared=single", "shared=any")
#: The word for what is asked of several ranks, and the codes.
RANKS = "COMM"
OF_RANKS = tuple(code for code in KINDS if code.startswith(f"{RANKS}:"))
#: What is asked by default.
USUAL = tuple(code for code in KINDS if code not in (FAR, PARITY, *INVARIANT.values(), *OF_RANKS))
#: Other answers are compared with what comes of these, which are asked first.
_AHEAD = ("PURE:process", "FWD:given")
#: These build on answers to other questions, or end the candidate's process, and are not asked earlier than those.
_BEHIND = frozenset({*OF_RANKS, "COMP:compiled", "LIKELY", PARITY, "PURE:left"})


def parts_of_beside(text: str) -> tuple[str, str, str]:
    """Another candidate: its address, and behind `ON` and `UNDER` its device, as torch calls it, and its Python."""
    place, _, python = text.partition(UNDER)
    address, _, device = place.rpartition(ON)
    return (address, device.replace("rehearsal", "cuda"), python) if device in DEVICES else (place, "", python)


def nearest_code(code: str) -> str:
    """A hint at the code that is nearest to one of no question; "" where none is near."""
    hint = nearest_of(code, [*TABLE, ALL_CODES, *FORMER_NAMES])
    return re.sub(r"\w+", lambda match: FORMER_NAMES.get(match[0], match[0]), hint)


def axes_of_words(words: Sequence[str] | str) -> tuple[str, ...]:
    """The axes along which somebody wants equal bits; ValueError for a word that names none."""
    for word in (words := collect_names(words)):
        axis, equals, _ = word.partition("=")
        if (axis not in (*INVARIANT, "all")) or (equals and axis != "rows" and word not in _SHARED):
            need = f"need {', '.join(INVARIANT)}, all, rows=NAME:AXIS, {' or '.join(_SHARED)}"
            raise ValueError(f"invariant: got {word!r}{nearest_of(axis, [*INVARIANT, 'all'])}, {need}")
    return tuple(words)


def mesh_of(text: str) -> tuple[int, ...]:
    """The mesh that a user names: "4", or "2x2".

    Raises:
        ValueError: it is none, or has too many ranks.
    """
    words = text.lower().split("x")
    if not all(word.isascii() and word.isdigit() and int(word) for word in words):
        raise ValueError(f"world: got {text!r}, need a number of ranks, or a mesh of them as 2x2")
    mesh = tuple(map(int, words))
    if math.prod(mesh) > _MOST_RANKS:
        raise ValueError(f"world: got {math.prod(mesh)} ranks, need at most {_MOST_RANKS}")
    return mesh


@dataclass(frozen=True)
class QuestionPlan:
    """What is asked of a candidate.

    Attributes:
        questions: codes of `TABLE`, or "ALL"; by default those of `KINDS`. A property is asked in its kinds, too.
        sooner: those that are asked before others where they may be.
        stop: whether a wrong answer ends the questions.
        total: seconds after which no further question is asked, and a process that is asked one is waited for no more.
        calls: that CALLS:again makes in a row; None for as many as half a second takes.
        dtype: torch's name of that to which floating inputs, parameters and buffers are cast; empty for their own.
        timed: whether the times of spec and candidate are taken, too, if nothing is wrong.
        device: to which inputs, parameters and buffers are moved, "cpu" or "cuda"; empty for their own.
        evaluation: whether modules are put in evaluation, and the spec is called without dropout.
        others: what is asked, too: FAR and RANKS, which are not by default; axes along which bits are, or "all";
            "rows=x:0" also says which axis the rows are.
        where: sentences of the domain of a spec in a file, beside its own.
        beside: another candidate, of which PARITY is asked, as `parts_of_beside` reads it; empty for none.
    """

    questions: Sequence[str] = ()
    sooner: Sequence[str] = ()
    stop: bool = False
    total: float = math.inf
    calls: int | None = None
    dtype: str = ""
    timed: bool = False
    device: str = ""
    evaluation: bool = False
    others: Sequence[str] = ()
    where: Sequence[str] = ()
    beside: str = ""

    def __post_init__(self) -> None:
        for name, codes in (("questions", collect_names(self.questions)), ("sooner", self.sooner)):
            object.__setattr__(self, name, tuple(FORMER_NAMES.get(code, code) for code in codes))
        codes = [*TABLE, ALL_CODES]
        unknown = [code for code in self.questions if code not in codes]
        if unknown:
            near = nearest_code(unknown[0])
            raise ValueError(f"questions: got {unknown[0]!r}{near}, need codes of {', '.join(codes)}")
        axes_of_words([word for word in self.others if word not in (FAR, RANKS)])
        if not self.total > 0:
            raise ValueError(f"total={self.total}: need seconds above 0")
        if self.calls is not None and self.calls < 2:
            raise ValueError(f"calls={self.calls}: need 2 or more calls in a row")

    def of_relations(self) -> QuestionPlan:
        """What is asked where there is no spec; ValueError where anything else is, or nothing."""
        if not self._others or set(self.questions) - {*INVARIANT.values()}:
            raise ValueError(f"spec: got none, need one, or invariant=... alone: {', '.join(INVARIANT)}, all")
        return replace(self, questions=(*self.questions, *self._others))

    def names(self, code: str) -> bool:
        """Whether a question is asked because somebody has named it."""
        return code in (*self.questions, *self._others) and not (code in INVARIANT.values() and "all" in self.others)

    def words_of(self, axis: str) -> list[str]:
        """What is said of an axis behind its name: which axis the rows are, what gradients that they share are."""
        return [value for name, _, value in (word.partition("=") for word in self.others) if name == axis and value]

    @property
    def _others(self) -> list[str]:
        """Codes that are asked beside the questions."""
        words = [word.partition("=")[0] for word in self.others]
        axes = [*(word for word in words if word in INVARIANT), *(ALL_AXES if "all" in words else ())]
        codes = [FAR] * (FAR in words) + [*OF_RANKS] * (RANKS in words)
        return codes + [INVARIANT[word] for word in axes] + [PARITY] * bool(self.beside)

    def order(self, draws: Draws = NO_SECRET) -> list[str]:
        """The codes in the order in which they are asked.

        Args:
            draws: if secret, so is the order, but for what `sooner` names and what has its place: a candidate
                that knows its judge cannot count calls to tell which question it is asked.
        """
        # Equal bits are nobody's duty unless somebody wants them, so ALL has none of these questions.
        every = [code for code in TABLE if property_of(code) != "INV"]
        selection = [*(every if ALL_CODES in self.questions else self.questions or USUAL), *self._others]
        alone = {*selection}
        selection += _FOR_PARITY if alone == {PARITY} else _FOR_LIKELY if alone == {"LIKELY"} else []
        codes = [code for code in KINDS if code in selection or property_of(code) in selection]
        sooner = set(self.sooner) - _BEHIND
        if draws.secret:
            draws.generator("order").shuffle(codes)
            codes.sort(key=lambda code: list(KINDS).index(code) if code in _BEHIND | sooner else -1)
        codes.sort(key=lambda code: _AHEAD.index(code) if code in _AHEAD else 2 if code in sooner else 3)
        codes += [code for code in TABLE if code not in KINDS and code in selection]
        return sorted(codes, key=lambda code: code == "PURE:left")  # which may end the candidate's process
