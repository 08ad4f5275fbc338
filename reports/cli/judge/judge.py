"""`opassay judge`: a candidate's file by a spec's file, the candidate in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import logging
import math
import os
import re
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import click

from ....properties import candidates
from ....properties.candidates.question_plan import (
    ALL_CODES,
    DEVICES,
    FAR,
    INVARIANT,
    QuestionPlan,
    parts_of_beside,
)
from ....properties.collector import imports_set_aside
from ....properties.names import WIRES
from ....properties.rehearsal.deciding import rehearse_instead, settle_way
from ....properties.table import TABLE
from ... import exit_codes
from ...text import one_line
from ..addresses import completing, pair_in, require_in_file
from ..host import Host, Stop, require, set_library_settings
from .options import dtype_of, read_mesh, require_axes, require_questions
from .problem_table import ProblemRow, judge_rows, rows_of
from .watching import judge_at_every_change


def describe_domain(spec: str, seed: int, parameters: dict[str, Any], where: Sequence[str] = ()) -> list[str]:
    """The calls that the spec of a file takes, a line each.

    Args:
        spec: the file, or a pair. seed: of the given inputs. parameters: for what gives the inputs, by name.
        where: sentences beside its own.

    Raises:
        GivenError: the file has no spec, nothing that gives inputs, or a domain that clashes with these.
        SpecError: the spec refuses the given call.
    """
    from ....properties.candidates.arguments import CallArguments
    from ....properties.candidates.domain.deriving import derive_domain
    from ....properties.candidates.specification import specification
    from ....properties.candidates.suites.opening import open_pair

    with TemporaryDirectory() as folder:
        problem = open_pair(spec, spec, Path(folder), seed, parameters, {"where": where}).problem
        read = replace(specification(problem.spec), domain=problem.domain)
        arguments = CallArguments.of(problem.draw(seed)).with_names(problem.spec)
        read.run(arguments, read.state)
        domain = derive_domain(read, arguments, problem.draw, lambda number: seed + number)
    return [
        f"calls that {read.name} takes, beside {arguments.text}",
        *domain.describe(arguments),
        *domain.declare(arguments),
    ]


_Result = TypeVar("_Result")
#: The options that confine a candidate.
_CONFINING = ("seconds", "memory", "interpret", "compiled", "isolation", "mesh", "wire")
#: What `--demo` judges.
_DEMO = Path(candidates.__file__).parent / "demo.py"
#: The colours of verdicts, and of what is wrong.
_COLOURS = dict.fromkeys(("rejected", "error", "WRONG"), "red") | dict.fromkeys(("suspect", "weak"), "yellow")
_COLOURS["accepted"] = "green"


def parse_inputs(words: tuple[str, ...]) -> dict[str, Any]:
    """NAME=VALUE words; a value is JSON where it can be read so, else text.

    Raises:
        Stop: a word without "=".
    """
    inputs: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise Stop(exit_codes.USAGE, f"--input: got {word!r}, need NAME=VALUE")
        try:
            inputs[name] = json.loads(value)
        except ValueError:
            inputs[name] = value
    return inputs


class _Command(click.Command):
    """A program that reads JSON gets a line for a wrong command line, too."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        as_json = "--json" in args
        try:
            return super().parse_args(ctx, args)
        except click.ClickException as err:
            if as_json:
                click.echo(_no_verdict(err.format_message()))
            raise


@click.command("judge", cls=_Command)
@click.argument("candidate", required=False)
@click.option("--spec", metavar="FILE", help="What is right: a file, FILE:NAME, MODULE:NAME, or a folder.")
@click.option("--domain", is_flag=True, help="Print which calls the spec takes, and judge nothing.")
@click.option("--demo", is_flag=True, help="Judge a file that comes with opassay, and show it.")
@click.option("--contract", default="torch", show_default=True, metavar="NAME", help="What a candidate may do.")
@click.option("-k", "--question", "questions", multiple=True, metavar="CODE",
              shell_complete=completing([*TABLE, ALL_CODES]),
              help="Ask this question or property, or ALL; repeatable.")  # fmt: skip
@click.option("--seed", type=click.IntRange(min=0), help="Of all inputs and parameters; else they are drawn anew.")
@click.option("--draws", metavar="HEX", help="Draw what an earlier verdict drew, which tells these digits.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="Of each call.")
@click.option("--memory", type=click.FloatRange(min=0), default=16.0, show_default=True, help="GiB; 0 for no limit.")
@click.option("--input", "given", multiple=True, metavar="NAME=VALUE", help="For what gives the inputs.")
@click.option("--isolation", type=click.Choice(["auto", "required", "none"]), default="auto", show_default=True,
              help="Of the candidate from its judge: what the kernel has, all of it or exit code 2, or nothing.",
)  # fmt: skip
@click.option("--interpret", is_flag=True, help="Run the candidate's Triton kernels in an interpreter, on the CPU.")
@click.option("--compiled", is_flag=True, help="Compile the candidate's Triton kernels; execute their PTX on the CPU.")
@click.option("--far", is_flag=True, help="Ask FAR, too: kernels beyond 2^31 elements, in blocks at both sides of it.")
@click.option("--invariant", multiple=True, metavar="AXIS", shell_complete=completing([*INVARIANT, "all"]),
              help="Ask for equal bits along this axis, too, or all; or rows=x:0. Needs no --spec.")  # fmt: skip
@click.option("--world", "mesh", metavar="N", callback=read_mesh,
              help="Run the candidate on N ranks, or a mesh as 2x2; its spec has placements.")  # fmt: skip
@click.option("--wire", type=click.Choice(WIRES), default=WIRES[0], show_default=True,
              help="Over what its ranks talk: their judge, or gloo or nccl of torch.")  # fmt: skip
@click.option("--where", multiple=True, metavar="TEXT", help="Say which calls there are, as a domain does; repeatable.")
@click.option("--may-write", multiple=True, metavar="NAME", help="Let the candidate leave other values in an argument.")
@click.option("--beside", metavar="CANDIDATE", help="Ask another candidate the same, and say why they differ: PARITY.")
@click.option("--time", "timed", is_flag=True, help="Take the times of spec and candidate, if nothing is wrong.")
@click.option("--dtype", metavar="NAME", help="Cast floating inputs and parameters: bf16, float16, float32, f64.")
@click.option("--device", type=click.Choice(DEVICES), help="Move inputs and parameters there; rehearsal needs no GPU.")
@click.option("--eval", "evaluation", is_flag=True, help="Put modules in evaluation; call the spec without dropout.")
@click.option(
    "--calls", type=click.IntRange(min=2), help="Calls in a row at CALLS:again; by default those of half a second."
)
@click.option("--total", type=click.FloatRange(min=0, min_open=True), help="Seconds after which nothing more is asked.")
@click.option("-x", "stop", is_flag=True, help="Ask nothing more after the first question that is wrong.")
@click.option("--watch", is_flag=True, help="Judge again whenever a file changes, until Ctrl-C.")
@click.option("--report-dir", type=click.Path(path_type=Path), help="Write record, page, test table and cases there.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@click.option("--json-schema", type=click.IntRange(1, 2), default=2, help="1: kinds by former names, until 0.2.")
@click.option("-q", "--quiet", is_flag=True, help="Print the verdict alone.")
@click.option("-v", "--verbose", is_flag=True, help="Print every card, and what the candidate prints.")
@click.pass_obj
def judge_command(host: Host, /, candidate: str | None, spec: str | None, **options: Any) -> int:
    """Judge CANDIDATE, a file, FILE:NAME or MODULE:NAME, by its spec in plain PyTorch.

    The spec has Model and get_inputs (the candidate ModelNew), or ref_kernel and generate_input (custom_kernel), or
    reference and inputs (kernel), or is a task of FlashInfer-Bench, gpu-mode or robust-kbench. Without --spec it is in
    the candidate's own file. For a folder of problems, CANDIDATE is a folder, too.
    Contracts: strict, torch, tensor_core, fast_math, each with allowances after a +, as in torch+bf16x3+flush.
    Exit codes: 0 accepted, 1 rejected, 4 suspect or weak, 3 no verdict, 2 usage.
    \f

    Args:
        host: what surrounds the command. candidate, spec: files or pairs. options: the others, by their names.
    """
    with _telling_in_json(options["as_json"]):
        itself = bool(options["invariant"]) and not (spec or options["demo"] or options["domain"])
        usual = candidate or (spec if options["domain"] else None)
        addresses = _addresses(usual, candidate if itself else spec, demo=options["demo"])
        require_questions(options["questions"])
        require_axes(options["invariant"])
        if clash := settle_way(options):
            raise Stop(exit_codes.USAGE, clash)
        if options["draws"] is not None:
            if options["seed"] is not None:
                raise Stop(exit_codes.USAGE, "--draws: got --seed, too; need one of them")
            options["seed"] = options["draws"]
        options["dtype"] = dtype_of(options["dtype"])
        options["where"] = *options["where"], *(f"{name}: may be written" for name in options["may_write"])
        for address in (*addresses, *filter(None, [parts_of_beside(options["beside"] or "")[0]])):
            require_in_file(address)
        compiles = options["compiled"] and importlib.util.find_spec("nvidia") is None  # CUDA C++ takes no Triton
        require("torch", "mpmath", "msgspec", *(("triton",) if options["interpret"] or compiles else ()))
    set_library_settings()
    alone = host.ends_at_once = host.alone
    if alone:
        # As Ctrl-C: there is a line, and no folder is left.
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
    judge = functools.partial(_judge, addresses[0], "" if itself else addresses[1], options, alone)
    with _telling_in_json(options["as_json"]):
        if options["domain"]:
            words = options["seed"] or 0, parse_inputs(options["given"]), options["where"]
            click.echo("\n".join(run_on_user_files(lambda: describe_domain(addresses[1], *words))))
            return exit_codes.OK
        rows = [] if itself else run_on_user_files(lambda: rows_of(*addresses, parse_inputs(options["given"])))
        if itself or [row.spec for row in rows] == [addresses[1]]:
            return judge_at_every_change(judge, addresses) if options["watch"] else judge()[0]
        for name in ("report_dir", "watch"):
            if options[name]:
                option, hint = f"--{name.replace('_', '-')}", "choose a test by --input"
                raise Stop(exit_codes.USAGE, f"{option}: got {len(rows)} judgements, need one: {hint}")
    return _judge_table(rows, options)


def _plan_of(options: dict[str, Any], sooner: Sequence[str] = ()) -> QuestionPlan:
    """The plan that the options name; `sooner`: codes of questions that are asked before others."""
    total = options["total"] or math.inf
    return QuestionPlan(
        options["questions"], sooner, options["stop"], total, options["calls"], options["dtype"], options["timed"],
        options["device"] or "", options["evaluation"], (*[FAR] * options["far"], *options["invariant"]),
        options["where"], options["beside"] or "",
    )  # fmt: skip


def _judge_table(rows: list[ProblemRow], options: dict[str, Any]) -> int:
    """The exit code of several judgements, which are printed as they are made."""
    question: dict[str, Any] = {name: options[name] for name in ("contract", "seed")}
    question |= {"plan": asdict(_plan_of(options)), "confinement": {name: options[name] for name in _CONFINING}}
    return judge_rows(rows, question, as_json=options["as_json"])


def _judge(
    candidate: str, spec: str, options: dict[str, Any], alone: bool, sooner: Sequence[str] = ()
) -> tuple[int, list[str]]:
    """The exit code of a judgement, which is printed and, where a folder is given for it, recorded; what is wrong.

    Args:
        candidate, spec: addresses. options: of the command, by name. alone: whether this process does nothing else.
        sooner: codes of questions that are asked before others.
    """
    from ....oracles.verdicts.verdict import Cell
    from ....properties.candidates.cases import JudgedCase
    from ....properties.candidates.host.quarters import Confinement
    from ....properties.candidates.judge_files import judge_file
    from .recording import claim, read_failures, tell_github, write_judgement

    confinement = Confinement(**{name: options[name] for name in _CONFINING}, alone=alone)
    sooner = [*sooner, *read_failures(options["report_dir"], candidate, spec)]
    terms = {"contract": options["contract"], "seed": options["seed"], "confinement": confinement}
    terms |= {"plan": _plan_of(options, sooner)}
    same = ("seed", "contract", "given", "dtype", "calls", "seconds")
    named = {"compiled": "compiled", "interpret": "interpret", "evaluation": "eval", "rehearsed": "device=rehearsal"}
    flags = *(flag for name, flag in named.items() if options[name]), *(f"where={each}" for each in options["where"])
    flags += (f"beside={options['beside']}",) if options["beside"] else ()
    flags += (*(f"invariant={each}" for each in options["invariant"] if "=" in each),)
    flags += (f"world={'x'.join(map(str, options['mesh']))}", f"wire={options['wire']}") if options["mesh"] else ()
    case = JudgedCase(candidate, spec, **{name: options[name] for name in same}, flags=flags)
    case = case.of(Cell("", "", "", options["device"] or "", ""), {})
    with claim(options["report_dir"]) as folder, _progress() as progress, _showing_prints(options["verbose"]):
        judge_candidate = functools.partial(judge_file, candidate, spec, **terms, progress=progress)
        judge_given = functools.partial(judge_candidate, values=parse_inputs(options["given"]))
        rehearses = alone and options["compiled"] and not options["watch"]
        judgement = run_on_user_files(functools.partial(rehearse_instead, judge_given) if rehearses else judge_given)
        fault = None if folder is None else write_judgement(folder, judgement, case)
    if options["demo"] and not options["as_json"]:
        click.echo(f"{_DEMO}:\n\n{textwrap.indent(_DEMO.read_text(), '    ')}")
    text = judgement.summary if options["quiet"] else judgement.report(verbose=options["verbose"])
    for name, digest in options.get("sha256", {}).items():
        if digest != judgement.assignment.sha256.get(name):
            click.echo(f"the file of the {name} has changed since: its sha256 was {digest}", err=True)
    click.echo(judgement.as_json(options["json_schema"]) if options["as_json"] else _paint(text), color=wants_colour())
    if not options["as_json"]:
        tell_github(judgement, case)
    if folder is not None and not options["as_json"]:
        click.echo(f"could not write: {fault[1]}" if fault else f"report  {folder.path / 'report.html'}")
    code = fault[0] if fault else exit_codes.OF_JUDGEMENTS[str(judgement.verdict)]
    return code, [cause.question for cause in judgement.causes]


def _addresses(candidate: str | None, spec: str | None, *, demo: bool) -> tuple[str, str]:
    """The addresses of the candidate and of its spec.

    Raises:
        Stop: one is missing, or there is one beside `--demo`.
    """
    if demo:
        if candidate or spec:
            raise Stop(exit_codes.USAGE, "--demo: got a candidate or a spec, too; the demonstration has its own")
        return f"{_DEMO}:kernel", f"{_DEMO}:reference"
    if candidate and not spec and (pair := pair_in(candidate)):
        return pair
    if not candidate or not spec:
        missing, need = "--spec" if candidate else "CANDIDATE", "judge mine.py:kernel --spec mine.py:reference"
        beside = "; a file with kernel, reference and inputs needs none" if candidate else ""
        text = f"{missing}: got none, as in `opassay {need}`{beside}; --demo shows what a judgement is"
        raise Stop(exit_codes.USAGE, text)
    return candidate, spec


def _paint(text: str) -> str:
    """A report with the verdict, and what is wrong, in colour."""

    def styled(match: re.Match[str]) -> str:
        return click.style(match[0], fg=_COLOURS[match[0]], bold=True)

    return re.sub(rf"^(WRONG(?= )|({'|'.join(_COLOURS)})(?=:|$))", styled, text, flags=re.MULTILINE)


def wants_colour() -> bool | None:
    """Whether NO_COLOR or FORCE_COLOR ask for text without or with colour; None where the terminal decides."""
    return False if os.environ.get("NO_COLOR") else True if os.environ.get("FORCE_COLOR") else None


def run_on_user_files(run: Callable[[], _Result]) -> _Result:
    """Call a function that imports files of the user, and give its result; a mistake in those files ends the command.

    Raises:
        Stop: a file is not there, lacks a name, or raised; or a contract is none.
    """
    with contextlib.nullcontext() if "torch" in sys.modules else imports_set_aside():
        from ....properties.candidates.host.module_files import GivenError
        from ....properties.candidates.specification import SpecError

    try:
        # What the spec prints must not be taken for the judgement.
        with contextlib.redirect_stdout(sys.stderr):
            return run()
    except (GivenError, SpecError) as err:
        raise Stop(exit_codes.USAGE, one_line(str(err), 500)) from err


@contextlib.contextmanager
def _telling_in_json(as_json: bool) -> Iterator[None]:
    """A program that reads JSON gets a line whatever ends the command."""
    try:
        yield
    except BaseException as err:
        if as_json:
            click.echo(_no_verdict(_why_no_verdict(err)))
        raise


def _why_no_verdict(err: BaseException) -> str:
    """The reason why a command that ended by this exception has no verdict."""
    if isinstance(err, Stop):
        return str(err)
    if isinstance(err, KeyboardInterrupt):
        return "interrupted"
    text = ""
    with contextlib.suppress(BaseException):  # the text of a foreign exception is made by foreign code
        text = one_line(str(err))
    fault = "imported code ended the program" if isinstance(err, SystemExit) else "internal error"
    return f"{fault}, {type(err).__name__}: {text}"


def _no_verdict(error: str) -> str:
    """The line of JSON of a command that came to no verdict."""
    empty = {"verdict": "error", "causes": [], "suspect": [], "weaknesses": [], "arithmetic": ""}
    return json.dumps({**empty, "error": error})


@contextlib.contextmanager
def _showing_prints(verbose: bool) -> Iterator[None]:
    """Shows on stderr what candidates print, if that is wanted."""
    log, handler = logging.getLogger("opassay.candidate"), logging.StreamHandler()
    before = log.level
    if verbose:
        log.addHandler(handler)
        log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None] | None]:
    """Shows on a terminal which question is being asked; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(code: str, number: int, total: int) -> None:
        click.echo(f"\r{number + 1}/{total} {code:<12}", err=True, nl=False)

    try:
        yield show
    finally:
        click.echo(f"\r{'':24}\r", err=True, nl=False)
