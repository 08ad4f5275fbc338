"""`opassay explain`: what a word means: of a report, of the command line, of a contract, of the glossary."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click

from ....oracles.verdicts.verdict import Code, Outcome
from ....properties.engine.profiles import PROFILES
from ....properties.names import SUBJECTS, nearest_of
from ....properties.table import FORMER_NAMES, KINDS, PROPERTIES, TABLE, property_of
from ... import exit_codes
from ...causes.severity import Severity
from ...explain import TEXTS, WIDTH, explain, paragraphs, read_glossary
from ...schemas.documents import schema_of
from ...text import GLYPHS
from ..commands import COMMANDS
from ..host import Stop
from ..lazy import Branch, help_lines

#: The codes that a cell of each outcome has.
_CODES = {
    Outcome.VERIFIED: "OA100", Outcome.FAIL: "OA101 to OA118", Outcome.UNSTABLE: "OA101 to OA118",
    Outcome.WEAK: "OA201 to OA204", Outcome.UNSUPPORTED: "OA301 to OA304, OA306", Outcome.REFUSED: "OA305",
    Outcome.NOT_RUN: "OA401 to OA405", Outcome.CRASH: "OA501", Outcome.TIMEOUT: "OA502",
    Outcome.ERROR: "OA503 to OA505",
}  # fmt: skip


@click.command("explain")
@click.argument("words", nargs=-1, metavar="[NAME]", shell_complete=lambda *at: _complete_topic(at[-1]))
def explain_command(words: tuple[str, ...]) -> int:
    """Say what NAME means: a reason code (OA101), a property (VJP), a question of judge (FWD:offset), a contract
    (torch+flush), a profile, an outcome, a subject, a severity, a command, or a word of the glossary (accept set).

    Without NAME, list all.
    \f

    A name may have several words: `not run` is an outcome. Raises Stop where there is none.
    """
    if not words:
        _list_all()
        return exit_codes.OK
    name = " ".join(words)
    topics = _topics() if name.upper() in _quick_names() else [*_topics(), *_contracts()]
    # A name may mean two things: one text for each.
    texts = [text for topic, text in topics if topic.lower() == name.lower()] or _describe_combination(name)
    if not texts:
        hint = nearest_of(name, list(dict.fromkeys(topic for topic, _ in topics)))
        text = f"unknown name: got {name[:100]!r}{hint}, need a name such as OA100; `opassay explain` lists them"
        raise Stop(exit_codes.USAGE, text)
    click.echo("\n\n".join(texts))
    return exit_codes.OK


def _quick_names() -> set[str]:
    """Names of codes and questions. No contract has one of them, and contracts take long to import."""
    return {*(name for code in Code for name in (code.value, code.name)), *TABLE, *FORMER_NAMES}


def _contracts() -> list[tuple[str, str]]:
    """Contracts and allowances with their texts."""
    from .contracts import contract_texts

    return list(contract_texts().items())


def _describe_combination(name: str) -> list[str]:
    """The text of a contract with allowances, such as "torch+flush"; none where it is no such name."""
    from .contracts import describe_contract

    return [describe_contract(name)] if "+" in name else []


def _complete_topic(begun: str) -> list[str]:
    """Topics of one word that begin so."""
    topics = dict.fromkeys(topic for topic, _ in (*_topics(), *_contracts()))
    return [topic for topic in topics if topic.lower().startswith(begun.lower()) and " " not in topic]


def _topics() -> list[tuple[str, str]]:
    """Every name that can be explained, with its text."""
    # A code is known by its value, as reports print it, and by its name, as a reader of the source knows it.
    codes = [(name, explain(code)) for code in Code for name in (code.value, code.name)]
    return [
        *codes,
        *((name, describe_question(name)) for name in TABLE),
        *((former, describe_question(name)) for former, name in FORMER_NAMES.items()),
        *((name, describe_profile(name)) for name in PROFILES),
        *((str(outcome), describe_outcome(outcome)) for outcome in Outcome),
        *((name, describe_subject(name)) for name in SUBJECTS),
        *((str(severity), describe_severity(severity)) for severity in Severity),
        *_commands(),
        *((word, paragraphs(f"{word}, a word of the glossary", text)) for word, text in read_glossary().items()),
        *_fields(),
    ]


def _fields() -> Iterator[tuple[str, str]]:
    """The fields of a judgement's line of JSON."""
    for table in schema_of("judgement")["$defs"].values():
        for name, rule in table.get("properties", {}).items():
            yield name, paragraphs(f"{name}, a field of a judgement's JSON", rule["description"])


def _commands() -> Iterator[tuple[str, str]]:
    """The commands, one of a group by its last word, too."""
    for name, row in COMMANDS.items():
        if isinstance(row, Branch):
            yield name, describe_command(name, row.about)
            for last, (_, about) in row.table.items():
                text = describe_command(f"{name} {last}", about)
                yield from ((f"{name} {last}", text), (last, text))
        else:
            yield name, describe_command(name, row[1])


def describe_question(name: str) -> str:
    """A row of the table of questions as lines for a terminal: what is asked, and, of an op, how, and a fault."""
    row, texts, kind = TABLE[name], [], "asked of a candidate"
    if name in PROPERTIES:
        kind = "a property"
        counts = ", ".join(f"{samples_of(name, profile)} in {profile}" for profile in PROFILES)
        effort = f"Samples per cell: about {counts}; dtypes: {', '.join(row.dtypes)}."
        fault = f"It sees, for example: {TEXTS['faults'][name]}"
        texts = [fault, effort, f"Ask it alone: opassay run OP --property {name}"]
    elif ":" in name:
        kind = f"a kind of {property_of(name)} in opassay judge"
    again = f"Ask {'a candidate' if texts else 'it alone'}: opassay judge CANDIDATE --spec SPEC -k {name}"
    return paragraphs(f"{name}, {kind}: {row.title}", TEXTS["questions"][name], *texts, again)


def samples_of(name: str, profile: str) -> int:
    """How many samples a cell of a property has in a profile, before those that are added for large sizes."""
    return max(1, round(PROPERTIES[name].sampling.effort * PROFILES[profile].examples))


def describe_profile(name: str) -> str:
    """A profile as lines for a terminal: what it is for, and how many samples it takes."""
    profile = PROFILES[name]
    figures = (
        f"A cell has {profile.examples} samples, more or fewer as its property asks; of compiled code at most"
        f" {profile.compiled}, of interpreted kernels {profile.interpreted}, of kernels as PTX {profile.executed}. Take"
        " another number with --max-examples."
    )
    return paragraphs(f"{name}, a profile", TEXTS["profiles"][name], figures, f"opassay run OP --profile {name}")


def describe_outcome(outcome: Outcome) -> str:
    """An outcome as lines for a terminal."""
    text = TEXTS["outcomes"][outcome]
    text = f"{text[:1].upper()}{text[1:]}."
    return paragraphs(f"{outcome}, an outcome of a cell ({GLYPHS[outcome]})", text, f"Its codes: {_CODES[outcome]}")


def describe_subject(name: str) -> str:
    """A subject as lines for a terminal."""
    text = "A subject is an implementation under judgement: the same questions are asked of each."
    return paragraphs(f"{name}, a subject", TEXTS["subjects"][name], text, f"opassay run OP --subject {name}")


def describe_severity(severity: Severity) -> str:
    """A severity as lines for a terminal."""
    order = "From the gravest to the least: " + ", ".join(Severity) + "."
    return paragraphs(f"{severity}, a severity of a failure", TEXTS["severities"][severity], order)


def describe_command(words: str, about: str) -> str:
    """A command as lines for a terminal."""
    return paragraphs(f"{words}, a command", about, f"Its options: opassay {words} -h")


def _list_all() -> None:
    from .contracts import allowance_names, contract_lines

    for code in Code:
        click.echo(f"{code}  {explain(code).splitlines()[0].partition(': ')[2]}")
    tables = {
        "properties": {name: row.title for name, row in PROPERTIES.items()},
        "kinds of opassay judge": {name: row.title for name, row in KINDS.items()},
        "profiles": {name: _first_sentence(text) for name, text in TEXTS["profiles"].items()},
        "outcomes": TEXTS["outcomes"],
        "subjects": {name: _first_sentence(text) for name, text in TEXTS["subjects"].items()},
        "severities": {name: _first_sentence(text) for name, text in TEXTS["severities"].items()},
        "contracts": contract_lines(),
        "commands": help_lines(COMMANDS),
    }
    for title, rows in tables.items():
        click.echo(f"\n{title}")
        for name, text in rows.items():
            click.echo(f"  {name:<13} {text}")
    for title, names in (("allowances", allowance_names()), ("words of the glossary", read_glossary())):
        click.echo(
            f"\n{title}\n{textwrap.fill(', '.join(sorted(names)), WIDTH, initial_indent='  ', subsequent_indent='  ')}"
        )


def _first_sentence(text: str) -> str:
    return text.partition(". ")[0].rstrip(".")
