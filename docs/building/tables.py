"""The rows of the tables that the built site filters, made of the data beside the pages.

A page of the site has such a table where there is data of its name: `docs/league.json`, or `docs/tables/kernels.txt`,
which has tables of Markdown below headings. Rows come as a script and not as JSON, because a browser reads no other
file of a site that is opened from a disk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

DOCS = Path(__file__).resolve().parents[1]
_MARKDOWN = MarkdownIt("commonmark", {"html": False})

Row = dict[str, Any]


def rows_of_findings(data: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each finding, each access that wraps, and each loss."""
    for each in data["findings"]:
        figures, tried = each["figures"], each["tried"]
        about = f"`benchmarks/findings/{each['name']}.py`, {figures['date']}, {each['library']} {figures['version']}"
        last = f"tried {tried['day']} with {each['library']} {tried['version'] or '(none)'}: {tried['outcome']}"
        text = f"{each['text']}\n\n{about}; {last}\n\n```\n{figures['text']}\n```"
        yield _row(
            each["name"], each["title"], text, library=each["library"], kind=each["kind"], severity=each["severity"]
        )
    for each in data["far"]["wraps"]:
        text = f"First access that is wrong: {each['access']}\n\nWhat 32 bits did not hold: {each['product']}"
        yield _row(
            "", f"`{each['call']}`", text, library=each["library"], kind="wraps beyond 2^31 elements", severity=""
        )
    for each in data["losses"]:
        yield _row("", each["of"], each["why"], library="torch", kind="loss on CPUs", severity="")


def rows_of_league(data: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each kernel and dtype, with the causes of red ones."""
    for each in data["kernels"]:
        dtype = each.get("dtype", "float32")
        causes = [one for one in data["causes"] if one["library"] == each["library"] and each["call"] in one["calls"]]
        red = each["verdict"] not in ("accepted", "weak", "error")
        lines = [
            ("spec", f"`{each.get('meaning', '')}`"), ("contract", each.get("contract", "")),
            ("keeps", each.get("arithmetic", "")),
            ("sees", f"errors from {each['sees']:g} ulp" if each.get("sees") else ""),
            ("elements", f"{each.get('elements', 0):,}"), ("error", each.get("error", "")),
            ("weak", ", ".join(map(str, each.get("weaknesses", ())))), ("where", " ".join(each.get("where", ()))),
            ("questions", ", ".join(one["question"] for one in each.get("causes", ()))),
            ("judged", data["how"].get(each["library"], "")), ("day", each.get("day", "")),
        ]  # fmt: skip
        if fates := data.get("mutants", {}).get(f"{each['call']} {dtype}"):
            lines.append(("mutants", f"{fates[0]} of {sum(fates)} refused"))
        text = "\n".join(f"- {name}: {value}" for name, value in lines if value)
        for one in causes if red else ():
            also = f" It is the finding [{one['finding']}](findings.html#{one['finding']})." if one["finding"] else ""
            text += f"\n\n**{one['kind']}**, `{one['name']}`: {one['why']}{also}\n\n```\n{one['program'].strip()}\n```"
        yield _row("", f"`{each['call']}`", text, library=each["library"], verdict=each["verdict"], dtype=dtype)


def _row(name: str, title: str, text: str, **facets: str) -> Row:
    """A row: what stands in it, what it is filtered by, and what it opens to, as HTML."""
    # What opens a row may hold no link.
    head = re.sub(r"</?a\b[^>]*>", "", _MARKDOWN.renderInline(title))
    return {"name": name, "title": head, "text": _MARKDOWN.render(text), "facets": facets}


#: Values of a column by which rows are filtered, at most, and their longest length.
_MOST, _LONGEST = 16, 24
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)")


def rows_of_text(text: str) -> Iterator[Row]:
    """A row for each row of tables of Markdown, filtered by the heading above and by columns that have few values."""
    part, heads, cells = "", list[str](), list[tuple[str, dict[str, str]]]()
    for line in text.splitlines():
        if line.startswith("#"):
            part, heads = line.lstrip("# "), []
        elif line.startswith("|"):
            columns = [column.strip() for column in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not heads:
                heads = [head or f"column {i + 1}" for i, head in enumerate(columns)]
            elif not set("".join(columns)) <= {"-", ":"}:
                cells.append((part, dict(zip(heads, columns, strict=True))))
        elif not line:
            heads = []
    values: dict[str, set[str]] = {}
    for _, each in cells:
        for name, value in [*each.items()][1:]:
            values.setdefault(name, set()).add(value)
    facets = [name for name, some in values.items() if 1 < len(some) <= _MOST and max(map(len, some)) <= _LONGEST][:4]
    for part, each in cells:
        title, *rest = each.items()
        lines = [f"- {name}: {_plain(value)}" for name, value in rest if value]
        chosen = {"part": part, **{name: each.get(name, "") for name in facets}}
        yield _row("", _plain(title[1]), "\n".join(lines), **chosen)


def _plain(cell: str) -> str:
    """A cell, of whose links those to pages of the site and to other sites are kept."""

    def link(match: re.Match[str]) -> str:
        words, to = match.groups()
        page = Path(to.partition("#")[0])
        return match[0] if "://" in to else f"[{words}]({page.stem}.html)" if page.suffix == ".md" else words

    return _LINK.sub(link, cell.replace("\\|", "|"))


def page_names() -> list[str]:
    """The pages that have such a table."""
    return [*_OF_DATA, *(path.stem for path in (DOCS / "tables").glob("*.txt"))]


def rows_of_page(name: str) -> list[Row]:
    """The rows of a page's table."""
    if name in _OF_DATA:
        return [*_OF_DATA[name](json.loads((DOCS / f"{name}.json").read_text(encoding="utf-8")))]
    return [*rows_of_text((DOCS / "tables" / f"{name}.txt").read_text(encoding="utf-8"))]


#: Pages whose tables are made of JSON.
_OF_DATA = {"findings": rows_of_findings, "league": rows_of_league}


def write_scripts(folder: Path) -> None:
    """Write the rows of each page into a folder of the site, as `window.ROWS`."""
    for name in page_names():
        text = json.dumps(rows_of_page(name), ensure_ascii=False)
        (folder / f"{name}.rows.js").write_text(f"window.ROWS = {text};\n", encoding="utf-8")
