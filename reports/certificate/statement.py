"""The certificate of an op: an in-toto Statement, made of a record and of what is known of the op besides.

It is unsigned: it says who asked what of which bytes, and a CI may sign it. The same record and the same facts give the
same bytes: keys are sorted, and no clock is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...oracles.verdicts.verdict import CHECKED, Measure, Outcome, Verdict, join_runs
from ..record import Run
from ..text import by_key, counts

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:opassay:certificate:2"
#: Entries of the environment that a claim is bound to.
VERSIONS = ("opassay", "torch", "numpy", "mpmath", "gmpy2", "hypothesis", "python", "platform", "libc", "cpu",
            "cpu capability", "cuda", "gpu", "gpu capability", "nvidia driver", "triton")  # fmt: skip

Data = dict[str, Any]


class CertificateError(ValueError):
    """A certificate cannot be made, or a file is none; the text says why."""


def statement(
    run: Run, digest: str, verdicts: Sequence[Verdict], facts: Mapping[str, Any], evidence: Mapping[str, Any]
) -> Data:
    """The statement on one op and subject.

    Args:
        run: the record. digest: SHA-256 of its file. verdicts: those of the op, subject and device.
        facts: of `properties.certificates.facts`. evidence: what else was found of the op.

    Raises:
        CertificateError: there is no verdict, or the record is of another source than the facts.
    """
    if not verdicts:
        raise CertificateError("no cell of the op is in the record")
    # The facts are of what is installed now, and a record names the source that it judged. An older record does not; it
    # is believed, and the certificate says that its source is not known.
    judged, installed = run.environment.get("source"), facts["environment"]["source"]
    if judged not in (None, installed):
        raise CertificateError("the record is of another source of opassay than is installed; run it again")
    cell = verdicts[0].cell
    sources: Mapping[str, Mapping[str, str]] = facts["sources"]
    predicate = {
        "op": cell.op,
        "subject": cell.subject,
        "device": cell.device,
        "asked": _count_questions(verdicts, facts["properties"]),
        "outcomes": {str(outcome): count for outcome, count in counts(verdicts).items()},
        "judged": _evidence(verdicts),
        "cells": [_cell_data(verdict) for verdict in sorted(verdicts, key=lambda verdict: verdict.cell.key)],
        "contract": {dtype: facts["contract"][dtype] for dtype in _axis(verdicts, "dtype")},
        "functions": list(facts["functions"]),
        "evidence": dict(evidence),
        "versions": {name: run.environment[name] for name in VERSIONS if name in run.environment}
        | {"opassay": run.version},
        "sources": {part: dict(files) for part, files in sources.items()},
        "record": {
            "sha256": digest,
            "started": run.started,
            "profile": run.profile,
            "seed": run.seed,
            "seeds": int(run.settings.get("seeds", "1")),
            "max_examples": run.max_examples,
            "plan_digest": run.plan_digest,
            "commit": run.commit,
            "dirty": run.dirty,
            "source_known": judged is not None,
        },
    }
    return {
        "_type": STATEMENT_TYPE,
        "subject": _subjects(f"{cell.op} ({cell.subject})", sources),
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def unlike(certificate: Data, remade: Data) -> list[str]:
    """A line for each part in which a certificate differs from the one that its record gives."""
    parts = {**remade, **{f"predicate.{name}": value for name, value in remade["predicate"].items()}}
    claims = {**certificate, **{f"predicate.{name}": value for name, value in certificate["predicate"].items()}}
    names = sorted((parts.keys() | claims.keys()) - {"predicate"})
    differing = [name for name in names if as_json({"": parts.get(name)}) != as_json({"": claims.get(name)})]
    return [f"{name}: the record that it was made of gives something else" for name in differing]


def as_json(certificate: Data) -> bytes:
    """The statement as JSON, the same bytes for the same statement."""
    return json.dumps(certificate, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def from_json(content: bytes) -> Data:
    """The statement of a file.

    Raises:
        CertificateError: the file is no certificate of this version.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as err:
        raise CertificateError(f"is no JSON ({type(err).__name__})") from err
    kinds = [document.get(name) for name in ("_type", "predicateType")] if isinstance(document, dict) else []
    if kinds != [STATEMENT_TYPE, PREDICATE_TYPE] or not isinstance(document.get("predicate"), dict):
        raise CertificateError(f"is no certificate: need _type {STATEMENT_TYPE}, predicateType {PREDICATE_TYPE}")
    typed: Data = document
    return typed


def _subjects(name: str, sources: Mapping[str, Mapping[str, str]]) -> list[Data]:
    """The op as a whole, by a digest of the list of its files, and then each file that ships."""
    lines = "".join(
        f"{part} {file} {files[file]}\n" for part, files in sorted(sources.items()) for file in sorted(files)
    )
    whole = {"name": name, "digest": {"sha256": hashlib.sha256(lines.encode()).hexdigest()}}
    ships = sources.get("op", {})
    return [whole, *({"name": file, "digest": {"sha256": ships[file]}} for file in sorted(ships))]


def _count_questions(verdicts: Sequence[Verdict], properties: Mapping[str, str]) -> Data:
    codes = {verdict.cell.property for verdict in verdicts if verdict.outcome is not Outcome.NOT_RUN}
    return {
        "properties": {code: properties.get(code, "") for code in sorted(codes)},
        "not_asked": sorted(set(properties) - codes),
        "dtypes": _axis(verdicts, "dtype"),
        "samples": sum(verdict.measure.samples for verdict in verdicts),
    }


def _evidence(verdicts: Sequence[Verdict]) -> Data:
    """All cells together: elements, sizes, regimes, the largest error, and how small an error would have been seen."""
    measures = [verdict.measure for verdict in verdicts]
    at = max(verdicts, key=lambda verdict: verdict.measure.max_ratio if verdict.measure.judged else -1.0)
    regimes = by_key((regime for measure in measures for regime in measure.regimes), lambda regime: regime[0])
    return {
        "elements": sum(measure.judged for measure in measures),
        "not_judged": sum(measure.not_judged for measure in measures),
        "largest_error": {
            "error_over_bound": _finite(at.measure.max_ratio),
            "cell": at.cell.key,
            "where": at.measure.worst.where if at.measure.worst else "",
            "path": at.measure.worst.path if at.measure.worst else "",
            "ulp": _finite(at.measure.max_ulp),
        },
        "regimes": {
            name: {"judged": sum(judged for _, judged, _ in group), "not_judged": sum(missed for *_, missed in group)}
            for name, group in regimes.items()
        },
        "sizes": list(extents(size for measure in measures for size in measure.sizes)),
        "detectability": {
            dtype: _detectability([verdict.measure for verdict in verdicts if verdict.cell.dtype == dtype])
            for dtype in _axis(verdicts, "dtype")
        },
    }


def _detectability(measures: Sequence[Measure]) -> Data:
    """Half-widths of accept sets in ulps: of the typical cell's median the largest, and the widest of all."""
    medians = [measure.detect_median for measure in measures if not math.isnan(measure.detect_median)]
    widest = [measure.detect_worst for measure in measures if not math.isnan(measure.detect_worst)]
    return {
        "median_of_sharpest_cell_ulp": _finite(min(medians, default=math.nan)),
        "median_of_bluntest_cell_ulp": _finite(max(medians, default=math.nan)),
        "widest_ulp": _finite(max(widest, default=math.nan)),
    }


def _cell_data(verdict: Verdict) -> Data:
    measure = verdict.measure
    row: Data = {
        "property": verdict.cell.property,
        "dtype": verdict.cell.dtype,
        "outcome": str(verdict.outcome),
        "code": str(verdict.code),
        "reason": verdict.reason,
    }
    if verdict.outcome in CHECKED:
        row |= {
            "samples": measure.samples,
            "elements": measure.judged,
            "not_judged": measure.not_judged,
            "error_over_bound": _finite(measure.max_ratio),
            "ulp": _finite(measure.max_ulp),
            "detect_median_ulp": _finite(measure.detect_median),
        }
    return row


def _axis(verdicts: Sequence[Verdict], name: str) -> list[str]:
    return list(dict.fromkeys(getattr(verdict.cell, name) for verdict in verdicts))


def _finite(value: float) -> float | str:
    """A number, or, because JSON has no others, the name of what is none."""
    return value if math.isfinite(value) else str(value)


def extents(texts: Iterable[str]) -> tuple[str, ...]:
    """Extents by argument and dim, as a measure tells them, "input dim 0: 1 to 5, 7", of all the texts together."""
    by_name: dict[str, set[tuple[int, int]]] = {}
    for text in texts:
        name, _, numbers = text.rpartition(": ")
        runs = re.findall(r"(\d+)(?: to (\d+))?", numbers)
        by_name.setdefault(name, set()).update((int(low), int(high or low)) for low, high in runs)
    return tuple(f"{name}: {join_runs(by_name[name])}" for name in sorted(by_name))


def broken_by(predicate: Data, facts: Mapping[str, Any] | None, newer: Sequence[Verdict] | None) -> list[str]:
    """What the facts of today and a newer record say against a certificate.

    Args:
        predicate: of the certificate. facts: of `properties.certificates.facts`, now; None where there is no such op.
        newer: the verdicts on the op, subject and device in a newer record; None for no record.
    """
    if facts is None:
        return ["there is no such op any more"]
    answers, properties = predicate["asked"], facts["properties"]
    then = {
        "source of": predicate["sources"],
        "version": predicate["versions"],
        "property": {code: properties.get(code, "") for code in answers["not_asked"]} | answers["properties"],
        "contract in": predicate["contract"],
    }
    now = {
        "source of": facts["sources"],
        "version": {name: facts["environment"][name] for name in then["version"] if name in facts["environment"]},
        "property": properties,
        "contract in": {dtype: facts["contract"].get(dtype, {}) for dtype in then["contract in"]},
    }
    before, after = dict(_leaves(then)), dict(_leaves(now))
    return [
        f"{name}: was {before.get(name, 'not there')}, and is {after.get(name, 'not there')}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ] + ([] if newer is None else _outcomes(predicate["cells"], newer))


def _leaves(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of a tree by the names on the way to each."""
    for name, value in tree.items():
        path = f"{above} {name}".lstrip()
        yield from _leaves(value, path) if isinstance(value, Mapping) else ((path, value),)


def _outcomes(then: Sequence[Mapping[str, Any]], newer: Sequence[Verdict]) -> list[str]:
    outcomes = {(cell["property"], cell["dtype"]): cell["outcome"] for cell in then}
    lines = []
    for verdict in newer:
        where = (verdict.cell.property, verdict.cell.dtype)
        # A newer record need not have asked everything again.
        if verdict.outcome is Outcome.NOT_RUN or where not in outcomes or outcomes[where] == verdict.outcome:
            continue
        lines.append(f"outcome: {verdict.cell.key} was {outcomes[where]}, and is {verdict.outcome}: {verdict.reason}")
    return lines
