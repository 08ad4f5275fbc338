"""One cause as a page in Markdown that whoever maintains the implementation can act on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache

import jinja2

from ...oracles.verdicts.verdict import Code, clean, quantity, replaying, shorten
from ..record import Run
from ..templates import templates_of
from ..text import code_span, markdown
from .grouping import Cause

#: Lines and characters of a program or a case that a page shows; longer ones stand in the case file alone.
_LINES, _CHARACTERS = 200, 20_000


def page(cause: Cause, run: Run) -> str:
    """The page: what is wrong, how severe, the smallest input, a program, versions, and every cell that shows it."""
    failure = cause.example.failure
    return _template().render(
        cause=cause,
        run=run,
        failure=failure,
        share=cause.worst.failure.signs.share or 0.0,
        program=_cause_program(cause),
        inputs=_inputs(failure.case),
        most_cells=40,
    )


@cache
def _template() -> jinja2.Template:
    templates = templates_of(__package__, escaped=False, quantity=quantity, spans=_spans, block=_block)
    return templates.get_template("page.txt")


def index(causes: list[tuple[str, Cause]], run: Run) -> str:
    """The list of the pages: a line per cause, with the name of its file."""
    lines = [f"- [{markdown(cause.line)}]({name})" for name, cause in causes]
    failed_cells = {key for _, cause in causes for key in cause.cells}
    head = f"# {quantity(len(causes), 'cause')} of {len(failed_cells)} failed cells"
    return "\n".join([head, "", f"profile {markdown(run.profile)}, seed {run.seed}", "", *lines]) + "\n"


def _spans(names: Sequence[str]) -> str:
    return ", ".join(code_span(name) for name in names)


def _block(text: str, language: str) -> str:
    # A fence is longer than any run of backticks in the text could be after they were replaced.
    lines = (line.replace("```", "'''") for line in shorten(text, _LINES, _CHARACTERS))
    return "\n".join([f"```{language}", *lines, "```"])


def _cause_program(cause: Cause) -> str:
    failure = cause.example.failure
    if failure.program and len(failure.program) <= _CHARACTERS:
        ends = "is ended by a signal" if failure.code is Code.CRASHED else "exits with 1"
        sentence = f"It {ends} while the fault is there, and needs nothing but torch and the implementation."
        return f"{sentence}\n\n{_block(failure.program, 'python')}"
    if not failure.case_id:
        return "There is none: the failure did not repeat."
    why = "" if failure.program else failure.snippet.partition("\n")[0]
    return _block(f"{why}\n{replaying(cause.example.verdict.cell.op, failure.case_id)}".strip(), "sh")


def _inputs(case: str) -> str:
    """The arguments of a case file, a line each: dtype, shape, and the bits of small tensors."""
    if not case:
        return "There is no case file; what the text above says of the input is all."
    try:
        args = json.loads(case)["args"]
    except (ValueError, KeyError, TypeError):
        return "The case file stands in the report folder."
    return _block("\n".join(_show_argument(arg) for arg in args), "text")


def _show_argument(arg: object) -> str:
    if isinstance(arg, dict) and "shape" in arg:
        bits = clean(str(arg.get("bits", "")))
        text = bits if len(bits) <= 160 else f"{bits[:160]}… ({len(bits) // 2} bytes)"
        return f"{arg.get('dtype')} of shape {arg['shape']}: {text}"
    if isinstance(arg, dict) and len(arg) == 1:
        return str(next(iter(arg.values())))
    return str(arg)
