"""Runs the programs of pages, and compares what they print with what the pages show.

    python docs/building/blocks.py docs/properties.md docs/library.md

Every block of Python is run, in its page's order, with the names of the blocks before it, in an empty folder. What
stands in a plain block directly below it is what it prints. Numbers in there may differ, and so may the places where
lines are wrapped. A block that begins with a comment like `# name.py` is written to that file, too. A block that is
not to be run says so, with a reason, in the line above it: `<!-- not run: REASON -->`.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]+) -->\n)?"
    r"^```python\n(?P<program>.*?)^```\n"
    r"(?:\n```\n(?P<shown>(?!\$ ).*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
_NUMBER = re.compile(r"(?<![A-Za-z\d])-?0x[0-9a-f.]+p[-+]?\d+|(?<![A-Za-z\d.])-?\d+(\.\d+)?(e[-+]?\d+)?")
_FILE = re.compile(r"# ([\w/]+\.py)\n")


@dataclass(frozen=True)
class Block:
    """A program of a page; `output` is None where the page shows no output, `why` says why it is not run."""

    line: int
    program: str
    output: str | None
    why: str | None


def blocks(text: str) -> list[Block]:
    """The programs of a page, in their order."""
    return [
        Block(text.count("\n", 0, match.start("program")) + 1, match["program"], match["shown"], match["why"])
        for match in _BLOCK.finditer(text)
    ]


def faults(page: str, text: str) -> Iterator[str]:
    """A sentence for each program that raises or prints something else than the page shows, run in this folder.

    A page goes on after such a program, so that all of them are told.
    """
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks(text):
        if block.why is not None:
            continue
        where = f"{page}:{block.line}"
        if file := _FILE.match(block.program):
            Path(file[1]).parent.mkdir(parents=True, exist_ok=True)
            Path(file[1]).write_text(block.program, encoding="utf-8")
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                # What reads its caller's source, as an assertion does, finds it there.
                linecache.cache[where] = len(block.program), None, block.program.splitlines(True), where
                exec(compile(block.program, where, "exec"), names)
        except Exception:
            yield f"{where}: raised\n{traceback.format_exc()}"
            continue
        if block.output is not None and _words(output.getvalue()) != _words(block.output):
            yield f"{where}: printed\n{output.getvalue()}and the page shows\n{block.output}"


def _words(text: str) -> list[str]:
    return [_NUMBER.sub("#", word) for word in text.split()]


def main(pages: list[str]) -> int:
    """Runs the programs of these files; returns 1 if one of them does not do what its page shows."""
    count = 0
    for page in map(Path, pages):
        text = page.read_text(encoding="utf-8")
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            sys.path.insert(0, folder)
            try:
                wrong = list(faults(page.name, text))
            finally:
                os.chdir(here)
                sys.path.remove(folder)
        left_out = [block for block in blocks(text) if block.why is not None]
        print(f"{page.name}: {len(blocks(text)) - len(left_out)} programs run, {len(wrong)} wrong", flush=True)
        print("".join(f"  not run, line {block.line}: {block.why}\n" for block in left_out), end="")
        print("".join(f"{sentence}\n" for sentence in wrong), end="", flush=True)
        count += len(wrong)
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
