"""A candidate's file judged by a spec's file, the candidate in a process of its own."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...oracles.bound.terms import Terms, TermsError, terms, terms_of_compiled
from ...oracles.machine.allocator import keep_freed_memory
from ...oracles.process import interrupt
from ...oracles.verdicts.data import RecordError, decode_verdict
from ...oracles.verdicts.verdict import Cell, Code, Outcome, Verdict
from ..names import WIRES
from ..places import wire
from ..places.lifeline import hide_memory, hide_words
from .arguments import CallArguments
from .beside import Beside
from .cases import DEVICE, SUBJECT, parts_of
from .excuses import ended_for_memory, excuse
from .finding import wrong
from .host.apart import CandidateApart, CandidateError
from .host.calls import Answering, CandidateCall, GoneError, Making
from .host.module_files import GivenError, SpecFile, file_of
from .host.quarters import Confinement, Quarters
from .host.sources import content_of, sources
from .host.temporary import TemporaryFolder
from .host.timing import Timing
from .host.watching import Watch
from .judge_draws import Draws
from .judgement import Assignment, Judgement, Ruling
from .judging import ALL, Progress, ask_all
from .question_plan import RANKS, QuestionPlan, parts_of_beside
from .rank_processes import RankProcesses, plan_of_ranks, terms_of_ranks
from .rank_specs import problem_of_whole
from .ranks.seats import Seat
from .row_sample import Part, part_of
from .session import Session
from .specification import SpecError, Specification, specification
from .suites.opening import open_pair

#: How a candidate's process is confined by default.
USUAL = Confinement()


@interrupt.SignalScope()
def judge_file(
    candidate: str, spec: str, *, contract: str | Terms, seed: int | str | None = 0,
    values: Mapping[str, Any] | None = None, confinement: Confinement = USUAL, plan: QuestionPlan = ALL,
    progress: Progress | None = None,
) -> Judgement:  # fmt: skip
    """Judge the candidate of a file, in a process apart, by the spec of another file, which is read here.

    Args:
        candidate, spec: files, or pairs `module:name`; the spec may be a task of a suite, or "" for relations alone.
        contract: as for `judge`. values: arguments of what gives the inputs, by name. progress: told before questions.
        seed: a number; or None for a secret, which the judgement tells, or the digits of one that was told.
        confinement: of the candidate's process. plan: of the questions, and the dtype of what is asked.

    Raises:
        GivenError: a file is not there, lacks a name, raised (the spec's), or does not compile (the candidate's); the
            contract names no terms; or the isolation that is required cannot be had.
    """
    plan = plan_of_ranks(plan if spec else plan.of_relations(), confinement, spec)
    allowed = _terms_of(contract, confinement)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(TemporaryFolder()).path
        # Before the spec is read, because a candidate must find nothing of it in its process.
        crew = stack.enter_context(contextlib.closing(_crew(confinement, candidate, spec, seed, folder, plan)))
        before, ended, public = frozenset(sources().digests), ended_for_memory(), _public_draws(seed)
        words = _words(candidate, spec, public.seed, values or {}, plan)
        pair = open_pair(**words, folder=Path(folder))
        named, problem, candidate = candidate, pair.problem, pair.candidate
        _require_python(contents := {**pair.contents, **_candidate_contents(candidate)})
        digests = {"candidate": "", "spec": spec and _digest(problem.path)}
        try:
            # A spec that cannot be read says nothing of any candidate, whatever becomes of that.
            problem = problem_of_whole(problem, confinement.mesh, public.inputs(0))
            read, arguments, part = _read_problem(problem, public, allowed, itself=not spec)
        except SpecError as err:
            return _leave_open(Assignment(named, spec, str(allowed), public, sha256=digests), err)
        digests["candidate"] = next((sha256(each).hexdigest() for each in contents.values()), "")
        watch = _watch(problem.path, before, contents)
        make = functools.partial(_apart, candidate, problem.init_args, public.seed, confinement, watch, contents, plan)
        until = time.monotonic() + plan.total
        try:
            ranks = (problem.placements, read, arguments, until)
            apart = crew.begin(make, *ranks) if confinement.mesh else stack.enter_context(make(crew.first))
        except CandidateError as err:
            of = Assignment(named, read.name, str(allowed), public, arguments.dtype, digests, crew.first.isolation)
            refusal = _reject(replace(of, device=arguments.device), str(err))
            return Judgement(of, Ruling.ERROR, error=err.beyond) if err.beyond else excuse(refusal, confinement, ended)
        # Now that all of the candidate's own text has run, which could keep what it saw.
        draws = public.draw_secret(seed)
        try:
            if draws.secret:
                read, arguments, part = _read_problem(problem, draws, allowed, read)
        except SpecError as err:
            return _leave_open(Assignment(named, spec, str(allowed), draws, sha256=digests), err)
        begin = functools.partial(_apart, instances=problem.init_args, seed=public.seed, watch=watch)
        answers: Answering = apart
        if plan.beside and isinstance(apart, CandidateApart):
            answers = _begin_beside(begin, plan, confinement, apart, stack)
        allowed, part = terms_of_ranks(allowed, arguments.dtype, confinement.mesh), None if confinement.mesh else part
        session = Session(read, answers, allowed, draws, arguments, problem.draw, part)
        session.history.in_a_row, apart.until = plan.calls, until
        make_again = functools.partial(_again, make, confinement, until)
        properties = stack.enter_context(contextlib.closing(PropertiesApart(make_again, words, allowed)))
        judgement = excuse(ask_all(session, plan, progress, properties.ask), confinement, ended)
        of = replace(judgement.assignment, sha256=digests, isolation=crew.first.isolation)
        timed = plan.timed and judgement.verdict not in (Ruling.REJECTED, Ruling.ERROR)
        return replace(judgement, assignment=of, timing=_measure(make_again, words) if timed else None)


def _words(candidate: str, spec: str, seed: int, parameters: Mapping[str, Any], plan: QuestionPlan) -> dict[str, Any]:
    """What names a pair of files and how they are opened."""
    changes = {"dtype": plan.dtype, "device": plan.device, "evaluation": plan.evaluation, "where": list(plan.where)}
    return {"spec": spec, "candidate": candidate, "seed": seed, "values": dict(parameters), "changes": changes}


def _again(make: Callable[[Quarters], CandidateApart], confinement: Confinement, until: float) -> CandidateApart:
    """The candidate in another process, where the spec is loaded, too, which may read anything."""
    apart = make(Quarters(confinement, ["/"]))
    apart.until = until
    return apart


def _begin_beside(
    begin: Callable[..., CandidateApart], plan: QuestionPlan, confinement: Confinement, first: CandidateApart,
    stack: contextlib.ExitStack,
) -> Beside:  # fmt: skip
    """A candidate and the other one of a plan, in a process that has nothing of the spec.

    Args:
        begin: takes the rest of what `_apart` takes. plan: with its address. confinement: of it.
        first: the candidate. stack: closes the other one.

    Raises:
        GivenError: it could not be made.
    """
    address, device, python = parts_of_beside(plan.beside)
    contents = _candidate_contents(address)
    _require_python(contents)
    if python and not os.access(python, os.X_OK):
        raise GivenError(f"{plan.beside}: got python={python}, need a file that can be run")
    readable = [*_folders_of(address), *([str(Path(python).parents[1])] if python else [])]
    if device == "cuda" and not torch.cuda.is_available():
        raise GivenError(f"{plan.beside}: got cuda, and there is no GPU here")
    quarters = Quarters(confinement, readable, python=python)
    try:
        apart = begin(
            address=address, confinement=confinement, contents=contents, quarters=quarters,
            plan=replace(plan, device=device or plan.device),
        )  # fmt: skip
        return Beside(first, stack.enter_context(apart), device)
    except CandidateError as err:
        raise GivenError(f"{plan.beside}: {err}") from err


def _read_problem(
    problem: SpecFile, draws: Draws, allowed: Terms, known: Specification | None = None, itself: bool = False
) -> tuple[Specification, CallArguments, Part | None]:
    """The spec, the given arguments that draws give, and how these are cut.

    Args:
        problem: of the spec's file. draws, allowed: see `Session`. known: the spec, where it has been read already.
        itself: whether the candidate takes the spec's part.

    Raises:
        SpecError: the spec cannot be read, or an argument cannot be sent.
    """
    spec = known or replace(
        Specification("itself", problem.spec, itself=True) if itself else specification(problem.spec),
        domain=problem.domain,
    )
    arguments = CallArguments.of(problem.draw(draws.inputs(0))).with_names(problem.spec)
    _require_sendable(arguments, CallArguments.of(problem.init_args))
    part = None if spec.itself else part_of(spec, arguments, allowed)
    if known is None and not itself:
        spec.read(arguments if part is None else part.of(arguments, [0]), spec.state, allowed)
    return spec, arguments, part


def _leave_open(of: Assignment, err: SpecError) -> Judgement:
    """The judgement where nothing can be said, because of the spec."""
    return Judgement(of, Ruling.ERROR, error=str(err))


def _reject(of: Assignment, text: str) -> Judgement:
    """The judgement of a candidate that could not be made."""
    first, *more = text.splitlines() or [""]
    finding = wrong("PURE:process", Code.RAISED, f"the candidate could not be made: {first}", *more)
    return Judgement(of, Ruling.REJECTED, (finding,))


def _apart(
    address: str, instances: Sequence[Any], seed: int, confinement: Confinement, watch: Watch,
    contents: Mapping[str, bytes], plan: QuestionPlan, quarters: Quarters,
) -> CandidateApart:  # fmt: skip
    """A candidate in a process; see there."""
    making = Making(
        CandidateCall.of(CallArguments.of(instances)), dict(contents), plan.dtype, plan.device, plan.evaluation
    )
    return CandidateApart(address, making, seed, confinement, watch, quarters)


def _crew(
    confinement: Confinement, candidate: str, spec: str, seed: int | str | None, folder: str, plan: QuestionPlan
) -> RankProcesses:
    """The first processes of the candidate, which may be copies of this one where this one does nothing else.

    Args:
        confinement, candidate, spec, seed, plan: as for `judge_file`. folder: that they may read besides.
    """
    if confinement.alone:
        # The copy of this process imports parts of torch that make this folder.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(folder, "cache"))
        keep_freed_memory()
        hide_memory()
        if isinstance(seed, str):
            hide_words()
    # A copy has the words of this process's command line in it, and so a secret that is given there.
    copied = confinement.alone and not isinstance(seed, str)
    readable = [*_folders_of(candidate), folder]

    meeting = os.path.join(folder, "meeting")
    if real := confinement.wire != WIRES[0]:
        os.mkdir(meeting, 0o700)

    def begin(rank: int, ranks: int, times: int) -> Quarters:
        store = os.path.join(meeting, f"{ranks}.{times}") if real else ""
        seat = Seat(rank, ranks, confinement.wire, store, confinement.seconds)
        # One that is begun once more must find nothing of the spec, which this process has by then.
        return Quarters(confinement, readable, copied and not times, seat=seat)

    others = RANKS in plan.others or "COMM:worlds" in plan.questions
    crew = RankProcesses(confinement.mesh, begin, others, confinement.wire)
    if confinement.alone:
        _keep_off_the_path(candidate, spec)
    return crew


def _public_draws(seed: int | str | None) -> Draws:
    try:
        return Draws.public(seed)
    except ValueError as err:
        raise GivenError(str(err)) from err


def _folders_of(address: str) -> list[str]:
    """The folder of a file, or the folder that an address is; where it is a module, those in which it may be."""
    path = parts_of(address)[0]
    if path is None:
        return [entry or "." for entry in sys.path]
    return [str(path if path.is_dir() else path.resolve().parent)]


class PropertiesApart:
    """Asks properties of a candidate in a process of its own, which starts with the first of them.

    Args:
        make: starts a process that has the candidate. pair: arguments of `suites.opening.open_pair` without a folder.
        terms: what is allowed.
    """

    def __init__(self, make: Callable[[], CandidateApart], pair: Mapping[str, Any], terms: Terms) -> None:
        self._make, self._pair, self._terms = make, pair, msgspec.to_builtins(terms)
        self._apart: CandidateApart | None = None

    def ask(self, code: str) -> Verdict:
        """The verdict of one property; the end of the process is one, too."""
        cell = Cell("candidate", code, "none", DEVICE, SUBJECT)
        try:
            self._apart = self._apart or self._make()
            data = self._apart.verdict({"code": code, "pair": self._pair, "terms": self._terms})
            return replace(decode_verdict(data), cell=cell)  # a stranger's process may have named another
        except GoneError as err:
            self.close()
            outcome, reason = (Outcome.TIMEOUT, Code.TIMED_OUT) if err.timed_out else (Outcome.CRASH, Code.CRASHED)
            return Verdict(cell, outcome, reason, str(err))
        except (CandidateError, RecordError) as err:
            self.close()
            return Verdict(cell, Outcome.ERROR, Code.HARNESS, f"no verdict: {err}")

    def close(self) -> None:
        """End the process."""
        if self._apart is not None:
            self._apart.close()
        self._apart = None


def _terms_of(contract: str | Terms, confinement: Confinement) -> Terms:
    """The terms of a contract, with what the way in which Triton's kernels run allows.

    Its interpreter computes `tl.exp` and its like by NumPy; of its compiler see `terms_of_compiled`.

    Raises:
        GivenError: `contract` names no terms.
    """
    try:
        allowed = terms(contract)
    except TermsError as err:
        raise GivenError(str(err)) from err
    if confinement.compiled:
        return terms_of_compiled(allowed)
    return replace(allowed, library="numpy") if confinement.interpret and not allowed.library else allowed


def _measure(make: Callable[[], CandidateApart], pair: dict[str, Any]) -> Timing:
    """The times of a candidate beside its spec, in a process that `make` starts, because the spec is loaded there."""
    try:
        with make() as apart:
            return apart.time(pair)
    except CandidateError as err:
        return Timing(failure=str(err))


def _require_sendable(*sent: CallArguments) -> None:
    """Require of inputs that another process can be given them.

    Raises:
        SpecError: one of them is something else.
    """
    for arguments in sent:
        for leaf in arguments.leaves:
            try:
                wire.encode([] if isinstance(leaf, torch.Tensor) else [leaf])
            except Exception as err:
                kind = type(leaf).__name__
                text = f"an input is a {kind}; need tensors, numbers and texts, which another process can take"
                raise SpecError(text) from err
        try:
            CandidateCall.of(CallArguments((), arguments.structure))
        except Exception as err:
            raise SpecError(f"the inputs stand in a structure that cannot be sent: {err}") from err


def _keep_off_the_path(*addresses: str) -> None:
    """Take the folders of files that are judged off the path on which this process finds modules of others.

    A candidate may write there. What the spec imports from its own folder is found in another way.
    """
    sys.dont_write_bytecode = True
    folders = {Path.cwd(), *(Path(address.rpartition(":")[0] or address).resolve().parent for address in addresses)}
    folders.discard(Path(torch.__file__).resolve().parents[1])
    for entry in [entry for entry in sys.path if Path(entry or ".").resolve() in folders]:
        sys.path.remove(entry)
        sources().serve(str(Path(entry or ".").resolve()))


def _candidate_contents(address: str) -> dict[str, bytes]:
    """The bytes of a candidate's file, by its path; of none where its process has to find the module."""
    try:
        file = file_of(address)
        return {} if file is None else {str(file): content_of(file)}
    except OSError as err:
        raise GivenError(f"{address}: {err}") from err


def _require_python(contents: Mapping[str, bytes]) -> None:
    """Require of a candidate's text that it can be compiled, before any of it runs.

    Raises:
        GivenError: it cannot; with the line.
    """
    for path, content in contents.items():
        try:
            if path.endswith(".py"):
                compile(content, path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as err:
            line = (getattr(err, "text", None) or "").strip()
            raise GivenError(f"{path} does not compile: {type(err).__name__}: {err}: {line}") from err


def _watch(spec: Path, before: Set[str], contents: Mapping[str, bytes]) -> Watch:
    """Watches the files that a candidate must not write.

    Args:
        spec: the spec's file. before: paths that were executed before it. contents: of the candidate's file, by path.
    """
    executed = [Path(path) for path in sources().digests if path not in before or Path(path).parent == spec.parent]
    files = [*([spec] if spec.is_file() else []), *executed]
    return Watch([*files, *map(Path, contents)], [path.parent for path in files])


def _digest(file: Path) -> str:
    """SHA-256 of a spec's file: of what was executed, or, of a module that was there before, of what the file has."""
    executed = sources().digests.get(str(file))
    return executed or (sha256(content_of(file)).hexdigest() if file.is_file() else "")
