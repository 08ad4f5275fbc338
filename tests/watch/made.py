"""Watched programs that are made up, with the structure of real ones."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from dataclasses import replace

from opassay.oracles.verdicts.verdict import Outcome
from opassay.oracles.verdicts.watched import (
    CallPlace,
    CallRecord,
    FirstSpecial,
    LossFacts,
    Site,
    SiteTotals,
    Watched,
)

#: Of a layer of a transformer: module, line, and its operations in order.
_LAYER = (
    ("norm1", 18, ("native_layer_norm",)),
    ("attention", 24, ("t", "addmm", "view", "transpose", "mul", "bmm", "_softmax", "bmm", "clone", "addmm")),
    ("", 31, ("add",)),
    ("norm2", 33, ("native_layer_norm",)),
    ("mlp.up", 40, ("t", "addmm")),
    ("mlp", 41, ("gelu",)),
    ("mlp.down", 42, ("t", "addmm")),
    ("", 44, ("add",)),
)
_MOVES = frozenset({"t", "view", "transpose", "clone", "select"})
_CARD = """  out[0, 2, 5] is outside
  computed   0x1.8p-3 = 0.1875
  exact      0.18743
  bound      7.1e-8
  wrong      120 of 24,576 elements, all in the last rows of dim 1"""
_OPERANDS = ("input: float32 [8, 64, 48], from -3.2 to 4.1, no NaN", "weight: float32 [48], from 0.9 to 1.1")


class _Recorder:
    """Sites and calls as a recorder would number them."""

    def __init__(self, seed: int) -> None:
        self.draws = random.Random(seed)
        self.sites: list[Site] = []
        self.calls: list[CallRecord] = []
        self._at: dict[tuple[str, str, str], int] = {}
        self._numbers: dict[tuple[str, str, bool], int] = defaultdict(int)

    def call(self, op: str, module: str, line: str, node: str = "", kind: str = "") -> int:
        key = (op, module, line + node)
        if key not in self._at:
            number = self._numbers[op, module, bool(node)]
            self._numbers[op, module, bool(node)] += 1
            place = CallPlace(f"aten::{op}", module, line, node, number)
            kind = kind or ("moves" if op in _MOVES else "computes")
            self._at[key] = len(self.sites)
            self.sites.append(Site(place, "float32", kind, Outcome.VERIFIED, "held", first=len(self.calls)))
        i = self._at[key]
        computes = self.sites[i].kind in ("computes", "casts")
        ratio = 10 ** self.draws.uniform(-3, -0.1) if computes else 0.0
        if self.sites[i].kind in ("random", "memory"):
            ratio = math.nan
        error = self.draws.gauss(0, 1e-9) if computes and not node else math.nan
        self.calls.append(CallRecord(i, ratio, error))
        return i

    def watched(self, **parts: object) -> Watched:
        mine: dict[int, list[CallRecord]] = defaultdict(list)
        for call in self.calls:
            mine[call.site].append(call)
        sites = tuple(_totalled(site, mine[i], self.draws) for i, site in enumerate(self.sites))
        kinds: dict[str, int] = defaultdict(int)
        for site in sites:
            kinds[site.kind] += site.totals.calls
        known = [call.contribution for call in self.calls if not math.isnan(call.contribution)]
        explained = math.fsum(known)
        loss = LossFacts("loss", 3.40127, explained, math.fsum(map(abs, known)))
        whole = Watched("train.py", sites, tuple(self.calls), loss, None, tuple(kinds.items()))
        return replace(whole, **parts)  # type: ignore[arg-type]


def _totalled(site: Site, calls: list[CallRecord], draws: random.Random) -> Site:
    ratios = [call.ratio for call in calls if not math.isnan(call.ratio)]
    known = [call.contribution for call in calls if not math.isnan(call.contribution)]
    totals = SiteTotals(
        len(calls), len(ratios), 1024 * len(ratios), draws.uniform(1e-5, 1e-3) * len(calls),
        math.fsum(known) if known else math.nan, math.fsum(map(abs, known)),
    )  # fmt: skip
    ratio = max(ratios, default=0.0)
    outside = sum(ratio > 1 for ratio in ratios)
    if outside:
        return replace(
            site, outcome=Outcome.FAIL, reason=f"{outside} of {len(calls)} calls outside", ratio=ratio, totals=totals,
            card=_CARD, operands=_OPERANDS, case=f"call-{site.first:06d}",
        )  # fmt: skip
    if not ratios:
        if site.kind == "memory":
            return replace(site, outcome=Outcome.NOT_RUN, reason="it takes memory", totals=totals)
        return replace(site, outcome=Outcome.UNSUPPORTED, reason="no reading of this operation", totals=totals)
    return replace(site, ratio=ratio, totals=totals, operands=_OPERANDS)


def _steps(layers: int, steps: int, seed: int) -> _Recorder:
    recorder = _Recorder(seed)
    for _ in range(steps):
        recorder.call("embedding", "model.embedding", "model.py:61", kind="moves")
        recorder.call("empty", "", "train.py:12", kind="memory")
        done = []
        for layer in range(layers):
            for module, number, ops in _LAYER:
                path = f"model.layers.{layer}" + (f".{module}" if module else "")
                for op in ops:
                    recorder.call(op, path, f"model.py:{number}")
                    done.append((op, path, f"model.py:{number}"))
        for op in ("native_layer_norm", "mm", "_log_softmax", "nll_loss_forward"):
            recorder.call(op, "model.head" if op == "mm" else "", "train.py:41")
            done.append((op, "model.head" if op == "mm" else "", "train.py:41"))
        for op, path, line in reversed(done):
            node = f"{op.strip('_').title().replace('_', '')}Backward0"
            backward = f"{op}_backward" if op in ("native_layer_norm", "gelu", "_softmax", "_log_softmax") else op
            recorder.call(backward.replace("addmm", "mm"), path, line, node)
            if op in ("addmm", "bmm", "mm"):
                recorder.call("mm" if op != "bmm" else "bmm", path, line, node + "_2")
        for _ in range(3):
            recorder.call("_foreach_addcdiv_", "", "train.py:52")
    return recorder


def held_program(layers: int = 12, steps: int = 1) -> Watched:
    """A transformer of which every call held."""
    return _steps(layers, steps, 1).watched()


def faulty_program(layers: int = 12, steps: int = 3) -> Watched:
    """The same with a norm outside, forward and backward, one call that is not read, and a region without a spec."""
    recorder = _steps(layers, steps, 2)
    for i, call in enumerate(recorder.calls):
        place = recorder.sites[call.site].place
        if place.module == f"model.layers.{layers // 2}.norm1":
            error = -3.1e-7 if not place.node else math.nan
            recorder.calls[i] = CallRecord(call.site, recorder.draws.uniform(500, 1000), error)
        if place.op == "aten::mm" and place.module == "model.head" and not place.node:
            recorder.calls[i] = CallRecord(call.site)
    return recorder.watched(regions=(("rotary::apply", 24),))


def infinite_program() -> Watched:
    """The same with a division that gives the first NaN."""
    watched = faulty_program()
    at = next(
        i for i, call in enumerate(watched.calls) if watched.sites[call.site].place.op == "aten::native_layer_norm"
    )
    site = watched.calls[at].site
    return replace(
        watched,
        loss=LossFacts("loss", math.nan, math.nan, math.nan),
        special=FirstSpecial(
            site, at, "out[3, 4] is NaN", "0/0: the variance of row 3 is 0, and eps is 0",
            ("input: float32 [8, 64], 0 throughout row 3", "eps: 0.0"), tuple(range(site + 1, site + 12)),
        ),
    )  # fmt: skip


def hostile_program(text: str) -> Watched:
    """A program in which every text is `text`."""
    watched = infinite_program()
    sites = tuple(
        replace(
            site, place=replace(site.place, op=text, module=text, line=text, number=i), reason=text, card=text,
            operands=(text,), case=text, kind=site.kind, dtype=text,
        )
        for i, site in enumerate(watched.sites)
    )  # fmt: skip
    assert watched.special is not None
    special = replace(watched.special, what=text, why=text, operands=(text,))
    loss = replace(LossFacts(text, 1.0, 1e-7, 2e-7), unknown=(text,))
    return Watched(text, sites, watched.calls, loss, special, ((text, 3),), text, ((text, 4),))


def large_program(steps: int = 100) -> Watched:
    """A program of some 100,000 calls."""
    return faulty_program(24, steps)
