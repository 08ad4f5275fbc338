"""What the files of a suite come down to: the tests of a task, and for one of them a spec and a candidate.

What is hard here: the code of a candidate may not run in the judge's process, so sources that stand in a file of data
are written out as files, and the candidate's process imports these.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..host.module_files import GivenError, SpecFile

#: Sizes and other values of one test, by their names.
Case = dict[str, Any]


@dataclass(frozen=True)
class Pair:
    """One comparison of a candidate with a spec.

    Attributes:
        problem: of the spec. candidate: the address from which the candidate is imported.
        contents: path -> bytes of the user's file, where `candidate` names a file that wraps it.
    """

    problem: SpecFile
    candidate: str
    contents: Mapping[str, bytes] = field(default_factory=dict)


class Task(Protocol):
    """One task of a suite; both methods raise `GivenError` for a file that is not there or lacks something."""

    def cases(self) -> Sequence[Case]:
        """The values of each test, in the order of the file; at least one."""

    def pair(self, candidate: str, folder: Path, seed: int, case: Case) -> Pair:
        """The spec and the candidate at one test; the method may write files into the empty `folder`.

        Args:
            candidate: the address that the user gave. seed: as of `problem_of`. case: one of `cases()`.
        """


def read_fields(path: Path, text: str | bytes, **kinds: type) -> dict[str, Any]:
    """The fields of a JSON object in a file; GivenError where it is none or a field is not of its kind."""
    try:
        fields = json.loads(text)
    except ValueError as err:
        raise GivenError(f"{path}: no JSON: {err}") from err
    for name, kind in {"": dict, **kinds}.items():
        value = fields.get(name) if name else fields
        if not isinstance(value, kind):
            raise GivenError(f"{path}: {name or 'it'}: got {str(value)[:80]}, need a {kind.__name__}")
    return dict(fields)


def located(address: str, name: str) -> tuple[Path, str]:
    """The file of a candidate's address, and the name in it; `name` where the address has none."""
    file, _, own = address.rpartition(":")
    path, name = (Path(file), own) if file and not Path(address).exists() else (Path(address), name)
    if not path.is_file():
        raise GivenError(f"{path}: no such file")
    return path.resolve(), name


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a folder, by their paths below it; GivenError where one leads out of it."""
    for name, content in contents.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise GivenError(f"{name}: need a path below its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
