"""The pages are all in the contents, their links lead somewhere, and their lists are those of the code.

`tox -e docs` builds the site and runs the programs of the pages, which takes minutes; what is here takes a second.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

import opassay
from docs.building import blocks, build
from opassay.oracles.verdicts.case import SCHEMA
from opassay.oracles.verdicts.verdict import CHECKED
from opassay.properties.engine.profiles import PROFILES
from opassay.properties.table import PROPERTIES
from opassay.reports.record import RunData

PAGES = {path: path.read_text(encoding="utf-8") for path in build.pages()}


def _page(name: str) -> str:
    return PAGES[build.DOCS / name]


def _headings(text: str) -> list[str]:
    plain = "".join(re.split(r"^```.*?^```", text, flags=re.DOTALL | re.MULTILINE))
    return re.findall(r"^#+ (.+)$", plain, re.MULTILINE)


def _anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    result: Counter[str] = Counter()
    anchors = set()
    for heading in _headings(text):
        view = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", view.lower()).replace(" ", "-")
        anchors.add(f"{slug}-{result[slug]}" if result[slug] else slug)
        result[slug] += 1
    return anchors


def dead_links(path: Path, text: str) -> Iterator[str]:
    """The links of a page to files and headings of the repository that are not there."""
    for to in build.links(text):
        name, _, anchor = to.partition("#")
        target = (path.parent / name).resolve() if name else path
        if "://" in to:
            continue
        if not target.exists() or (anchor and anchor not in _anchors(target.read_text(encoding="utf-8"))):
            yield f"{path.name}: {to}"


@pytest.mark.parametrize("path", [*PAGES, build.ROOT / "tests" / "README.md"], ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    assert list(dead_links(path, path.read_text(encoding="utf-8"))) == []


def test_the_pages_are_no_longer_than_they_may_be() -> None:
    """Words are a budget, as lines are: what a page gains another one gives."""
    words = {path: len(path.read_text(encoding="utf-8").split()) for path in build.DOCS.rglob("*.md")}
    assert sum(words.values()) <= 80_700
    assert words[build.DOCS / "judge_your_kernel.md"] <= 1_800
    assert words[build.DOCS / "from_assert_close.md"] <= 500


def test_a_dead_link_is_found() -> None:
    text = "# Here\n[a](#here) [b](gone.md) [c](gate.md#there)\n```\n[e](gone.md)\n```\n[f](https://x.org/#y)\n"
    assert list(dead_links(build.DOCS / "index.md", text.replace("(#here)", "(#tutorials)"))) == [
        "index.md: gone.md",
        "index.md: gate.md#there",
    ]


def test_the_contents_name_every_page_once() -> None:
    index = _page("index.md")
    named = [
        re.sub(r".*<(\w+)>", r"\1", line)  # a page may have another title there
        for tree in re.findall(r"^```{toctree}\n(.*?)^```", index, re.DOTALL | re.MULTILINE)
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    pages = {path.stem for path in PAGES} - {"index"}
    assert len(pages) == len(PAGES) - 1, "the site has all pages in one folder, so no two may have one name"
    unnamed = {page for page in pages if sum(fnmatch(page, pattern) for pattern in named) != 1}
    assert unnamed == set(), "name the page in a toctree of docs/index.md, and in the list above them"
    assert {name for name in named if "*" not in name} <= pages
    listed = {Path(to).stem for to in build.links(index)}
    assert {page for page in pages if not any("*" in name and fnmatch(page, name) for name in named)} <= listed


def test_every_property_has_a_section_with_its_title() -> None:
    sections = dict(re.findall(r"^### (\w+)\n\n\*(.+?)\.?\*", _page("properties.md"), re.MULTILINE))
    assert {code: title.lower() for code, title in sections.items()} == {
        code: row.title.lower() for code, row in PROPERTIES.items()
    }


def test_every_property_that_one_process_can_ask_has_a_fault_that_it_sees() -> None:
    names = set(re.findall(r"^([A-Z]+\d?) fail OA\d{3}", _page("properties.md"), re.MULTILINE))
    assert set(PROPERTIES) - names == {"FWAD", "COMM"}


def test_the_table_of_profiles_is_the_code() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (.+?) \| (.+?) \|$", _page("profiles.md"), re.MULTILINE
    )
    assert [(name, *map(int, numbers), "same" in inputs, by == "inductor") for name, *numbers, inputs, by in rows] == [
        (name, result.examples, result.compiled, result.interpreted, result.executed, result.fixed, result.inductor)
        for name, result in PROFILES.items()
    ]


def test_the_page_of_outcomes_says_which_are_answers() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \| .+ \| (yes|no) \|$", _page("outcomes.md"), re.MULTILINE)
    assert {name for name, answer in rows if answer == "yes"} == CHECKED


def test_the_python_interface_names_every_public_name() -> None:
    named = re.findall(r"^\.\. (?:auto\w+|py:data):: opassay\.(\w+)$", _page("api.md"), re.MULTILINE)
    named += re.findall(r"^### opassay\.(\w+)$", _page("api.md"), re.MULTILINE)
    assert {*opassay._homes()} == set(named) - {"impl"} | {"pytest"}
    assert max(Counter(named).values()) <= 2


def test_the_page_of_formats_names_every_field_of_a_record() -> None:
    record = _page("formats.md").partition("## The record")[2].partition("## A case file")[0]
    assert set(RunData.__struct_fields__) <= set(re.findall(r"`(\w+)`", record))
    assert f"`{SCHEMA}`" in _page("formats.md")


# ------------------------------------------------------------------------------------------ the programs of a page


PAGE = """
```python
x = 1
print(x, "apple", 0.25)
```

```
7 apple 0.5
```

```python
print("pear OA101", x)
```

```
pear OA102 1
```

<!-- not run: it needs a GPU -->
```python
raise RuntimeError("no GPU")
```

```python
raise ValueError("kept")
```
"""


def test_a_program_that_prints_something_else_or_raises_is_found() -> None:
    results = list(blocks.faults("planted.md", PAGE))
    assert [line.splitlines()[0] for line in results] == ["planted.md:12: printed", "planted.md:25: raised"]
    assert [block.why for block in blocks.blocks(PAGE)] == [None, None, "it needs a GPU", None]


def test_links_between_pages_follow_them_into_one_folder() -> None:
    text = (
        "[a](../ARCHITECTURE.md#words) [b](gate.md) [c `x[0]`](../corpus/bug.py) [d](#here)\n[e](design/tolerance.md)\n"
    )
    moved = build.prepared(build.DOCS / "page.md", text)
    assert moved == "[a](ARCHITECTURE.md#words) [b](gate.md) c `x[0]` [d](#here)\n[e](tolerance.md)\n"
    assert build.prepared(build.ROOT / "README.md", "[a](docs/gate.md)") == "[a](gate.md)"


def test_a_pattern_that_no_page_fits_is_left_out_of_the_contents() -> None:
    assert build.prepared(build.DOCS / "index.md", "gate*\nnothing_like_it*\n") == "gate*\n"
