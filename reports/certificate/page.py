"""A certificate as a page in Markdown; the words of the page stand in `page.txt`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..templates import templates_of
from ..text import group_digits
from .statement import Data


def certificate_page(certificate: Data) -> str:
    """The page of a statement."""
    predicate = certificate["predicate"]
    sources = predicate["sources"]
    judged = predicate["judged"]
    page = templates_of(__package__, escaped=False, pairs=_pairs, figure=_figure).get_template("page.txt")
    return page.render(
        predicate,
        digest=certificate["subject"][0]["digest"]["sha256"],
        outcome_rows=_outcome_rows(predicate),
        width_rows=[(dtype, *_widths(widths)) for dtype, widths in judged["detectability"].items()],
        regime_rows=[
            (name, group_digits(of["judged"]), group_digits(of["not_judged"]))
            for name, of in sorted(judged["regimes"].items())
        ],
        contract_rows=[(dtype, *_promises(allowed)) for dtype, allowed in predicate["contract"].items()],
        source_rows=[(part, file, sources[part][file]) for part in sorted(sources) for file in sorted(sources[part])],
    )


def _outcome_rows(predicate: Data) -> list[tuple[str, ...]]:
    """A row per property: its outcome and its largest error/bound in every dtype."""
    texts = {(cell["property"], cell["dtype"]): _outcome_text(cell) for cell in predicate["cells"]}
    dtypes = predicate["asked"]["dtypes"]
    return [
        (code, title, *(texts.get((code, dtype), "") for dtype in dtypes))
        for code, title in predicate["asked"]["properties"].items()
    ]


def _outcome_text(cell: Mapping[str, Any]) -> str:
    return f"{cell['outcome']} {_figure(cell['error_over_bound'])}" if cell.get("elements") else str(cell["outcome"])


def _widths(widths: Mapping[str, Any]) -> list[str]:
    names = ("median_of_sharpest_cell_ulp", "median_of_bluntest_cell_ulp", "widest_ulp")
    return [_figure(widths[name]) for name in names]


def _promises(allowed: Mapping[str, Any]) -> tuple[str, ...]:
    """What a contract promises in one dtype, as a row."""
    functions, algorithms = _pairs(allowed["ulps"]) or "none", ", ".join(allowed["algorithms"]) or "none"
    subnormals = "zero" if allowed["flush"] else "kept"
    return allowed["accumulate"], functions, _figure(allowed["roundings"]), algorithms, subnormals


def _pairs(table: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {_figure(value)}" for name, value in sorted(table.items()))


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
