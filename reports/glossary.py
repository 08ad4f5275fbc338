"""The words of the glossary with their texts, as docs/glossary.md has them; the wheel has a copy of that page."""

from __future__ import annotations

import functools
import re
from importlib import resources

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@functools.cache
def read_glossary() -> dict[str, str]:
    """The text of every word of the glossary, without links; two words that share a text have it each."""
    page = resources.files(__package__).joinpath("glossary.md").read_text(encoding="utf-8")
    texts: dict[str, str] = {}
    for entry in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        words, _, text = entry.partition("\n")
        plain = _LINK.sub(r"\1", re.split(r"^#", text, flags=re.MULTILINE)[0])
        texts |= dict.fromkeys(words.strip().split(", "), " ".join(plain.split()))
    return texts
