"""What a process knows of itself: its world, asked for when a cell is judged, and the helpers that it has started."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from opassay.properties import worlds
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.properties.catalog.over_places import run_on_ranks
from opassay.properties.worlds import Peers, World

REPOSITORY = Path(__file__).resolve().parents[2]
#: Imports modules in a process in which the world cannot be asked for.
_IMPORT = """
import importlib, sys
from opassay.properties import worlds
def asked(*args, **named):
    raise LookupError("the world was asked for")
for name in ("here", "size", "places", "run", "fabric", "tell", "helper"):
    setattr(worlds, name, asked)
for name in sys.argv[1:]:
    importlib.import_module(name)
"""


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    worlds.leave()


def _imported(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _IMPORT, *names], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_no_declaration_asks_for_the_world_while_it_is_imported(tmp_path: Path) -> None:
    modules = sorted({f"opassay.properties.catalog.{name}" for name in CATALOG.values()})
    assert _imported(tmp_path, *modules).stderr == ""
    (tmp_path / "planted.py").write_text("from opassay.properties import worlds\nON_GPUS = worlds.here().fabric\n")
    assert "the world was asked for" in _imported(tmp_path, "planted").stderr


def test_torch_moves_tensors_over_devices_where_these_are_gpus() -> None:
    devices = load_op("gather").production.devices
    assert devices is not None
    assert list(devices.peers) == []
    worlds.enter(World(fabric="cuda"))
    assert list(devices.peers) == ["torch"]
    assert callable(devices.peers["torch"])
    worlds.enter(World())
    assert "torch" not in devices.peers


def test_one_module_of_properties_has_state() -> None:
    """`global` rebinds what a module holds, and so does nothing else here but an object that is made for it."""
    results = [
        str(path.relative_to(REPOSITORY))
        for path in sorted((REPOSITORY / "properties").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Global)
    ]
    assert results == []


def test_a_world_that_is_entered_again_keeps_its_peers() -> None:
    world = World("gloo", "host", 2)
    peers = Peers(lambda case: None, lambda program: ["theirs"])
    worlds.enter(world, peers)
    worlds.enter(World("gloo", "host", 2))
    assert run_on_ranks(2, lambda comm: "mine") == ["theirs"]
    worlds.enter(World())
    assert run_on_ranks(2, lambda comm: "mine") == ["mine", "mine"]


class _PlantedWorld:
    def __init__(self, fails: bool = False) -> None:
        self.fails, self.closed = fails, 0

    def close(self) -> None:
        self.closed += 1
        if self.fails:
            raise OSError("planted")


def test_helpers_end_once_and_the_world_is_left_whatever_they_raise() -> None:
    first, second = _PlantedWorld(), _PlantedWorld(fails=True)
    worlds.keep("first", first)
    assert worlds.helper("first") is first
    worlds.dismiss("first")
    worlds.dismiss("first")
    assert (first.closed, worlds.helper("first")) == (1, None)
    worlds.keep("second", second)
    worlds.enter(World("gloo", "host", 2))
    with pytest.raises(OSError, match="planted"):
        worlds.leave()
    assert (second.closed, worlds.here()) == (1, World())
