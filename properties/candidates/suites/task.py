"""What the files of a suite come down to: the tests of a task, and for one of them a spec and a candidate.

What is hard here: the code of a candidate may not run in the judge's process, so what stands in a file of data is
written out as files, and the candidate's process imports these.
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
    """A spec, and the candidate that it judges.

    Attributes:
        problem: the spec, and what draws its inputs. candidate: the address of the candidate.
        contents: the bytes of the user's own file of the candidate, by its path, where the address is another.
    """

    problem: SpecFile
    candidate: str
    contents: Mapping[str, bytes] = field(default_factory=dict)


class Task(Protocol):
    """One task of a suite."""

    def cases(self) -> Sequence[Case]:
        """The values of each test, in the order of the file; at least one.

        Raises:
            GivenError: the file lacks them.
        """

    def pair(self, candidate: str, folder: Path, seed: int, case: Case) -> Pair:
        """The spec and the candidate of one test.

        Args:
            candidate: the user's address of it. folder: an empty one, for files. seed: as of `problem_of`.

        Raises:
            GivenError: a file is not there, or lacks something.
        """


def read_fields(path: Path, text: str | bytes, **kinds: type) -> dict[str, Any]:
    """The fields of a JSON object, of which some are required.

    Args:
        path: for messages. text: that it has. kinds: the type of each required field.

    Raises:
        GivenError: it is no JSON object, or has no such field.
    """
    try:
        fields = json.loads(text)
    except ValueError as err:
        raise GivenError(f"{path}: no JSON: {err}") from err
    for name, kind in {"": dict, **kinds}.items():
        value = fields.get(name) if name else fields
        if not isinstance(value, kind):
            raise GivenError(f"{path}: {name or 'it'} is a {type(value).__name__}, need a {kind.__name__}")
    return dict(fields)


def located(address: str, name: str) -> tuple[Path, str]:
    """The file of a candidate's address, and the name in it, `name` where the address has none.

    Raises:
        GivenError: there is no such file.
    """
    file, colon, own = address.rpartition(":")
    path, name = (Path(file), own) if colon and not Path(address).exists() else (Path(address), name)
    if not path.is_file():
        raise GivenError(f"{path}: no such file")
    return path.resolve(), name


def write_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write files into a new folder, by their relative paths.

    Raises:
        GivenError: a path leads out of it.
    """
    for name, content in contents.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise GivenError(f"{name}: leads out of its folder")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
