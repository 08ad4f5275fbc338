"""Case files of judgements: what asks one question again of the same candidate."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated

import msgspec

from ...oracles.verdicts.verdict import CANDIDATE, Cell

#: The subject of every cell: the op has the name of the candidate.
SUBJECT = CANDIDATE
#: The names of a spec and of a candidate, in the order in which a file is looked through for them.
SPECS = ("Model", "ref_kernel", "reference", "spec")
CANDIDATES = ("ModelNew", "custom_kernel", "candidate", "Model", "kernel")
#: The device where candidates are called.
DEVICE = "cpu"
#: Options of a case that are words on the command line.
_FLAGS = "^(interpret|compiled|eval|device=rehearsal|where=.+|beside=.+|invariant=.+|world=.+|wire=.+)$"


class JudgedCase(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="schema", tag="opassay-judged-case/3"
):
    """What was asked of a candidate.

    Attributes:
        question: its code; empty before one is chosen.
        candidate, spec: addresses, "" for no spec; those of files are absolute.
        given: words NAME=VALUE for what gives the inputs.
        seed: a number, or the digits of `--draws`.
        contract, dtype, calls, seconds: as `opassay judge` takes them.
        flags: options without a value: "interpret" or "compiled" for Triton's kernels, "eval"; a device by name; and
            further sentences of the spec's domain; the address of another candidate, of PARITY; how many ranks.
        sha256: of what was executed, by "candidate" and "spec". cell: of the question.
    """

    candidate: str
    spec: str
    seed: int | Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
    contract: str
    given: tuple[str, ...] = ()
    dtype: str = ""
    calls: int | None = None
    seconds: float = 60.0
    flags: tuple[Annotated[str, msgspec.Meta(pattern=_FLAGS)], ...] = ()
    question: str = ""
    sha256: dict[str, str] = {}
    cell: Cell = Cell("", "", "", "", "")

    def of(self, cell: Cell, sha256: dict[str, str]) -> JudgedCase:
        """The case of one question, by its cell and what was executed."""
        return msgspec.structs.replace(self, question=cell.property, cell=cell, sha256=sha256)

    @property
    def words(self) -> list[str]:
        """The command line that asks it, or all questions."""
        draws = f"--{'seed' if isinstance(self.seed, int) else 'draws'}={self.seed}"
        words = ["opassay", "judge", self.candidate, *(["--spec", self.spec] if self.spec else []), draws]
        words += [f"--contract={self.contract}"] if self.contract != "torch" else []
        words += ["--device=cuda"] if self.cell.device == "cuda" and "device=rehearsal" not in self.flags else []
        words += [f"--{name}={value}" for name, value in (("dtype", self.dtype), ("calls", self.calls)) if value]
        words += [word for pair in self.given for word in ("--input", pair)]
        words += [f"--{flag}" for flag in self.flags]
        choice = ["-k", self.question] if self.spec else [f"--invariant={self.question.partition(':')[2]}"]
        return words + (choice if self.question else [])

    @property
    def text(self) -> str:
        """The case file."""
        whole = msgspec.structs.replace(
            self, candidate=absolute(self.candidate), spec=self.spec and absolute(self.spec)
        )
        return json.dumps(msgspec.to_builtins(whole), indent=1)

    @property
    def id(self) -> str:
        """The cell's id, and four hex digits of the case."""
        digest = hashlib.sha256(self.text.encode("utf-8", "replace")).hexdigest()
        return f"{self.cell.id}-{digest[:4]}"


def parts_of(address: str) -> tuple[Path | None, str, str]:
    """The path of an address, or the name of a module; and the name in it, empty for none.

    An address is a file, `file.py:name` or `module:name`.
    """
    file, within, name = address.partition(".py:")
    path = Path(f"{file}.py" if within else address)
    if path.suffix == ".py" or path.exists():
        return path, "", name
    module, _, name = address.partition(":")
    return None, module, name


def absolute(address: str) -> str:
    """The address with an absolute path, if it is one of a file."""
    path, _, name = parts_of(address)
    return address if path is None else f"{path.absolute()}{name and f':{name}'}"
