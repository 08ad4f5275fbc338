"""Where the samples are on a device, laws are judged and refusals are made without tensors of the host among them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.op.declaration import OWN
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.laws import check_laws
from opassay.properties.engine.limits import sample_on
from opassay.properties.picking import drafting
from tests.oracles import stand_in_device
from tests.oracles.stand_in_device import DEVICE, StandInJudge, on_host
from tests.tiers import one_fast_in

#: How many samples are judged of each op.
SAMPLES = 2
WITH_LAWS = [name for name in CATALOG if load_op(name).laws]


@pytest.mark.parametrize("name", one_fast_in(3, WITH_LAWS))
def test_laws_hold_on_a_device(name: str) -> None:
    op = load_op(name)
    op = replace(op, subjects={OWN: on_host(op.subjects[OWN])})
    judge = StandInJudge(op, OWN, contract("float32"), "cuda")
    with stand_in_device.present():
        for seed, drawn in enumerate(drafting.drafts(op, "float32", "ordinary", 0).first(SAMPLES)):
            check_laws(judge, sample_on("cuda", drawn.draft.sample(seed)))
    assert judge.tally.judged


@pytest.mark.parametrize("name", [name for name in CATALOG if load_op(name).refusals])
def test_refusals_leave_tensors_on_their_device(name: str) -> None:
    """An op that refused a tensor of the host would pass for one that refused the mistake."""
    op = load_op(name)
    with stand_in_device.present():
        sample = sample_on("cuda", next(iter(drafting.drafts(op, "float32", "ordinary", 0).first(1))).draft.sample(0))
        wrong = {refusal.name: refusal.mutate(sample.args) or () for refusal in op.refusals}
    astray = {name for name, args in wrong.items() for a in args if isinstance(a, Tensor) and a.device != DEVICE}
    assert {name for name in astray if "another device" not in name} == set()
