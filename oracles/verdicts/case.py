"""Case files: one sample as text, exact to the bit, independent of any generator's version."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import torch

from ...reference.dtypes import EVERY_FORMAT
from ..op.declaration import Sample, Tensor, dtype_name
from .verdict import AXES, MAX_CASE, Cell

SCHEMA = "opassay-case/1"
#: The longest text that is read: twice what a record may hold of a case (`verdict.MAX_CASE`).
LARGEST_TEXT = 2 * MAX_CASE
_DTYPES = {
    name: getattr(torch, name) for name in (*EVERY_FORMAT, "int64", "int32", "uint8", "bool") if hasattr(torch, name)
}


class CaseError(ValueError):
    """A case file that cannot be read; the text says where it is wrong."""


def dump_case(cell: Cell, sample: Sample) -> str:
    """The case file of a sample that was judged in a cell."""
    body = {
        "schema": SCHEMA,
        "cell": {k: getattr(cell, k) for k in AXES},
        "seed": sample.seed,
        "regime": sample.regime,
        "args": [_encode(a) for a in sample.args],
        "slices": [[_encode(a) for a in args] for args in sample.slices],
        # Few properties take these, and the name of a case is made of its text: so the others write nothing.
        **({"others": [[_encode(a) for a in args] for args in sample.others]} if sample.others else {}),
    }
    return json.dumps(body, indent=1)


def case_id(cell: Cell, text: str) -> str:
    """Cell id, and four hex digits of the sample."""
    return f"{cell.id}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"


def load_case(text: str) -> tuple[Cell, Sample]:
    """The cell and sample of a case file.

    Raises:
        CaseError: not JSON, another schema, or a field missing or out of range.
    """
    if not isinstance(text, str):
        raise CaseError(f"case file: got a {type(text).__name__}, need its text")
    # A case file may come from anybody, so its size is checked before a parser spends memory on it.
    if len(text) > LARGEST_TEXT:
        raise CaseError(f"case file: got {len(text)} characters, need at most {LARGEST_TEXT}")
    try:
        body = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise CaseError(f"case file: not JSON ({err})") from err
    if not isinstance(body, dict) or body.get("schema") != SCHEMA:
        schema = body.get("schema") if isinstance(body, dict) else type(body).__name__
        raise CaseError(f"case file: got schema={schema!r}, need {SCHEMA!r}")
    try:
        cell = Cell(**{k: str(v) for k, v in body["cell"].items()})
        args = tuple(_decode(a) for a in body["args"])
        slices, others = (
            tuple(tuple(_decode(a) for a in row) for row in rows) for rows in (body["slices"], body.get("others", ()))
        )
        seed = int(body["seed"])
        if seed < 0:
            raise CaseError(f"case file: got seed={seed}, need at least 0")
        return cell, Sample(args, seed, str(body["regime"]), slices, others)
    # A CaseError is a ValueError, too, which the next clause would wrap into a second sentence about a broken field.
    except CaseError:
        raise
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, RuntimeError) as err:
        raise CaseError(f"case file: broken field ({type(err).__name__}: {err})") from err


def _encode(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value)
    # This comes before the integers, because bool is a subclass of int, and they would be written as the wrong kind.
    if isinstance(value, bool) or value is None:
        return {"value": value}
    if isinstance(value, int):
        return {"int": value}
    if isinstance(value, float):
        # Hexadecimal text keeps every bit, and JSON has no numbers for NaN and infinities.
        return {"float": value.hex()}
    if isinstance(value, str):
        return {"str": value}
    if isinstance(value, torch.dtype):
        return {"torch": dtype_name(value)}
    return {"tuple": [_encode(v) for v in value]}


def _encode_tensor(t: Tensor) -> dict[str, Any]:
    raw = (
        t.detach().cpu().contiguous().reshape(-1).view(torch.uint8) if t.numel() else torch.empty(0, dtype=torch.uint8)
    )
    return {"dtype": dtype_name(t.dtype), "shape": list(t.shape), "bits": bytes(raw.numpy()).hex()}


def _decode(item: Any) -> Any:
    if "dtype" in item:
        return _decode_tensor(item)
    (kind, value), *rest = item.items()
    if rest:
        raise CaseError(f"case file: got keys={sorted(item)}, need one")
    match kind:
        case "value" if value is None or isinstance(value, bool):
            return value
        case "int" if isinstance(value, int):
            return value
        case "float":
            return float.fromhex(value)
        case "str":
            return str(value)
        case "torch" if value in _DTYPES:
            return _DTYPES[value]
        case "tuple":
            return tuple(_decode(v) for v in value)
    raise CaseError(f"case file: got kind={kind!r}, need value, int, float, str, torch or tuple")


def _decode_tensor(item: dict[str, Any]) -> Tensor:
    if item["dtype"] not in _DTYPES:
        raise CaseError(f"case file: got dtype={item['dtype']!r}, need one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[item["dtype"]]
    raw = bytearray(bytes.fromhex(item["bits"]))
    shape = [int(n) for n in item["shape"]]
    # The extents are multiplied as Python's integers, which cannot overflow. So a file that claims a huge tensor is
    # refused here, before torch reserves memory for it.
    count = 1
    for n in shape:
        if n < 0:
            raise CaseError(f"case file: got shape={shape}, need extents of at least 0")
        count *= n
    if len(raw) != count * dtype.itemsize:
        raise CaseError(f"case file: got {len(raw)} bytes for shape={shape}, need {count * dtype.itemsize}")
    if not raw:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).reshape(shape).clone()
