"""A dossier as the text of an issue, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from .dossier import PRESENT, Attempt, Dossier


def write_issue(dossier: Dossier) -> str:
    """The text that a person files; it ends with a line break."""
    return "\n\n".join(_parts(dossier)) + "\n"


def _parts(dossier: Dossier) -> Iterator[str]:
    yield f"# {dossier.heading.title}"
    if dossier.environment:
        yield f"Run with `{' '.join(f'{key}={value}' for key, value in dossier.environment.items())}`."
    yield _fence("python", dossier.program)
    latest = [each for each in dossier.attempts if each.outcome == PRESENT] or list(dossier.attempts)
    if latest:
        attempt = latest[-1]
        other = f", by another program of the same fault, `{attempt.by}`" if attempt.by else ""
        yield f"**{dossier.heading.library} {attempt.version}**{other}:"
        yield _fence("text", attempt.output.partition("\n  opassay ")[0])
    yield f"**Right value.** {dossier.truth}"
    if dossier.no_twin:
        yield f"**No twin.** {dossier.no_twin}"
    yield f"**Mechanism.** {dossier.mechanism}"
    yield f"**Does it matter?** {dossier.heading.harm}"
    if dossier.umbrella:
        yield f"**Umbrella.** {dossier.umbrella}"
    yield "**Versions**"
    yield "\n".join(["| version | date | outcome |", "|---|---|---|", *map(_row, dossier.attempts)])
    yield "**Regression test**"
    yield _fence("python", dossier.test)
    yield dossier.search.text
    words = "; ".join(f'"{each}"' for each in dossier.search.words)
    yield f"Duplicates were looked for on {dossier.search.day.isoformat()} by these words: {words}."


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```"


def _row(attempt: Attempt) -> str:
    why = f": {attempt.output}" if not attempt.version else f", by `{attempt.by}`" if attempt.by else ""
    return f"| {attempt.version or '—'} | {attempt.day} | {attempt.outcome}{why} |"
