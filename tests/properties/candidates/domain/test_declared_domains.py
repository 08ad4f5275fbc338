"""The domain that an author declares: what it changes, what it clashes with, and that what is derived is said in it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opassay
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain.deriving import derive_domain
from opassay.properties.candidates.domain.domain import Domain
from opassay.properties.candidates.host.module_files import GivenError
from opassay.properties.candidates.specification import specification
from opassay.reports.cli.main import main

Tensor = torch.Tensor


def rand(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    n, m = q.shape[-2], k.shape[-2]
    keep = torch.ones(n, m, dtype=torch.bool).tril(m - n)
    return torch.softmax((q @ k.mT).masked_fill(~keep, float("-inf")), -1) @ v


def grouped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    shared = q.shape[1] // k.shape[1]
    return torch.softmax(q @ k.repeat_interleave(shared, 1).mT, -1) @ v.repeat_interleave(shared, 1)


def experts(x: Tensor, w: Tensor, offsets: Tensor, scale: float = 1.0) -> Tensor:
    ends = offsets.tolist()
    return torch.cat([x[a:b] @ w[i] for i, (a, b) in enumerate(itertools.pairwise(ends))]) * scale


def decays(x: Tensor, a: Tensor) -> Tensor:
    return x * torch.exp(a)


def group_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.group_norm(x, 4, w)


QKV = (rand(2, 8, 4), rand(2, 8, 4), rand(2, 8, 4))
EXPERTS = (rand(12, 8), rand(3, 8, 4), torch.tensor([0, 5, 9, 12]), 1.0)
GROUPED = (rand(1, 4, 16, 8), rand(1, 2, 16, 8), rand(1, 2, 16, 8))


def derive(spec: Any, args: Any, domain: Any = None) -> tuple[Domain, CallArguments]:
    arguments = CallArguments.of(args).with_names(spec)
    return derive_domain(replace(specification(spec), domain=domain or {}), arguments), arguments


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("spec", "args"),
    [
        (attention, QKV), (experts, EXPERTS), (grouped, GROUPED), (group_norm, (rand(2, 64, 5), rand(64))),
        (F.cross_entropy, (rand(6, 10), torch.tensor([1, 4, 2, 7, 7, 0]))),
    ],
)  # fmt: skip
def test_what_is_derived_may_be_declared(spec: Any, args: Any) -> None:
    derived, arguments = derive(spec, args)
    names: dict[str, Any] = {}
    exec("\n".join(derived.declare(arguments)), names)
    declared, _ = derive(spec, args, names["domain"])
    assert declared.declare(arguments) == derived.declare(arguments)
    assert set(declared.describe(arguments)) == set(derived.describe(arguments))


def test_what_is_declared_is_merged_over_what_is_derived() -> None:
    declared = {"x": ("N", 8), "offsets": ("S+1",), "scale": (1.0, 0.25), "where": ["offsets: offsets into N"]}
    domain, arguments = derive(experts, EXPERTS, declared)
    lines = domain.describe(arguments)
    assert {"x.0, from 0", "w.0 = offsets.0, from 1", "constant: x.1=8 w.1=8", "scale: 1.0; also 0.25"} <= set(lines)
    assert domain.declare(arguments)[1:3] == ['    "x": ("N", 8),', '    "w": ("S", 8, "A"),']


def test_relations_hold_at_every_call() -> None:
    domain, _ = derive(attention, QKV, {"q": ("B", "N", "D"), "k": ("B", "M", "D"), "where": ["N <= M"]})
    shapes = domain.shapes
    (queries,) = (s for s in shapes.symbols if (0, 1) in s.axes)
    (keys,) = (s for s in shapes.symbols if (1, 1) in s.axes)
    allows = domain.declaration.allows
    assert allows(shapes.resized({queries: 7}))
    assert not allows(shapes.resized({queries: 9}))
    assert allows(shapes.resized({queries: 9, keys: 9}))
    assert not allows(shapes.resized({keys: 7}))


CLASHES = [
    (attention, QKV, {"z": ("N",)}, "got 'z', need arguments: q, k, v"),
    (attention, QKV, {"q": ("B", "N")}, "got q=('B', 'N'), need an extent for each axis of [2, 8, 4]"),
    (attention, QKV, {"q": ("B", "B", "D")}, "got q.0=8, need 2 of the given call"),
    (attention, QKV, {"q": ("B", 9, "D")}, "got q.1=9, need 8 of the given call"),
    (attention, QKV, {"q": ("B", "N", "-")}, "got the extent '-', need a symbol, '2*N', 'N+1', 'R*H' or a number"),
    (attention, QKV, {"q": ("B", "N", "D"), "where": ["N < 8"]}, "got 8 < 8, need relations that hold"),
    (attention, QKV, {"where": ["N < 8"]}, "got 'N', need symbols of axes"),
    (attention, QKV, {"where": ["q: small"]}, "got 'q: small', need '0 or 1'"),
    (attention, QKV, {"where": ["q: 0 or 1"]}, "got q: 0 or 1, need what holds of the given inputs"),
    (attention, QKV, {"where": ["q: in [0, 1]"]}, "got q: in [0, 1], need what holds of the given inputs"),
    (
        attention,
        QKV,
        {"q": ("B", "N", "D"), "k": ("B", "M", "E")},
        "got another D: [2, 8, 5] [2, 8, 4] [2, 8, 4], need calls that attention takes",
    ),
    (experts, EXPERTS, {"scale": 1.0}, "got scale=1.0, need a tuple of values"),
    (experts, EXPERTS, {"w": ("S", "D", "E"), "where": ["offsets: offsets into S"]}, "offsets into 3, need 12 of the"),
]


@pytest.mark.parametrize(("spec", "args", "declared", "text"), CLASHES)
def test_a_clash_is_an_error_that_says_what_is_needed(spec: Any, args: Any, declared: Any, text: str) -> None:
    with pytest.raises(GivenError) as error:
        derive(spec, args, declared)
    assert text in str(error.value)


@pytest.mark.slow
def test_a_range_is_kept_where_it_is_declared() -> None:
    def stops_above_zero(x: Tensor, a: Tensor) -> Tensor:
        return x * torch.exp(a.clamp(max=0.0))

    args = (rand(4, 6), -rand(4, 6).abs())
    words: Any = {"seed": 1, "questions": ["FWD:given", "FWD:signs", "FWD:offset", "SIZE:sizes", "VJP:grad"]}
    assert opassay.judge(stops_above_zero, decays, args, **words).verdict == "suspect"
    declared = {"where": ["a: in [-inf, 0]"]}
    judgement = opassay.judge(stops_above_zero, decays, args, domain=declared, **words)
    assert judgement.verdict == "accepted", judgement
    with pytest.raises(ValueError, match="need what holds of the given inputs"):
        opassay.judge(decays, decays, args, domain={"where": ["a: in [0, 1]"]})


def test_a_file_declares_its_domain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "reference.py"
    spec.write_text(
        "import torch\n\ndomain = {'x': ('N', 'D'), 'w': ('D',), 'where': ['N <= 5']}\n\n\n"
        "def reference(x, w):\n    return x * w\n\n\ndef inputs():\n    return torch.randn(5, 7), torch.randn(7)\n"
    )
    command = ["judge", "--domain", "--seed", "1", "--spec", str(spec)]
    assert main(command) == 0, capsys.readouterr().err
    declared = 'domain = {\n    "x": ("N", "D"),\n    "w": ("D",),\n    "where": [\'N <= 5\'],\n}\n'
    assert capsys.readouterr().out.endswith(declared)
    spec.write_text(spec.read_text().replace("5']", "4']"))
    assert main(command) == 2
    assert "domain: got 5 <= 4, need relations that hold at the given call" in "".join(capsys.readouterr())
