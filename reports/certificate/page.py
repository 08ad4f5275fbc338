"""A certificate as a page in Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..text import code_span, group_digits, markdown
from .statement import NOT_MEASURED, Data


def certificate_page(certificate: Data) -> str:
    """The page of a statement."""
    predicate = certificate["predicate"]
    whole = certificate["subject"][0]["digest"]["sha256"]
    judged, worst = predicate["judged"], predicate["judged"]["largest_error"]
    lines = [
        f"# {markdown(predicate['op'])}, {markdown(predicate['subject'])} on {markdown(predicate['device'])}",
        "",
        "What was asked of the op, and what came out. It holds for the inputs that were drawn, on this machine with",
        "these versions, and says nothing of others. `opassay certificate --check` says what of it no longer holds.",
        "",
        f"- outcomes: {_pairs(predicate['outcomes'])}",
        f"- judged: {group_digits(judged['elements'])} elements in {group_digits(predicate['asked']['samples'])}"
        f" samples, {group_digits(judged['not_judged'])} not judged",
        f"- largest error/bound: {_figure(worst['error_over_bound'])} ({_figure(worst['ulp'])} ulp at most),"
        f" {code_span(worst['cell'])} {markdown(worst['where'])} {markdown(worst['path'])}".rstrip(),
        f"- mutation score: {_other(predicate['mutation'])}",
        f"- second opinion: {_other(predicate['second_opinion'])}",
        f"- digest of its sources: {code_span(whole)}",
        "",
        *_evidence_lines(predicate),
        "",
        *_ground_lines(predicate),
    ]
    return "\n".join(lines) + "\n"


def _evidence_lines(predicate: Data) -> list[str]:
    """What was asked, of which inputs, and how sharply it was looked at."""
    judged = predicate["judged"]
    return [
        "## Asked",
        "",
        *_cells_table(predicate["cells"], predicate["asked"]["dtypes"], predicate["asked"]["properties"]),
        "",
        f"Not asked: {', '.join(map(markdown, predicate['asked']['not_asked'])) or 'nothing'}.",
        "",
        "## How small an error would have been seen",
        "",
        *_table(
            ("dtype", "sharpest cell, median (ulp)", "bluntest cell, median (ulp)", "widest (ulp)"),
            [(dtype, *_widths(widths)) for dtype, widths in judged["detectability"].items()],
        ),
        "",
        "## Inputs",
        "",
        *_table(
            ("regime", "elements judged", "not judged"),
            [
                (name, *map(group_digits, (of["judged"], of["not_judged"])))
                for name, of in sorted(judged["regimes"].items())
            ],
        ),
        "",
        *(f"- {markdown(size)}" for size in judged["sizes"]),
    ]


def _ground_lines(predicate: Data) -> list[str]:
    """What the claim rests on: the contract, the functions, the versions and the source."""
    return [
        "## Contract",
        "",
        *_contract_table(predicate["contract"]),
        "",
        "## Elementary functions, swept",
        "",
        *_sweeps(predicate["functions"], predicate["sweeps"]),
        "",
        "## Versions",
        "",
        *(f"- {markdown(name)}: {markdown(version)}" for name, version in sorted(predicate["versions"].items())),
        f"- record: {code_span(predicate['record']['sha256'])}, profile {markdown(predicate['record']['profile'])},"
        f" seed {predicate['record']['seed']}, {markdown(predicate['record']['started'])}",
        "",
        "## Sources",
        "",
        "SHA-256 of whole files."
        + ("" if predicate["record"]["source_known"] else " The record does not say that these are what was judged."),
        "",
        *_table(
            ("part", "file", "sha256"),
            [
                (part, file, files[file])
                for part, files in sorted(predicate["sources"].items())
                for file in sorted(files)
            ],
        ),
    ]


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    if not rows:
        return ["None."]
    head = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    return [*head, *("| " + " | ".join(map(markdown, row)) + " |" for row in rows)]


def _cells_table(cells: Sequence[Mapping[str, Any]], dtypes: Sequence[str], titles: Mapping[str, str]) -> list[str]:
    """A row per property: its outcome and its largest error/bound in every dtype."""
    by_place = {(cell["property"], cell["dtype"]): cell for cell in cells}
    rows = [
        (code, title, *(_outcome_text(by_place.get((code, dtype), {})) for dtype in dtypes))
        for code, title in titles.items()
    ]
    return _table(("property", "what", *dtypes), rows)


def _outcome_text(cell: Mapping[str, Any]) -> str:
    ratio = f" {_figure(cell['error_over_bound'])}" if cell.get("elements") else ""
    return f"{cell.get('outcome', '')}{ratio}"


def _contract_table(contract: Mapping[str, Mapping[str, Any]]) -> list[str]:
    rows = [
        (
            dtype, allowed["accumulate"], _pairs(allowed["ulps"]) or "none", _figure(allowed["roundings"]),
            ", ".join(allowed["algorithms"]) or "none", "zero" if allowed["flush"] else "kept",
        )
        for dtype, allowed in contract.items()
    ]  # fmt: skip
    headings = ("dtype", "accumulates in", "functions (ulp)", "roundings per operation", "algorithms", "subnormals")
    return _table(headings, rows)


def _sweeps(functions: Sequence[str], sweeps: Any) -> list[str]:
    if not functions:
        return ["The formula names none."]
    if sweeps == NOT_MEASURED:
        return [f"{', '.join(map(code_span, functions))}: {NOT_MEASURED}."]
    rows = [
        (row["function"], row["dtype"], f"{'all ' if row['complete'] else ''}{group_digits(row['inputs'])}",
         _figure(row["ulp"]), _figure(row["contract"]))
        for row in sweeps
    ]  # fmt: skip
    return _table(("function", "dtype", "arguments", "worst (ulp)", "contract (ulp)"), rows)


def _widths(widths: Mapping[str, Any]) -> tuple[str, str, str]:
    names = ("median_of_sharpest_cell_ulp", "median_of_bluntest_cell_ulp", "widest_ulp")
    sharpest, bluntest, widest = (_figure(widths[name]) for name in names)
    return sharpest, bluntest, widest


def _pairs(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_figure(value)}" for name, value in sorted(table.items()))


def _other(measurement: Any) -> str:
    return markdown(measurement) if isinstance(measurement, str) else _pairs(measurement)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
