"""Case files: every value comes back to the bit, and a broken file says so."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.op.bits import same_bits
from opassay.oracles.op.declaration import Sample
from opassay.oracles.verdicts import case
from opassay.oracles.verdicts.case import CaseError, case_id, dump_case, load_case
from opassay.oracles.verdicts.verdict import Cell

CELL = Cell("layer_norm", "VJP", "float32", "cpu", "opassay")
FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
INTEGERS = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.bfloat16: torch.int16,
    torch.float16: torch.int16,
}


def _again(*args: Any) -> tuple[Any, ...]:
    cell, sample = load_case(dump_case(CELL, Sample(args, 7, "ties")))
    assert cell == CELL
    assert (sample.seed, sample.regime) == (7, "ties")
    return sample.args


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and (same_bits(a, b) if a.is_floating_point() else torch.equal(a, b))
    return type(a) is type(b) and (a == b or a != a) and math.copysign(1, a or 0) == math.copysign(1, b or 0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_bit_pattern_comes_back(dtype: torch.dtype) -> None:
    """Zeros of both signs, subnormals, infinities and NaNs with payloads among them."""
    kind = INTEGERS[dtype]
    info = torch.iinfo(kind)
    patterns = torch.randint(info.min, info.max, (500,), dtype=kind, generator=torch.Generator().manual_seed(3))
    infinity = torch.tensor([math.inf, -math.inf, -0.0], dtype=dtype).view(kind)
    edges = torch.cat([patterns, infinity, infinity + 1, torch.tensor([0, 1, -1, info.min, info.max], dtype=kind)])
    (back,) = _again(edges.view(dtype))
    assert torch.equal(back.view(kind), edges)


@pytest.mark.parametrize("dtype", FLOATS)
def test_a_dtype_comes_back(dtype: torch.dtype) -> None:
    assert _again(dtype, None) == (dtype, None)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_integers_and_booleans_come_back(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1], [1, 0]], dtype=dtype)
    assert _equal(_again(tensor)[0], tensor)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (2, 3)])
def test_every_shape_comes_back(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    (back,) = _again(tensor)
    assert back.shape == shape
    assert same_bits(back, tensor)


@pytest.mark.parametrize("view", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:], lambda t: t[:1].expand(3, 4)])
def test_a_view_comes_back_by_its_values(view: Callable[[Tensor], Tensor]) -> None:
    tensor = view(torch.arange(12.0).reshape(3, 4))
    assert torch.equal(_again(tensor)[0], tensor)


def test_a_tensor_that_requires_grad_comes_back_without() -> None:
    assert not _again(torch.ones(2, requires_grad=True))[0].requires_grad


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -3, 2**70, 1e-5, -0.0, 5e-324, math.inf, -math.inf, math.nan,
     "a\n\u2028\"", (), (1, 2.0, None, (True,))],
)  # fmt: skip
def test_every_other_value_comes_back(value: Any) -> None:
    (back,) = _again(value)
    if isinstance(value, (int, float)):
        assert _equal(back, value)
    else:
        assert back == value
        assert type(back) is type(value)


def test_slices_come_back() -> None:
    sample = Sample((torch.ones(2), 1), 3, "benign", ((torch.zeros(2), 2), (torch.full((2,), 5.0), 3)))
    _, back = load_case(dump_case(CELL, sample))
    assert [[float(args[0][0]), args[1]] for args in back.slices] == [[0.0, 2], [5.0, 3]]


def test_others_come_back_and_a_sample_without_them_says_nothing_of_them() -> None:
    sample = Sample((torch.ones(2), 1), 3, others=((torch.zeros(4), 2),))
    _, back = load_case(dump_case(CELL, sample))
    ((tensor, number),) = back.others
    assert torch.equal(tensor, torch.zeros(4))
    assert number == 2
    assert "others" not in dump_case(CELL, Sample((torch.ones(2), 1), 3))


def test_the_text_is_a_fixed_point_and_its_id_depends_on_cell_and_text() -> None:
    text = dump_case(CELL, Sample((torch.ones(2), 1e-5, (2,), None), 3))
    assert dump_case(*load_case(text)) == text
    other = Cell("layer_norm", "JVP", "float32", "cpu", "opassay")
    assert case_id(CELL, text).startswith(CELL.id + "-")
    assert len({case_id(CELL, text), case_id(other, text), case_id(CELL, text + " ")}) == 3


# ---------------------------------------------------------------------------------------- broken files


def _text(change: Callable[[dict[str, Any]], Any]) -> str:
    body = json.loads(dump_case(CELL, Sample((torch.ones(2), 1e-5), 3)))
    change(body)
    return json.dumps(body)


def _tensor(**changes: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda body: body["args"][0].update(changes)


def _second(item: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda body: body["args"].__setitem__(1, item)


def _without(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda body: body.pop(name)


FAULTS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    **{f"no {name}": (_without(name), name) for name in ("schema", "cell", "args", "slices", "seed", "regime")},
    "another schema": (lambda body: body.update(schema="opassay-case/2"), "opassay-case/2"),
    "a field of the cell missing": (lambda body: body["cell"].pop("dtype"), "dtype"),
    "a field of the cell too many": (lambda body: body["cell"].update(color="red"), "color"),
    "cell is a list": (lambda body: body.update(cell=[]), "broken field"),
    "args is a number": (lambda body: body.update(args=3), "broken field"),
    "args is null": (lambda body: body.update(args=None), "broken field"),
    "args is a string": (lambda body: body.update(args="abc"), "broken field"),
    "slices of numbers": (lambda body: body.update(slices=[3]), "broken field"),
    "seed is a word": (lambda body: body.update(seed="one"), "one"),
    "seed is null": (lambda body: body.update(seed=None), "broken field"),
    "another dtype": (_tensor(dtype="float8"), "float8"),
    "dtype is a list": (_tensor(dtype=[]), "broken field"),
    "no bits": (lambda body: body["args"][0].pop("bits"), "bits"),
    "no shape": (lambda body: body["args"][0].pop("shape"), "shape"),
    "bits are no hexadecimal": (_tensor(bits="xyz"), "hexadecimal"),
    "half a byte": (_tensor(bits="000"), "broken field"),
    "too few bytes": (_tensor(bits="00"), r"got 1 bytes for shape=\[2\], need 8"),
    "another shape": (_tensor(shape=[3]), r"got 8 bytes for shape=\[3\], need 12"),
    "a huge shape": (_tensor(shape=[2**62, 2**62]), "got 8 bytes"),
    "a negative extent": (_tensor(shape=[-1, -2]), r"shape=\[-1, -2\]"),
    "a shape of words": (_tensor(shape=["a"]), "broken field"),
    "another kind of value": (_second({"complex": 1}), "complex"),
    "two kinds of value": (_second({"int": 1, "float": "0x1p0"}), "got keys="),
    "no kind of value": (_second({}), "broken field"),
    "a number alone": (_second(3), "broken field"),
    "an int that is a word": (_second({"int": "3"}), "got kind='int'"),
    "a float that is a number": (_second({"float": 1.5}), "broken field"),
    "a float that is a word": (_second({"float": "one"}), "broken field"),
    "a value that is a number": (_second({"value": 3}), "got kind='value'"),
    "a tuple of numbers": (_second({"tuple": [3]}), "broken field"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_file_says_what_is_broken(name: str) -> None:
    change, text = FAULTS[name]
    with pytest.raises(CaseError, match=text):
        load_case(_text(change))


OVERFLOWING: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a float beyond binary64": _second({"float": "0x1p9999"}),
    "an infinite seed": lambda body: body.update(seed=math.inf),
    "an extent beyond 64 bits": _tensor(shape=[2**70, 0], bits=""),
}


@pytest.mark.parametrize("name", ["a float beyond binary64", "an infinite seed"])
def test_a_number_out_of_range_says_so(name: str) -> None:
    with pytest.raises(CaseError, match="broken field"):
        load_case(_text(OVERFLOWING[name]))


def test_an_extent_out_of_range_says_so() -> None:
    with pytest.raises(CaseError, match="broken field"):
        load_case(_text(OVERFLOWING["an extent beyond 64 bits"]))


def test_a_number_too_long_says_so() -> None:
    text = _text(lambda body: None).replace('"seed": 3', '"seed": ' + "1" * 5000)
    with pytest.raises(CaseError) as error:
        load_case(text)
    assert type(error.value) is CaseError


@pytest.mark.parametrize("depth", [300, 900, 3000, 100_000])
def test_nesting_has_an_end(depth: int) -> None:
    nested = '{"tuple": [' * depth + '{"int": 1}' + "]}" * depth
    text = _text(_second({"str": "HERE"})).replace('{"str": "HERE"}', nested)
    try:
        load_case(text)
    except CaseError:
        return
    assert depth < 1000


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "3", '"text"', "[" * 100_000, "\x00", '{"schema": {}}'])
def test_text_that_is_no_case_file(text: str) -> None:
    with pytest.raises(CaseError, match=r"^case file: (not JSON|got schema=)"):
        load_case(text)


def test_a_text_above_the_limit_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = dump_case(CELL, Sample((torch.ones(2),), 3))
    monkeypatch.setattr(case, "LARGEST_TEXT", len(text))
    load_case(text)
    monkeypatch.setattr(case, "LARGEST_TEXT", len(text) - 1)
    with pytest.raises(CaseError, match=f"got {len(text)} characters, need at most {len(text) - 1}"):
        load_case(text)
