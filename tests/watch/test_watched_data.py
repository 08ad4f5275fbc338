"""The data of a watched program are written and read back, and broken data are refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from opassay.oracles.verdicts.data import RecordError, decode_watched, encode_watched
from opassay.oracles.verdicts.verdict import Outcome
from opassay.oracles.verdicts.watched import (
    CallPlace,
    CallRecord,
    FirstSpecial,
    LossFacts,
    ProgramComparison,
    ProgramDifference,
    Site,
    SiteTotals,
    Watched,
)

_SITE = Site(
    CallPlace("aten::mm", "model.head", "train.py:3", "MmBackward0", 1),
    "float32",
    "computes",
    Outcome.FAIL,
    "outside",
    math.inf,
    SiteTotals(3, 3, 100, 0.1, -1e-5, 1e-5),
)
_WATCHED = Watched(
    "train.py",
    (_SITE,),
    (CallRecord(0, 2.5, -1e-5), CallRecord(0)),
    LossFacts("loss", -3.0, 1e-7, 2e-7),
    FirstSpecial(0, 1, "out[0] is NaN", "0/0", (), (0,)),
    (("computes", 2),),
    against=ProgramComparison("eager.py", (ProgramDifference(_SITE.place, None, "takes eps=1e-5 here"),), 3, 4, 2),
)


def test_what_is_written_is_read_back() -> None:
    assert repr(decode_watched(encode_watched(_WATCHED))) == repr(_WATCHED)


def test_a_place_names_its_pass_and_its_number() -> None:
    assert _SITE.place.name == "aten::mm backward#2"
    assert _SITE.place.text == "aten::mm of MmBackward0 (model.head, train.py:3)"


@pytest.mark.parametrize(
    "change",
    [
        {"sites": []},
        {"program": 3},
        {"other": 1},
        {"calls": [{"site": 0, "ratio": "-0x1.0p+0", "contribution": "nan"}]},
    ],
)
def test_broken_data_are_refused(change: dict[str, Any]) -> None:
    content = json.dumps(json.loads(encode_watched(_WATCHED)) | change).encode()
    with pytest.raises(RecordError):
        decode_watched(content)
