"""What of a certificate no longer holds, as sentences; none where all of it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...oracles.verdicts.verdict import Outcome, Verdict
from .statement import VERSIONS, Data

#: Names of the parts of an op's source, in words.
_PARTS = {"op": "the op", "formula": "the formula", "declaration": "the declaration"}


def broken_by(predicate: Data, facts: Mapping[str, Any] | None, newer: Sequence[Verdict] | None) -> list[str]:
    """What the facts of today and a newer record say against a certificate.

    Args:
        predicate: of the certificate. facts: of `properties.certificates.facts`, now; None where there is no such op.
        newer: the verdicts on the op, subject and device in a newer record; None for no record.
    """
    if facts is None:
        return ["there is no such op any more"]
    return [
        *_changed_files(predicate["sources"], facts["sources"]),
        *_versions(predicate["versions"], facts["environment"]),
        *_properties(predicate["asked"], facts["properties"]),
        *_contract(predicate["contract"], facts["contract"]),
        *([] if newer is None else _outcomes(predicate["cells"], newer)),
    ]


def _changed_files(then: Mapping[str, Mapping[str, str]], now: Mapping[str, Mapping[str, str]]) -> list[str]:
    lines = []
    for part, words in _PARTS.items():
        before, after = then.get(part, {}), now.get(part, {})
        for file in sorted({*before, *after}):
            if file not in after:
                lines.append(f"source of {words}: {file} is no part of it any more")
            elif file not in before:
                lines.append(f"source of {words}: {file} has become a part of it")
            elif before[file] != after[file]:
                lines.append(f"source of {words}: {file} has changed")
    return lines


def _versions(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"version: {name} was {then[name]}, and is {now.get(name, 'not there')}"
        for name in VERSIONS
        if name in then and then[name] != now.get(name)
    ]


def _properties(then: Mapping[str, Any], now: Mapping[str, str]) -> list[str]:
    earlier = {*then["properties"], *then["not_asked"]}
    new = [f"property: {code} ({now[code]}) exists now, and was not asked" for code in now if code not in earlier]
    changed = [
        f"property: {code} was {title!r}, and is {now.get(code, 'gone')!r}"
        for code, title in then["properties"].items()
        if now.get(code) != title
    ]
    return new + changed


def _contract(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    return [
        f"contract: in {dtype}, {name} was {then[dtype][name]}, and is {now.get(dtype, {}).get(name)}"
        for dtype in then
        for name in then[dtype]
        if now.get(dtype, {}).get(name) != then[dtype][name]
    ]


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
