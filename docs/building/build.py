"""Builds the documentation: `python docs/building/build.py [OUT] [--programs]`, or `tox -e docs [-- --programs]`.

The pages of docs/, of docs/design/ and at the top of the repository are copied to one folder, because Sphinx reads one
folder only, and their links to each other are changed accordingly; so no two of them have one name. Then

1. with `--programs` those of all pages are run (`blocks.py`), which takes a quarter of an hour,
2. Sphinx builds the site, and a warning is an error: an internal link that leads nowhere, a page that the contents do
   not name,
3. links to other sites are counted. They are not followed, because this build uses no network, and it says so.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BUILDING = Path(__file__).resolve().parent
DOCS = BUILDING.parent
ROOT = DOCS.parent
#: Pages at the top of the repository that are part of the site.
TOP = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_LINK = re.compile(r"(?<!!)\[(?P<words>(?:`[^`]*`|[^\[\]`])+)\]\((?P<to>[^)\s]+)\)")
#: A line of the contents that names pages by a pattern. Sphinx warns of one that no page fits yet, so it is left out.
_PATTERN = re.compile(r"^(\w+\*)\n", re.MULTILINE)
_FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def links(text: str) -> list[str]:
    """Where the links of a page lead, without those in programs."""
    return [match["to"] for part in _FENCE.split(text)[::2] for match in _LINK.finditer(part)]


def external(text: str) -> list[str]:
    """The links of a page that lead to other sites."""
    return [to for to in links(text) if "://" in to]


def prepared(page: Path, text: str) -> str:
    """The text of a page as it stands in the one folder that Sphinx reads; a link out of it becomes plain text."""
    text = text.replace("](docs/pictures/", "](pictures/")
    parts = [part if i % 2 else _LINK.sub(lambda m: _moved(page, m), part) for i, part in enumerate(_FENCE.split(text))]
    return _PATTERN.sub(lambda m: m[0] if [*DOCS.glob(f"{m[1]}.md")] else "", "".join(parts))


def _moved(page: Path, match: re.Match[str]) -> str:
    path, _, anchor = match["to"].partition("#")
    if "://" in path or not path:
        return match[0]
    target = (page.parent / path).resolve()
    if target not in pages():
        return match["words"]
    return f"[{match['words']}]({target.name}{'#' if anchor else ''}{anchor})"


def pages() -> list[Path]:
    """Every page of the site, in the repository."""
    return [*sorted(DOCS.glob("*.md")), *sorted(DOCS.glob("design/*.md")), *(ROOT / name for name in TOP)]


def main(words: Sequence[str]) -> int:
    """Builds the site into the folder that is named; returns 0 if all of it went well."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "out", nargs="?", type=Path, default=Path(".tox/docs-site"), help="made anew, or of an earlier build"
    )
    parser.add_argument("--programs", action="store_true", help="run the programs of all pages before")
    options = parser.parse_args(words)
    out = options.out.resolve()
    source = out / "source"
    if out.exists() and not source.exists() and [*out.iterdir()]:
        parser.error(f"{out}: got a folder of something else, need a new one, or that of an earlier build")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(DOCS / "pictures", source / "pictures")
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    for page, text in texts.items():
        (source / page.name).write_text(prepared(page, text), encoding="utf-8")
    wrong = 0
    for page, text in texts.items():
        if (
            options.programs and "```python" in text
        ):  # a process for each page, because some of them change the process for good
            wrong += subprocess.run([sys.executable, str(BUILDING / "blocks.py"), str(page)], check=False).returncode
    command = ["-W", "--keep-going", "-q", "-b", "html", "-c", str(BUILDING), str(source), str(out / "html")]
    wrong += subprocess.run([sys.executable, "-m", "sphinx", *command], check=False).returncode
    elsewhere = sum(len(external(text)) for text in texts.values())
    print(f"internal links: {'see above' if wrong else 'all lead somewhere'}")
    print(f"links to other sites: {elsewhere}, not checked, because this build uses no network")
    print(f"the site is in {out / 'html'}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
