"""Text of strangers, made safe to print and short enough to read. Standard library only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from contextvars import ContextVar

# C0 and C1 controls but tab and newline, bidirectional overrides, lone surrogates, terminal escapes
_ESCAPE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2028\u2029\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


#: Torch's request to report its error. It is taken out, because the call was ours, so torch has nothing to fix.
_REQUEST = re.compile(
    r"((?:,|;| -)? {0,2})(?:\(?Could this error message be improved\? {0,2})?(?:If [^.,?\n]{1,80}, )?"
    r"\bplease (?:report|file|open|submit|create)\b"
    r"(?=[^.\n]{0,120}\b(?:bug|issue|request)\b|[^.\n]{0,60}\bto (?:PyTorch|Triton)\b)"
    r"(?:[^.\n]|\.(?!\s|\)|$))*\.?\)?",
    re.IGNORECASE | re.MULTILINE,
)


def without_requests(text: str) -> str:
    """A text, without the clauses in which torch asks for a report of its error: "please report a bug to PyTorch"."""
    return _REQUEST.sub(lambda match: "." if match[1].strip() else "", text)


#: Limits of an exception's text: characters that are read, lines, characters of a line; and characters of its name.
_TEXT, MAX_LINES, MAX_LINE, _NAME = 20_000, 6, 1_000, 200


def error_name(err: BaseException) -> str:
    """The name of an exception's type, of bounded length."""
    name = " ".join(type(err).__name__[: 4 * _NAME].split())
    return name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."


def error_lines(err: BaseException) -> list[str]:
    """The first lines of an exception's text, without torch's requests (`without_requests`).

    Their length is bounded, because the text may be anything, and it is in every report.
    """
    lines = without_requests(text_of(err)).strip().splitlines()
    return [line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..." for line in lines[:MAX_LINES]]


def text_of(err: BaseException) -> str:
    """An exception's text, of bounded length."""
    try:
        # The exception's class may be the subject's, and so its `__str__` may raise as well.
        return str(err)[:_TEXT]
    except Exception as failed:
        return f"its text raises {error_name(failed)}"


def clean(text: str) -> str:
    """The text without characters that could mislead a terminal, an XML parser or a reader."""
    return _CONTROL.sub("", _ESCAPE.sub("", text.replace("\r\n", "\n")))


#: How much of one failure a card in a terminal shows; a record keeps MAX_TEXT characters of every text.
CARD_LINES = 40
CARD_CHARACTERS = 4000


def join_runs(runs: Iterable[tuple[int, int]]) -> str:
    """Runs of whole numbers, each from its first to its last, and those without a gap as one: "1 to 5, 7"."""
    together: list[tuple[int, int]] = []
    for low, high in sorted(runs):
        if together and low <= together[-1][1] + 1:
            first, last = together.pop()
            low, high = first, max(last, high)
        together.append((low, high))
    return ", ".join(f"{low} to {high}" if low < high else str(low) for low, high in together)


def quantity(count: int, noun: str) -> str:
    """`1 sample`, `3 samples`."""
    return f"{count} {noun}{'s' * (count != 1)}"


#: The report folder of the command that runs; empty for the one in which `opassay replay` looks by itself.
REPORT_FOLDER: ContextVar[str] = ContextVar("report folder", default="")


def replaying(op: str, case_id: str) -> str:
    """The command that judges a case again; it names the op of a module, and a folder that is not the usual one."""
    folder = REPORT_FOLDER.get()
    where = "" if folder in ("", "opassay-report") else f" --report-dir {shlex.quote(folder)}"
    return f"opassay replay {case_id[:100]}{f' --op {shlex.quote(op[:400])}' if ':' in op else ''}{where}"


def shorten(text: str, lines: int = CARD_LINES, characters: int = CARD_CHARACTERS) -> list[str]:
    """The first lines of a text, cleaned (`clean`); where something was cut, a last line says how long the whole is."""
    # Cleaning only removes characters, so the first 2 * `characters` are enough in practice, and the rest of a huge
    # text is never searched.
    all_lines = clean(text[: 2 * characters]).splitlines()
    first_lines: list[str] = []
    remaining = characters
    for line in all_lines[:lines]:
        first_lines.append(line[:remaining])
        remaining -= len(first_lines[-1])
        if remaining <= 0:
            break
    if len(text) <= 2 * characters and first_lines == all_lines:
        return first_lines
    return [*first_lines, f"[cut; the whole has {len(text)} characters in {text.count(chr(10)) + 1} lines]"]
