"""The programs that there are: a file for each bug of a public thread, and the findings of benchmarks/findings.

Both are told by their text alone, so that a program whose library is missing can be listed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .running import CLAIMED, ERROR, ROOT, run_program

CORPUS, FINDINGS = ROOT / "corpus", ROOT / "benchmarks" / "findings"
_SECONDS = 300.0


@dataclass(frozen=True)
class Program:
    """A program: its name, that of its folder, and the title and the text of its docstring.

    Attributes:
        path: of its file. found_here: whether it is one of benchmarks/findings.
        package: of a finding, whose it is.
    """

    name: str
    theme: str
    title: str
    text: str
    path: Path
    found_here: bool = False
    package: str = ""

    def result(self, sight: bool) -> dict[str, Any]:
        """What a run of it says, as plain data.

        Args:
            sight: whether its claim is checked, too.
        """
        result: dict[str, Any] = {"name": self.name, "title": self.title}
        if self.found_here:
            state, printed = run_program([str(self.path)], "  opassay ", _SECONDS)
            package = self.package
            version = printed.rpartition(f"{package} ")[2].partition("\n")[0] if state in ("present", "fixed") else ""
            return {
                **result,
                "state": state,
                "package": package,
                "version": version,
                "observation": printed,
                "seen": {},
            }
        module = ".".join(self.path.relative_to(ROOT).with_suffix("").parts)
        state, printed = run_program(["-m", module, *(["--seen"] if sight else [])], CLAIMED, _SECONDS)
        lines = [row.removeprefix(CLAIMED) for row in printed.splitlines() if row.startswith(CLAIMED)]
        facts = json.loads(lines[0]) if lines and state != ERROR else _nothing(printed)
        return {**result, "theme": self.theme, "state": state, **facts}


def _nothing(printed: str) -> dict[str, Any]:
    return {"package": "", "version": "", "observation": printed, "seen": {}}


def programs() -> list[Program]:
    """All programs: those of public threads by folder and name, then the findings."""
    bugs = [_program(path) for path in sorted(CORPUS.glob("*/*.py"))]
    return [*bugs, *(each for path in sorted(FINDINGS.glob("*.py")) if (each := _finding(path)) is not None)]


def _program(path: Path) -> Program:
    title, _, text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n\n")
    return Program(path.stem, path.parent.name, title, text, path)


def _finding(path: Path) -> Program | None:
    """A finding; None for a module that findings share."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("(LIBRARY, VERSION"):
            library, _ = ast.literal_eval(node.value)
            title = (ast.get_docstring(tree) or "").partition("\n\n")[0]
            return Program(path.stem, "findings", title, "", path, True, library)
    return None


def themes(programs: Sequence[Program]) -> dict[str, list[Program]]:
    """The programs by folder."""
    return {
        theme: [each for each in programs if each.theme == theme] for theme in dict.fromkeys(e.theme for e in programs)
    }
