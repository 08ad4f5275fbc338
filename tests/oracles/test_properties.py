"""The table of properties and the checks that are bound to it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from opassay.properties.checks import CHECKS
from opassay.properties.table import (
    DTYPES,
    FORMER_NAMES,
    KINDS,
    PROPERTIES,
    TABLE,
    Property,
    Sampling,
    Where,
    bind,
    former_name,
    property_of,
)  # fmt: skip


def test_every_property_has_a_check_in_the_order_of_the_table() -> None:
    assert list(CHECKS) == list(PROPERTIES)
    assert len(set(CHECKS.values())) == len(CHECKS), "two properties ask the same"


def test_a_property_without_a_check_and_a_check_of_no_property_are_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("got none for codes=['FWD'], and unknown codes=[]")):
        bind({code: check for code, check in CHECKS.items() if code != "FWD"}, PROPERTIES)
    with pytest.raises(ValueError, match=re.escape("got none for codes=[], and unknown codes=['FWDD']")):
        bind({**CHECKS, "FWDD": CHECKS["FWD"]}, PROPERTIES)


def test_a_code_has_one_row() -> None:
    assert len({row.title for row in TABLE.values()}) == len(TABLE)
    assert PROPERTIES.keys() & KINDS.keys() == {"AUTOCAST"}
    assert {property_of(code) for code in KINDS} - PROPERTIES.keys() == {"FAR", "LIKELY", "PARITY", "POISON"}
    assert FORMER_NAMES.keys().isdisjoint(TABLE)
    assert {former_name(code) for code in TABLE if ":" in code} == FORMER_NAMES.keys()
    assert all(TABLE[code] is row for rows in (PROPERTIES, KINDS) for code, row in rows.items())
    assert all(row.code == code for code, row in TABLE.items())


def test_every_row_says_what_can_be_asked() -> None:
    for row in PROPERTIES.values():
        assert row.sampling.kind in ("ordinary", "integers", "empty", "large", "sizes"), row
        assert row.sampling.effort > 0, row
        assert set(row.dtypes) <= set(DTYPES), row
        assert row.title, row


def test_of_so_many_samples_one_at_least_is_large_but_of_two_none() -> None:
    row = Sampling(large=0.08)
    assert [row.large_of(examples) for examples in (1, 2, 3, 25, 100)] == [0, 0, 1, 2, 8]
    assert Sampling().large_of(100) == 0


def test_what_is_judged_in_a_prepared_process_is_the_op_of_torch() -> None:
    assert Property("X", "x", where=Where.PREPARED).subject_of("opassay") == "torch"
    assert Property("X", "x", where=Where.WORLD).subject_of("opassay") == "opassay"


def test_the_table_is_read_without_torch(tmp_path: Path) -> None:
    program = "import sys, opassay.properties.table; sys.exit('torch' in sys.modules or 'mpmath' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
