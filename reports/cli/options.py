"""The options that commands share: which cells they ask about, how, and in which places; and what follows from them.

The expression of `-k` has words joined by `and`, `or`, `not` and parentheses, as pytest has it. It is read by recursive
descent, one function per level of binding. The parser is ours, because pytest's own one compiles the expression to
Python code, and recurses without a limit.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ...oracles.verdicts.verdict import AXES, Cell
from ...properties.catalog import CATALOG
from ...properties.engine.plan import DTYPES, Selection, in_shard, plan
from ...properties.engine.profiles import PROFILES, default_seed
from ...properties.names import COMMS, DEVICES, FABRICS, SUBJECTS, PluginError, SelectionError
from ...properties.places.pool import PoolTerms
from ...properties.programs import WORKER
from ...properties.table import PROPERTIES
from ...properties.worlds import World, launched
from .. import exit_codes
from ..collect import DESELECTED, OTHER_SHARD
from .addresses import HintedChoice, completing, require_in_file
from .host import Host, Stop
from .reading import adding, as_usage
from .session import Request, worker_count

# A word ends only at a blank or a parenthesis, because the names of cells hold `::`, `[` and `-`.
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
#: How deep parentheses and nots may nest; Python's own stack would allow several hundred.
_DEEPEST = 100

Matcher = Callable[[str], bool]


class KeywordError(ValueError):
    """An expression that cannot be read."""


def matcher(expression: str) -> Matcher:
    """A function that says whether a name holds the words that an expression asks for, in upper or lower case alike.

    Raises:
        KeywordError: the expression cannot be read; the text says where.
    """
    words = _TOKEN.findall(expression)
    if not words:
        raise KeywordError("-k: got an empty expression, need words, and, or, not, ( and )")
    matches, rest = _any(words, 0)
    if rest:
        raise KeywordError(f"-k: got -k={expression!r}, need and, or or the end before {rest[0]!r}")
    return lambda name: matches(name.lower())


def _any(words: list[str], depth: int) -> tuple[Matcher, list[str]]:
    if depth > _DEEPEST:
        raise KeywordError(f"-k: got more than {_DEEPEST} parentheses or nots within each other")
    return _joined(words, "or", any, lambda rest: _joined(rest, "and", all, lambda words: _term(words, depth)))


def _joined(
    words: list[str], joint: str, combine: Callable[[Iterable[bool]], bool],
    reader: Callable[[list[str]], tuple[Matcher, list[str]]],
) -> tuple[Matcher, list[str]]:  # fmt: skip
    part, rest = reader(words)
    parts = [part]
    while rest and rest[0] == joint:
        part, rest = reader(rest[1:])
        parts.append(part)
    return (lambda name: combine(part(name) for part in parts)), rest


def _term(words: list[str], depth: int) -> tuple[Matcher, list[str]]:
    if not words or words[0] in (")", "and", "or"):
        got = repr(words[0]) if words else "the end"
        raise KeywordError(f"-k: got {got} where a word, not or ( is needed")
    word, rest = words[0], words[1:]
    # A `not` nests without any parenthesis, so it has to count its own depth; `_any` counts that of parentheses.
    if word == "not":
        if depth > _DEEPEST:
            raise KeywordError(f"-k: got more than {_DEEPEST} parentheses or nots within each other")
        operand, rest = _term(rest, depth + 1)
        return (lambda name: not operand(name)), rest
    if word == "(":
        inner, rest = _any(rest, depth + 1)
        if not rest or rest[0] != ")":
            raise KeywordError("-k: got ( without its )")
        return inner, rest[1:]
    return (lambda name: word.lower() in name), rest


_GIB = 2**30
#: Ranks of a team that this program starts itself.
RANKS = 3
#: What the help of an option says besides, where its values are few or are listed elsewhere.
_VALUES = {
    "property": " `opassay explain` lists them.",
    "dtype": f" One of {', '.join(DTYPES)}.",
    "device": f" One of {', '.join(DEVICES)}.",
    "subject": " `opassay explain` lists them.",
}
#: What a shell completes of each.
_NAMES: dict[str, Iterable[str]] = dict(zip(AXES, (CATALOG, PROPERTIES, DTYPES, DEVICES, SUBJECTS), strict=True))


#: OPS and --op, --property, --dtype, --device, --subject.
selection_options = adding(
    click.argument("ops", nargs=-1, shell_complete=completing(CATALOG)),
    *(
        click.option(
            f"--{axis}", multiple=True, metavar=axis.upper(),
            help=f"Only this {axis}; may be repeated.{_VALUES.get(axis, '')}", shell_complete=completing(_NAMES[axis]),
        )
        for axis in AXES
    ),
)  # fmt: skip
narrowing_options = adding(
    click.option("-k", "keyword", default="", metavar="EXPR", help="Only cells whose name matches."),
    click.option("--shard", metavar="I/N", help="Only part I of N of the cells."),
)
#: Where a run judges ops over several places.
world_options = adding(
    click.option("--comm", type=HintedChoice(COMMS), default=COMMS[0], show_default=True,
                 help="What ranks are: threads in lockstep, or processes that talk over gloo or NCCL."),
    click.option("--fabric", type=HintedChoice(FABRICS), default=FABRICS[0], show_default=True,
                 help="What devices are, for ops over several: logical ones, streams of one GPU, or GPUs."),
    click.option("--ranks", type=click.IntRange(min=1, max=64),
                 help=f"Ranks and devices of every sample.  [default: 1 to 8; {RANKS} with gloo and nccl]"),
)  # fmt: skip


def selection_of(ops: tuple[str, ...], options: dict[str, Any]) -> Selection:
    """The selection that the options name; cpu and opassay where they name no device or subject."""
    context = click.get_current_context(silent=True)
    # Ops that the command line names take the place of those that the project's settings name, as every option does.
    if ops and context is not None and context.get_parameter_source("op") is ParameterSource.DEFAULT_MAP:
        options = {**options, "op": ()}
    return Selection.of({**options, "op": (*ops, *options["op"])})


def plan_cells(selection: Selection) -> list[Cell]:
    """The cells of a selection; ends the command with 2 for an unknown name or file, or a broken plugin."""
    for op in selection.ops:
        if ".py" in op and "(" not in op:
            require_in_file(op)
        if op.endswith(".py"):
            raise Stop(exit_codes.USAGE, f"{op}: got a file, need {op}:NAME of an op or a function in it")
    with as_usage(SelectionError, PluginError):
        return plan(selection)


def find_exclusions(cells: Sequence[Cell], shard: str | None, keyword: str) -> dict[str, str]:
    """Key of a cell that the two options leave out -> why; ends the command with 2 where they cannot be read."""
    with as_usage(SelectionError, KeywordError):
        # Shards are cut from the whole plan, before -k, so that all shards of a run agree on who has which cell.
        here = {cell.key for cell in in_shard(cells, shard)}
        matches = matcher(keyword) if keyword else lambda name: True
    exclusions = {cell.key: OTHER_SHARD for cell in cells if cell.key not in here}
    return exclusions | {key: DESELECTED for key in here if not matches(key)}


def world_of(options: dict[str, Any]) -> World:
    """The world that the options name; under torchrun, of as many ranks as it started."""
    comm, fabric, size = options["comm"], options["fabric"], options["ranks"]
    if launched():
        # torchrun decides how many ranks there are, so an option that says otherwise could
        # only be ignored; it is refused.
        started = int(os.environ["WORLD_SIZE"])
        if comm == COMMS[0]:
            raise Stop(exit_codes.USAGE, f"--comm: got {comm} under torchrun with {started} ranks, need gloo or nccl")
        if size not in (None, started):
            raise Stop(exit_codes.USAGE, f"--ranks: got {size} under torchrun with {started} ranks, need none")
        return World(comm, fabric, started)
    return World(comm, fabric, RANKS if size is None and comm != COMMS[0] else size)


def workers_in(world: World, workers: str) -> str:
    """How many workers: a team of ranks is one, unless the user asks for more; rank 0 of torchrun is one."""
    if launched():
        return "1"
    return "1" if workers == "auto" and world.comm != COMMS[0] else workers


def serve_as_rank(world: World) -> bool:
    """Serves rank 0 until it is done, if torchrun started this process as another rank: rank 0 alone owns the run.

    Returns:
        Whether it did; False at once in any other process.
    """
    if not launched() or os.environ["RANK"] == "0":
        return False
    from ...properties.places.gathering import serve_launched  # here, because it imports torch

    serve_launched(world)
    return True


#: How much is asked, by how many processes, within which limits.
asking_options = adding(
    click.option("--profile", type=HintedChoice(tuple(PROFILES)), default="commit", show_default=True,
                 help="How much is asked; `opassay explain brief` says what one costs."),
    click.option("--seed", type=int, help="Base seed; by default 0 for commit and brief, else random."),
    click.option("--max-examples", type=click.IntRange(min=1), help="Samples per cell."),
    click.option("-n", "--workers", default="auto", show_default=True, metavar="N",
                 help="Processes that judge; 0: one that shares this terminal, for a debugger."),
    click.option("--scheduler", default="", metavar="ADDRESS", help="Judge on the workers of this Dask cluster."),
    click.option("--report-dir", type=click.Path(path_type=Path), default=Path("opassay-report"), show_default=True),
    click.option("--resume", is_flag=True, help="Go on with the last run in the report folder, if there is one."),
    click.option("--maxfail", type=click.IntRange(min=0), default=0, help="Stop after this many failures."),
    click.option("-x", "maxfail", flag_value=1, type=int, help="Stop after the first failure."),
    click.option("--timeout", type=click.FloatRange(min=0.1), default=1200.0, show_default=True,
                 help="Seconds per cell."),
    click.option("--memory", type=click.FloatRange(min=0.5), metavar="GIB",
                 help="Memory per process.  [default: a fair share of the machine's]"),
)  # fmt: skip


def make_request(selection: Selection, options: dict[str, Any], host: Host, *, cells: int, world: World) -> Request:
    """What was asked for, as one record.

    Args:
        selection: names on each axis. options: those of the command line, by name. host: what surrounds the command.
        cells: how many there are. world: where ops over several places are judged.

    Raises:
        Stop: --workers is no number.
    """
    profile, seed, memory = options["profile"], options["seed"], options["memory"]
    try:
        workers = worker_count(options["workers"], cells)
    except ValueError as err:
        raise Stop(exit_codes.USAGE, f"workers: got {options['workers']!r}, need a count or 'auto'") from err
    settings = {
        "profile": profile,
        "seed": default_seed(profile) if seed is None else seed,
        "max_examples": options["max_examples"],
    }
    memory = 0 if memory is None else int(memory * _GIB)
    terms = PoolTerms(
        settings, tuple(asdict(world).values()), host.worker or WORKER, workers, options["timeout"], memory
    )
    names = ("maxfail", "keyword", "shard", "scheduler", "exit_zero", "allow_incomplete")
    return Request(selection, terms, **{name: options[name] for name in names})
