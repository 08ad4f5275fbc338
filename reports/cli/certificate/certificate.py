"""`opassay certificate`: a statement and a page on every op of a record; `--check`: what of them no longer holds."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ....oracles.verdicts.verdict import Verdict
from ... import exit_codes
from ...certificate.checking import broken_by
from ...certificate.page import certificate_page
from ...certificate.statement import CertificateError, Data, as_json, from_json, statement
from ...record import Run, load
from ...store.files import read_capped, write_atomically
from ...text import by_key, one_line
from ..host import Host, Stop, require
from ..reading import FILE, FOLDER, as_usage
from .gathering import Facts, promised_to, results_for, sweeps_of

_RECORD = Path("opassay-report/run.json")


@click.command("certificate")
@click.argument("files", nargs=-1, type=FILE)
@click.option("--op", "ops", multiple=True, metavar="OP", help="Only this op; may be repeated.")
@click.option("--subject", "subjects", multiple=True, metavar="SUBJECT", help="Only this subject; may be repeated.")
@click.option("--record", type=FILE, help=f"A record of a run.  [default: {_RECORD}; with --check none]")
@click.option("--out", type=FOLDER, default=Path("certificates"), show_default=True, help="Where they are written.")
@click.option("--sweeps", type=FOLDER, default=Path("sweeps"), show_default=True, help="A folder of `opassay sweep`.")
@click.option("--mutation", type=FILE, default=Path("mutation.json"), show_default=True, help="What mutants showed.")
@click.option("--second-opinion", "second", type=FILE, default=Path("second-opinion.json"), show_default=True,
              help="What another reading says.")  # fmt: skip
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
            return _check_certificates(files, None if record is None else load(record), facts)
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
        own = {**op_facts["sources"]["op"], **op_facts["sources"]["formula"]}
        dtypes = list(dict.fromkeys(verdict.cell.dtype for verdict in verdicts))
        measured = {
            "mutation": results_for(options["mutation"], op, own),
            "second_opinion": results_for(options["second"], op, own),
            "sweeps": promised_to(sweeps_of(options["sweeps"], op_facts["functions"], dtypes), op_facts["contract"]),
        }
        _write(options["out"], statement(run, digest, verdicts, op_facts, measured))
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


def _check_certificates(files: Sequence[Path], newer: Run | None, facts: Facts) -> int:
    """Prints what no longer holds; the exit code."""
    broken = 0
    for path in files:
        try:
            predicate = from_json(read_capped(path))["predicate"]
            op, subject, device = (predicate[name] for name in ("op", "subject", "device"))
            verdicts = None if newer is None else [v for v in newer.verdicts if _whose(v) == (op, subject, device)]
            lines = broken_by(predicate, _facts_now(facts, op, subject, device), verdicts)
        except CertificateError as err:
            raise CertificateError(f"{path}: {err}") from err
        except (KeyError, TypeError, AttributeError) as err:
            raise CertificateError(f"{path}: is no whole certificate ({type(err).__name__}: {err})") from err
        broken += bool(lines)
        click.echo(f"{path}: {'holds' if not lines else f'{len(lines)} of what it says no longer hold'}")
        for line in lines:
            click.echo(f"  {one_line(line, 500)}")
    return exit_codes.FAILED if broken else exit_codes.OK


def _facts_now(facts: Facts, op: str, subject: str, device: str) -> Data | None:
    """The facts of an op today; None where it cannot be loaded any more."""
    try:
        return facts.of(op, subject, device)
    except CertificateError:
        return None
