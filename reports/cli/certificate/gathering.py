"""What a certificate needs beside a record: the facts of an op, which a worker knows, and files of other commands."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ....properties.campaign.bench import Bench, ItemLost, NotStarted
from ....properties.places.pool import fair_share, owner_of
from ....properties.sweeps import tables
from ...certificate.statement import NOT_MEASURED, CertificateError, Data
from ...store.files import read_capped
from ...text import one_line

#: Seconds that the declaration of an op may take to be loaded.
DEADLINE = 300.0
#: What a worker calls with an op.
RUNNER = "opassay.properties.certificates.facts:facts"


class Facts:
    """Asks a worker for the facts of ops, because they need torch; close it when done."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._bench: Bench | None = None

    def of(self, op: str, subject: str, device: str) -> Data:
        """The facts of one op.

        Raises:
            CertificateError: it cannot be loaded.
        """
        question = {"runner": RUNNER, "item": {"op": op, "subject": subject, "device": device}}
        # The declaration of somebody else's op may do anything to the process that loads it.
        if self._bench is not None and self._bench.owner != owner_of(op):
            self.close()
        try:
            self._bench = self._bench or Bench(owner_of(op), self._command, fair_share(1))
            answer, _ = self._bench.ask(question, DEADLINE)
        except (NotStarted, ItemLost) as err:
            self.close()
            raise CertificateError(f"{op}: its declaration cannot be loaded ({one_line(str(err), 300)})") from err
        if "result" not in answer:
            raise CertificateError(
                f"{op}: its declaration cannot be loaded ({one_line(str(answer.get('error')), 300)})"
            )
        facts: Data = answer["result"]
        return facts

    def close(self) -> None:
        """End the worker."""
        if self._bench is not None:
            self._bench.close()
        self._bench = None


def sweeps_of(folder: Path, functions: Sequence[str], dtypes: Sequence[str]) -> Any:
    """Rows of the sweeps of these functions in a folder of `opassay sweep`; NOT_MEASURED where there is none.

    Raises:
        CertificateError: a log there cannot be read.
    """
    try:
        logs = [tables.read_log(path) for path in sorted(folder.glob("*.jsonl"))]
    except (tables.SweepError, OSError) as err:
        raise CertificateError(str(err)) from err
    rows = [
        {"function": row.key.function, "dtype": row.key.dtype, "device": row.key.device, "inputs": row.inputs,
         "complete": row.complete, "ulp": row.normal, "at": row.where}
        for row in tables.swept(logs, {})
        if row.key.function.partition(":")[0] in functions and row.key.dtype in dtypes
    ]  # fmt: skip
    return rows or NOT_MEASURED


def promised_to(rows: Any, contract: Mapping[str, Any]) -> Any:
    """The rows, each with what the op's contract allows its function."""
    if rows == NOT_MEASURED:
        return rows
    # The contract's ulps are those of the format that it accumulates in, the same in every dtype of an op.
    ulps = {name: ulp for allowed in contract.values() for name, ulp in allowed["ulps"].items()}
    return [{**row, "contract": tables.promised(row["function"], row["dtype"], ulps)} for row in rows]


def results_for(path: Path | None, op: str, files: Mapping[str, str]) -> Any:
    """What a file of results says of an op; NOT_MEASURED where there is no file, or nothing of the op in it.

    A file has either `ops`, an object by op, whose entry is taken as it is, or `mutants`, of which each has a `file`
    and an `outcome`: those in files of the op are counted, and the score is that of killed and survived ones.

    Args:
        path: the file, if any. files: the files that the op consists of.

    Raises:
        CertificateError: the file cannot be read.
    """
    if path is None or not path.is_file():
        return NOT_MEASURED
    content = read_capped(path)
    try:
        results = json.loads(content)
        digest = {"sha256": hashlib.sha256(content).hexdigest()}
        if op in results.get("ops", {}):
            return {**dict(results["ops"][op]), **digest}
        mine = [str(mutant["outcome"]) for mutant in results.get("mutants", []) if _is_in(str(mutant["file"]), files)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as err:
        raise CertificateError(f"{path}: is no file of results ({type(err).__name__}: {err})") from err
    outcomes = Counter(mine)
    decided_count = outcomes["killed"] + outcomes["survived"]
    score = {"score": outcomes["killed"] / decided_count} if decided_count else {}
    return {**outcomes, "mutants": len(mine), **score, **digest} if mine else NOT_MEASURED


def _is_in(file: str, files: Mapping[str, str]) -> bool:
    return any(name == file or name.endswith(f"/{file}") for name in files)
