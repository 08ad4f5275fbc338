"""One cause as a page in Markdown that whoever maintains the implementation can act on."""

from __future__ import annotations

import json

from ...oracles.verdicts.verdict import Code, clean, counted, replaying, shorten
from ..record import Run
from ..text import code_span, markdown, number
from .grouping import Cause

#: Lines and characters of a program or a case that a page shows; longer ones stand in the case file alone.
_LINES, _CHARACTERS = 200, 20_000
#: Parts of the environment that a page names.
_VERSIONS = ("torch", "python", "platform", "cpu", "numpy")
_MOST_CELLS = 40


def page(cause: Cause, run: Run) -> str:
    """The page: what is wrong, how severe, the smallest input, a program, versions, and every cell that shows it."""
    failure, cell = cause.example.failure, cause.example.verdict.cell
    lines = [
        f"# {markdown(cause.title)}",
        "",
        f"- severity: {cause.severity}{_cause_share(cause)}",
        f"- seen: {counted(cause.samples, 'sample')} of {counted(len(cause.cells), 'cell')};"
        f" ops {_spans(cause.axis('op'))}; dtypes {_spans(cause.axis('dtype'))}",
        *([f"- outputs: {_spans(cause.outputs)}"] if cause.outputs else []),
        *([f"- only with: {_spans(cause.common)}"] if cause.common else []),
        *([f"- calls: {_spans(list(failure.signs.calls))}"] if failure.signs.calls else []),
        f"- asked: {markdown(cause.example.verdict.title or cell.property)}",
        "",
        "## Expected and actual",
        "",
        *_block(failure.text(), "text"),
        "",
        "## Program",
        "",
        *_cause_program(cause),
        "",
        "## Smallest input",
        "",
        *_inputs(failure.case),
        "",
        "## Versions",
        "",
        *(f"- {name}: {markdown(run.environment[name])}" for name in _VERSIONS if name in run.environment),
        f"- opassay: {markdown(run.version)}{f' @ {markdown(run.commit[:12])}' if run.commit else ''},"
        f" profile {markdown(run.profile)}, seed {run.seed}",
        "",
        "## Cells",
        "",
        *(f"- {code_span(key)}" for key in cause.cells[:_MOST_CELLS]),
    ]
    if len(cause.cells) > _MOST_CELLS:
        lines.append(f"- and {len(cause.cells) - _MOST_CELLS} more")
    return "\n".join(lines) + "\n"


def index(causes: list[tuple[str, Cause]], run: Run) -> str:
    """The list of the pages: a line per cause, with the name of its file."""
    lines = [f"- [{markdown(cause.line)}]({name})" for name, cause in causes]
    head = (
        f"# {counted(len(causes), 'cause')} of {len({key for _, cause in causes for key in cause.cells})} failed cells"
    )
    return "\n".join([head, "", f"profile {markdown(run.profile)}, seed {run.seed}", "", *lines]) + "\n"


def _cause_share(cause: Cause) -> str:
    share = cause.worst.failure.signs.share or 0.0
    return f", an error of {number(share, 2)} of the largest number there" if share > 0 else ""


def _spans(names: list[str]) -> str:
    return ", ".join(code_span(name) for name in names)


def _block(text: str, language: str) -> list[str]:
    # A fence is longer than any run of backticks in the text could be after they were replaced.
    return [f"```{language}", *(line.replace("```", "'''") for line in shorten(text, _LINES, _CHARACTERS)), "```"]


def _cause_program(cause: Cause) -> list[str]:
    failure = cause.example.failure
    if failure.program and len(failure.program) <= _CHARACTERS:
        ends = "is ended by a signal" if failure.code is Code.CRASHED else "exits with 1"
        sentence = f"It {ends} while the fault is there, and needs nothing but torch and the implementation."
        return [sentence, "", *_block(failure.program, "python")]
    if not failure.program and failure.snippet:
        return _block(failure.snippet, "sh")
    if not failure.case_id:
        return ["There is none: the failure did not repeat."]
    return _block(replaying(cause.example.verdict.cell.op, failure.case_id), "sh")


def _inputs(case: str) -> list[str]:
    """The arguments of a case file, a line each: dtype, shape, and the bits of small tensors."""
    if not case:
        return ["There is no case file; what the text above says of the input is all."]
    try:
        args = json.loads(case)["args"]
    except (ValueError, KeyError, TypeError):
        return ["The case file stands in the report folder."]
    return _block("\n".join(_show_argument(arg) for arg in args), "text")


def _show_argument(arg: object) -> str:
    if isinstance(arg, dict) and "shape" in arg:
        bits = clean(str(arg.get("bits", "")))
        shown = bits if len(bits) <= 160 else f"{bits[:160]}… ({len(bits) // 2} bytes)"
        return f"{arg.get('dtype')} of shape {arg['shape']}: {shown}"
    if isinstance(arg, dict) and len(arg) == 1:
        return str(next(iter(arg.values())))
    return str(arg)
