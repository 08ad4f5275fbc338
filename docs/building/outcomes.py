"""Writes docs/outcomes.md from the tables of the code: `python docs/building/outcomes.py > docs/outcomes.md`."""

from __future__ import annotations

import textwrap

from opassay.oracles.verdicts.explanations import EXPLANATIONS
from opassay.oracles.verdicts.verdict import CHECKED, Code
from opassay.reports.exit_codes import OK, PRIORITY
from opassay.reports.explain import OUTCOMES

#: What each exit code of a command means; the numbers are those of `opassay.reports.exit_codes`.
EXIT_CODES = {
    0: "everything that was asked holds",
    1: "an op failed: an output lies outside its bound, or a promise is broken; for the gate: a budget is exceeded or"
    " coverage is lost",
    2: "usage or configuration: an unknown name, a broken file, a plugin that does not load, a wrong declaration of"
    " an op",
    3: "the framework itself broke, or a file could not be written; this says nothing about any op",
    4: "incomplete: a crash, a timeout, a missing device or shard",
    5: "nothing was selected, or nothing that was selected could be checked",
    130: "interrupted",
}

_HEAD = """# Outcomes, reason codes and exit codes

Every [cell](glossary.md#cell) ends with one outcome and one reason code, and every command with one exit code. This
page lists all of them. `opassay explain OA101` prints what is said here about a code or an outcome.

`python docs/building/outcomes.py > docs/outcomes.md` writes this page anew.
"""


def page() -> str:
    """The text of docs/outcomes.md."""
    missing = {OK, *PRIORITY} ^ set(EXIT_CODES)
    if missing:
        raise ValueError(f"exit codes: got {sorted(missing)} in one table alone, need the same codes in both")
    return "\n".join([_HEAD, _outcomes(), _exit_codes(), *map(_reason, Code)])


def _outcomes() -> str:
    rows = [f"| `{known}` | {text} | {'yes' if known in CHECKED else 'no'} |" for known, text in OUTCOMES.items()]
    head = ["## Outcomes", "", "| outcome | meaning | was the question answered? |", "|---|---|---|"]
    return "\n".join([*head, *rows, ""])


def _exit_codes() -> str:
    codes = ", ".join(map(str, PRIORITY))
    head = [
        "## Exit codes",
        "",
        "`opassay run` and `opassay gate` end with one of these. Where several apply, the first of this list is given:",
        f"{codes}. Other commands use the same numbers with the meaning that their `--help` states.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    rows = [f"| {code} | {text} |" for code, text in EXIT_CODES.items()]
    return "\n".join([*head, *rows, "", "## Reason codes", ""])


def _reason(code: Code) -> str:
    explanation = EXPLANATIONS[code]
    body = [textwrap.fill(explanation.meaning, 120), "", textwrap.fill(f"Look at: {explanation.look_at}", 120), ""]
    return "\n".join([f"### {code}", "", f"**{explanation.title}** (`Code.{code.name}`)", "", *body])


if __name__ == "__main__":
    print(page(), end="")
