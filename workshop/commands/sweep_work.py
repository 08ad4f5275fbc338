"""Sweeps of elementary functions as work of a campaign: an item is a shard, the result the logs of `sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opassay.properties.campaign.performing import Item
from opassay.reports import exit_codes
from opassay.reports.cli.campaign.work import WorkError
from opassay.reports.cli.host import Stop
from opassay.reports.exit_codes import Reason
from opassay.reports.progress import Teller

from ..sweeps.functions import FUNCTIONS
from ..sweeps.inputs import DTYPES
from ..sweeps.logs import difference, is_broken, write_log
from ..sweeps.reading import Key, Log, shards_of, swept
from .one_by_one import OneByOne
from .sweep import chosen_shards, log_to_continue, sweep_table

EVERY = "all"
#: What a worker calls with an item.
RUNNER = "workshop.sweeps.program:run_item"


class SweepWork(OneByOne):
    """Shards of sweeps on the CPU.

    Args:
        functions: names, or `EVERY` for all. dtypes: names; none for all. shards: as of `sweep --shards`.
        folder: where the logs go, and where those of earlier sweeps are. teller: who tells the user.

    Raises:
        Stop: there is no such function.
    """

    noun = "shards"

    def __init__(
        self, functions: Sequence[str], dtypes: Sequence[str], shards: str, folder: Path, teller: Teller
    ) -> None:
        self._folder, self._teller = folder, teller
        names = list(FUNCTIONS) if EVERY in functions else list(dict.fromkeys(functions))
        unknown = [name for name in names if name not in FUNCTIONS]
        if unknown:
            choices = ", ".join((EVERY, *FUNCTIONS))
            raise Stop(exit_codes.USAGE, f"unknown function: got {unknown[0]!r}, need one of {choices}")
        self._keys = [Key(name, dtype, "cpu") for name in names for dtype in dtypes or DTYPES]
        self._places: dict[str, tuple[Key, int]] = {}
        self._shards: dict[Key, dict[int, dict[str, Any]]] = {key: {} for key in self._keys}
        self._environment: dict[str, str] = {}
        self._contract: dict[str, float] = {}
        self._worst: tuple[float, str] = (0.0, "")
        self._contradictions: list[str] = []
        self.lines: list[str] = []
        for key in self._keys:
            for shard in chosen_shards(shards, shards_of(key.dtype)):
                self._places[f"{key.function} {key.dtype} shard {shard}"] = (key, shard)

    def items(self) -> Sequence[Item]:
        return [
            Item("shard", name, (key.function, key.device, key.dtype), "", _question(key, shard))
            for name, (key, shard) in self._places.items()
        ]

    def take(self, item: Item, answer: dict[str, Any], notes: Sequence[str]) -> bool:
        key, shard = self._places[item.name]
        if "error" in answer:
            raise WorkError(str(answer["error"]))
        try:
            result = answer["result"]
            measurement, self._environment = result["shard"], self._environment or dict(result["environment"])
            self._contract = dict(result["contract"])
            other = difference(self._environment, result["environment"])
            if measurement["shard"] != shard or other:
                raise WorkError(f"a shard that was measured elsewhere ({other})")
            (row,) = swept([Log(key, self._environment, {shard: measurement})], self._contract)
        except (KeyError, TypeError, ValueError) as err:
            raise WorkError(f"something that is no shard ({type(err).__name__}: {err})") from err
        self._shards[key][shard], broken = measurement, is_broken(row)
        self._teller.count_outcome(f"shards that {'exceed' if broken else 'hold'}")
        share = row.normal / row.promised if row.promised else 0.0
        self._worst = max(self._worst, (share, f"{item.name}: {row.normal:.4g} ulp of {row.promised}"))
        if broken:
            self._contradictions.append(item.name)
        return broken

    def finish(self, interrupted: str) -> list[Reason]:
        logs = []
        for key, shards in self._shards.items():
            if not shards:
                continue
            log = log_to_continue(self._folder, key, self._environment)
            log.shards = dict(sorted({**log.shards, **shards}.items()))
            write_log(self._folder, log)
            logs.append(log)
        table = sweep_table(swept(logs, self._contract))
        self.lines = table.lines() if logs else []
        missing = len(self._places) - sum(map(len, self._shards.values()))
        reasons = [(exit_codes.INCOMPLETE, f"{missing} shards of sweeps were not measured")] if missing else []
        broken = f"a contract is too tight: {', '.join(self._contradictions[:3])}"
        return reasons + ([(exit_codes.USAGE, broken)] if table.remarks else [])

    def worst(self) -> str:
        share, text = self._worst
        return f"nearest to its contract {text}" if share else ""


def _question(key: Key, shard: int) -> dict[str, Any]:
    return {"runner": RUNNER, "item": {**vars(key), "shard": shard}}
