"""Dossiers: what a library's maintainers need of a finding, read from the files of a checkout.

A dossier is a TOML file in `corpus/upstream/`. Title, library and who is hurt are read from the docstring of the
finding's own program, of the same name in `benchmarks/findings/`, and what came at which version from `attempts.json`
beside the dossier, which a command writes, and from the figures of that program. So each fact stands in one place.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

DOSSIERS, FINDINGS = Path("corpus", "upstream"), Path("benchmarks", "findings")
ATTEMPTS, FIGURES = DOSSIERS / "attempts.json", FINDINGS / "figures.json"
PRESENT, FIXED, NOT_RUN, BROKEN = "present", "fixed", "not run", "broken"
#: The keys of a dossier's file, and whether it must have them.
KEYS: Mapping[str, bool] = {
    "program": True, "truth": True, "mechanism": True, "test": True, "upstream": True, "words": True, "searched": True,
    "no_twin": False, "umbrella": False, "environment": False,
}  # fmt: skip
_THREAD = re.compile(r"\[([\w.-]+#\d+)\]\(https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+\)")


class DossierError(ValueError):
    """A dossier is not there, or its file says something else than a dossier."""


@dataclass(frozen=True)
class Heading:
    """What the finding's own program says: the distribution at fault, a title, and who is hurt."""

    library: str
    title: str
    harm: str


@dataclass(frozen=True)
class Attempt:
    """What came of a program at one version.

    Attributes:
        version: of the library; empty where it was not installed. day: an ISO date.
        outcome: `PRESENT`, `FIXED`, `NOT_RUN` or `BROKEN`. output: by the program, or why it was not run.
        by: the file of another program than the dossier's.
    """

    version: str
    day: str
    outcome: str
    output: str
    by: str = ""


@dataclass(frozen=True)
class Search:
    """What is known of reports that others made: a paragraph with links, the words of the search, and its date."""

    text: str
    words: tuple[str, ...]
    day: date

    @property
    def threads(self) -> list[str]:
        """The threads that the text links, as "repository#number"."""
        return _THREAD.findall(self.text)


@dataclass(frozen=True)
class Dossier:
    """All that is said to a library of one finding.

    Attributes:
        program: imports the library at fault alone, prints what came and what is right, and ends with 1 while the fault
            is there. environment: variables that it needs.
        truth: the closed form, or from where else the right value is known.
        no_twin: why neither float64 nor gradcheck nor a stable formula can see it; empty where the program shows one.
        mechanism: one sentence. umbrella: to which class of an umbrella issue it belongs; empty if to none.
        test: the regression test, in the library's idiom.
    """

    name: str
    heading: Heading
    program: str
    environment: Mapping[str, str]
    truth: str
    no_twin: str
    mechanism: str
    umbrella: str
    test: str
    search: Search
    attempts: tuple[Attempt, ...] = field(default=())


def list_dossiers(tree: Path) -> list[str]:
    """The dossiers of a checkout."""
    return sorted(path.stem for path in (tree / DOSSIERS).glob("*.toml"))


def read_dossier(tree: Path, name: str) -> Dossier:
    """The dossier of a finding; raises `DossierError` where it is not there or lacks something."""
    path = tree / DOSSIERS / f"{name}.toml"
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DossierError(
            f"name={name!r} has no dossier: need one of {', '.join(list_dossiers(tree)) or 'none'}"
        ) from None
    except tomllib.TOMLDecodeError as err:
        raise DossierError(f"{path}: {err}") from err
    if wrong := [key for key, needed in KEYS.items() if needed and not table.get(key)] + sorted(set(table) - set(KEYS)):
        raise DossierError(f"{path}: keys must be those of a dossier; missing, empty or unknown: {', '.join(wrong)}")
    return Dossier(
        name, _heading(tree / FINDINGS / f"{name}.py"),
        environment=table.get("environment", {}),
        search=Search(table["upstream"].strip(), tuple(table["words"]), table["searched"]),
        attempts=tuple(_attempts(tree, name)),
        **{key: table.get(key, "").strip() for key in ("program", "truth", "no_twin", "mechanism", "umbrella", "test")},
    )  # fmt: skip


def _heading(path: Path) -> Heading:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    title, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
    libraries = [
        str(ast.literal_eval(node.value)[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("(LIBRARY, VERSION")
    ]
    if len(libraries) != 1:
        raise DossierError(f"{path}: says LIBRARY, VERSION = ... {len(libraries)} times, need once")
    harm = [part.removeprefix("**Does it matter?** ") for part in text.split("\n\n") if "**Does it matter?**" in part]
    return Heading(libraries.pop(), title, "\n\n".join(harm))


def _attempts(tree: Path, name: str) -> list[Attempt]:
    """The attempts of the dossier's program, and those of the finding's at other versions."""
    own = [Attempt(**each) for each in _json(tree / ATTEMPTS).get(name, [])]
    figures = _json(tree / FIGURES).get("figures", {}).get(name)
    if figures is None or figures["version"] in {each.version for each in own}:
        return own
    by = (FINDINGS / f"{name}.py").as_posix()
    return [Attempt(figures["version"], figures["date"], PRESENT, figures["text"], by), *own]


def store_attempt(tree: Path, name: str, attempt: Attempt) -> None:
    """Store an attempt in place of the former one of the same version; one without a version until there is another."""
    records = _json(tree / ATTEMPTS)
    others = [each for each in records.get(name, []) if each["version"] not in ("", attempt.version)]
    if others and not attempt.version:
        return
    records[name] = sorted([*others, asdict(attempt)], key=lambda each: [len(each["version"]), each["version"]])
    text = json.dumps(dict(sorted(records.items())), indent=1, ensure_ascii=False) + "\n"
    (tree / ATTEMPTS).write_text(text, encoding="utf-8")


def _json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}
