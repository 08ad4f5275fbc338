"""`opassay certificate`: a statement and a page on every op of a record; `--check`: what of them no longer holds.

The facts of an op come from a worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ...oracles.verdicts.verdict import Verdict
from ...properties.places.pool import ALONE, fair_share, owner_of
from ...properties.places.process import AnswerError, EndedError, Process
from ...properties.programs import WORKER
from .. import exit_codes
from ..certificate.page import certificate_page
from ..certificate.statement import CertificateError, Data, as_json, broken_by, from_json, statement, unlike
from ..record import Run, load
from ..store.files import read_capped, write_atomically
from ..text import by_key, one_line
from .host import Host, Stop, require
from .reading import FILE, FOLDER, RECORD_PATH, as_usage

_RECORD = Path("opassay-report/run.json")


@click.command("certificate")
@click.argument("files", nargs=-1, type=FILE)
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only this op; may be repeated.")
@click.option("--subject", "subjects", multiple=True, metavar="SUBJECT", help="Only this subject; may be repeated.")
@click.option("--record", type=RECORD_PATH, help=f"A record of a run.  [default: {_RECORD}; with --check none]")
@click.option("--out", type=FOLDER, default=Path("certificates"), show_default=True, help="Where they are written.")
@click.option("--evidence", multiple=True, type=FILE, help="What else was found, by op; may be repeated.")
@click.option("--check", is_flag=True, help="Say what in these FILES no longer holds.")
@click.pass_obj
def certificate_command(host: Host, /, files: tuple[Path, ...], check: bool, **options: Any) -> int:
    """Write an in-toto statement and a page for each op of a record; or, with --check, say what no longer holds.

    Exit codes of --check: 0 all of it holds, 1 something does not, 2 usage.
    """
    if check != bool(files):
        raise Stop(exit_codes.USAGE, "--check: need FILES with it, and none without it")
    require("torch")
    record = options["record"]
    with as_usage(CertificateError), contextlib.closing(Facts(host.worker)) as facts:
        if check:
            return _check_certificates(files, record, facts)
        count = _write_certificates(record or _RECORD, options, facts)
    if not count:
        raise Stop(exit_codes.NOTHING, f"no cell of these ops and subjects is in {record or _RECORD}")
    return exit_codes.OK


def _write_certificates(path: Path, options: dict[str, Any], facts: Facts) -> int:
    """Writes a certificate for every op and subject of a record that is wanted; how many those are."""
    run, digest, count = load(path), hashlib.sha256(read_capped(path)).hexdigest(), 0
    ops, subjects = options["ops"], options["subjects"]
    _require_all(ops, run)
    for (op, subject, device), verdicts in by_key(run.verdicts, _whose).items():
        if (ops and op not in ops) or (subjects and subject not in subjects):
            continue
        op_facts = facts.of(op, subject, device)
        evidence = evidence_on(op, options["evidence"])
        _write(options["out"], statement(run, digest, verdicts, op_facts, evidence))
        count += 1
    return count


def _whose(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.cell.op, verdict.cell.subject, verdict.cell.device


def _require_all(ops: Sequence[str], run: Run) -> None:
    recorded_ops = dict.fromkeys(verdict.cell.op for verdict in run.verdicts)
    missing = [op for op in ops if op not in recorded_ops]
    if missing:
        raise CertificateError(f"op: got {missing[0]!r}, and the record has {one_line(', '.join(recorded_ops), 500)}")


def _write(out: Path, certificate: Data) -> None:
    predicate = certificate["predicate"]
    words = [predicate["op"], *([predicate["subject"]] if predicate["subject"] != "opassay" else [])]
    words += [predicate["device"]] if predicate["device"] != "cpu" else []
    # The name of an op of somebody else is an address, and may hold what a file name must not.
    stem = "-".join(re.sub(r"[^A-Za-z0-9_.]+", "-", word) for word in words)[:100]
    out.mkdir(parents=True, exist_ok=True)
    write_atomically(out / f"{stem}.json", as_json(certificate))
    write_atomically(out / f"{stem}.md", certificate_page(certificate).encode("utf-8", "replace"))
    click.echo(f"{out / stem}.json")


def _check_certificates(files: Sequence[Path], record: Path | None, facts: Facts) -> int:
    """Prints what no longer holds; the exit code.

    Args:
        files: the certificates. record: of a run; one that a certificate was made of has to give the same again.
        facts: of their ops.
    """
    broken, newer = 0, None if record is None else load(record)
    for path in files:
        try:
            certificate = from_json(read_capped(path))
            predicate = certificate["predicate"]
            op, subject, device = (predicate[name] for name in ("op", "subject", "device"))
            verdicts = None if newer is None else [v for v in newer.verdicts if _whose(v) == (op, subject, device)]
            op_facts = None
            with contextlib.suppress(CertificateError):  # it cannot be loaded any more
                op_facts = facts.of(op, subject, device)
            lines = broken_by(predicate, op_facts, verdicts)
            if record is not None and newer is not None and op_facts is not None and verdicts:
                lines += _unlike_record(certificate, record, newer, verdicts, op_facts)
        except CertificateError as err:
            raise CertificateError(f"{path}: {err}") from err
        except (KeyError, TypeError, AttributeError) as err:
            raise CertificateError(f"{path}: is no whole certificate ({type(err).__name__}: {err})") from err
        broken += bool(lines)
        click.echo(f"{path}: {'holds' if not lines else f'{len(lines)} of what it says no longer hold'}")
        for line in lines:
            click.echo(f"  {one_line(line, 500)}")
    return exit_codes.FAILED if broken else exit_codes.OK


def _unlike_record(
    certificate: Data, path: Path, run: Run, verdicts: Sequence[Verdict], op_facts: Data
) -> Sequence[str]:
    """What a certificate says and its own record does not; nothing where it was made of another record."""
    predicate, digest = certificate["predicate"], hashlib.sha256(read_capped(path)).hexdigest()
    if predicate["record"]["sha256"] != digest:
        return []
    try:
        return unlike(certificate, statement(run, digest, verdicts, op_facts, predicate["evidence"]))
    except CertificateError:  # The sources have changed since, which is a line already.
        return []


#: Seconds that the declaration of an op may take to be loaded.
DEADLINE = 300.0


class Facts:
    """Asks a worker for the facts of ops, because they need torch; close it when done."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: Process | None = None
        self._owner = ""

    def of(self, op: str, subject: str, device: str) -> Data:
        """The facts of one op.

        Raises:
            CertificateError: it cannot be loaded.
        """
        # The declaration of somebody else's op may do anything to the process that loads it.
        if self._owner != owner_of(op):
            self.close()
        until = time.monotonic() + DEADLINE
        try:
            if self._process is None:
                self._owner = owner_of(op)
                self._process = Process({**ALONE, "memory": fair_share(1)}, command=self._command or WORKER)
                self._process.answer(until)  # that it is ready
            self._process.ask({"facts": {"op": op, "subject": subject, "device": device}})
            answer = self._process.answer(until)
        except (AnswerError, EndedError) as err:
            self.close()
            raise CertificateError(f"{op}: its declaration cannot be loaded ({one_line(str(err), 300)})") from err
        if "result" not in answer:
            fault = one_line(str(answer.get("error")), 300)
            raise CertificateError(f"{op}: its declaration cannot be loaded ({fault})")
        facts: Data = answer["result"]
        return facts

    def close(self) -> None:
        """End the worker, and all that an op started there."""
        if self._process is not None:
            self._process.close()
        self._process = None


def evidence_on(op: str, paths: Sequence[Path]) -> Data:
    """What files say of an op besides, `{"ops": {op: {...}}}`: by the name of the file, with the digest of that.

    Raises:
        CertificateError: a file cannot be read.
    """
    evidence: Data = {}
    for path in paths:
        content = read_capped(path)
        try:
            own = json.loads(content)["ops"].get(op)
            if own is not None:
                evidence[path.stem] = {**own, "sha256": hashlib.sha256(content).hexdigest()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
            raise CertificateError(f"{path}: is no file of results by op ({type(err).__name__}: {err})") from err
    return evidence
