"""The example of docs/examples for Ray, with a stand-in for Ray."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.programs import loaded

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
SPEC = "import torch\ndef reference(x): return x * 2\ndef inputs(): return (torch.ones(4, 9),)\n"


class _Remote:
    """What Ray makes of a class, and of a method of an actor: `remote` calls it here."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def remote(self, *args: Any) -> Any:
        result = self._function(*args)
        return _Actor(result) if isinstance(self._function, type) else result


class _Actor:
    def __init__(self, own: Any) -> None:
        self._own = own

    def __getattr__(self, name: str) -> _Remote:
        return _Remote(getattr(self._own, name))


class _Pool:
    def __init__(self, actors: Sequence[Any]) -> None:
        self._actors = actors

    def map(self, call: Callable[[Any, Any], Any], values: Iterable[Any]) -> Iterator[Any]:
        for number, value in enumerate(values):
            yield call(self._actors[number % len(self._actors)], value)


@pytest.fixture(name="ray_judges")
def _ray_judges(monkeypatch: pytest.MonkeyPatch) -> Any:
    ray, util = ModuleType("ray"), ModuleType("ray.util")
    ray.remote = lambda **options: _Remote  # type: ignore[attr-defined]
    util.ActorPool = _Pool  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setitem(sys.modules, "ray.util", util)
    return loaded(EXAMPLES / "ray_judges.py")


def test_actors_judge_what_a_server_would(ray_judges: Any) -> None:
    candidates = ("x + x", "x * 3")
    request = {"spec": SPEC, "questions": ["FWD:given"], "candidate_name": "kernel"}
    requests = [{**request, "candidate": f"def kernel(x): return {each}\n"} for each in candidates]
    requests += [{**request, "candidate": "", "dtype": "float65"}, {"candidate": ""}]
    right, wrong, *refusals = ray_judges.judge_all(requests, 1)
    assert (right["judgement"]["verdict"], wrong["judgement"]["verdict"]) == ("accepted", "rejected")
    assert "dtype='float65'" in refusals[0]["error"]
    assert "spec" in refusals[1]["error"]
