"""The examples of docs/examples: an adapter for Ray, and an environment, with stand-ins for Ray and for a judge."""

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


class _Judge:
    """Accepts candidates that double, and cannot judge by a spec that is empty."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[str, str]] = {}
        self.options: dict[str, Any] = {}

    def submit(self, candidates: Sequence[str], spec: str, **options: Any) -> list[str]:
        names = [str(len(self.items) + i) for i in range(len(candidates))]
        self.items |= {name: (text, spec) for name, text in zip(names, candidates, strict=True)}
        self.options = options
        return names

    def wait(self, name: str) -> dict[str, Any]:
        text, spec = self.items[name]
        if not spec:
            return {"state": "done", "error": "spec.py: has no reference"}
        right = text.strip() == "x * 2"
        causes = [] if right else [{"question": "FWD:given", "text": "out[0] is outside its accept set"}]
        return {"state": "done", "judgement": {"verdict": "accepted" if right else "rejected", "causes": causes}}


def test_an_episode_ends_with_an_accepted_candidate_or_with_the_last_attempt() -> None:
    module, judge = loaded(EXAMPLES / "kernel_environment.py"), _Judge()
    environment = module.KernelEnvironment(judge, {"double": SPEC, "none": ""}, attempts=2, stop=True)
    assert environment.reset(seed=3)[1] == environment.reset(seed=3)[1]
    assert environment.reset(options={"problem": "double"}) == (SPEC, {"problem": "double"})
    text, *rest, _ = environment.step("```python\nx * 3\n```")
    assert (text, rest) == ("FWD:given: out[0] is outside its accept set", [0.0, False, False])
    assert environment.step("x * 4")[1:4] == (0.0, False, True)
    environment.reset(options={"problem": "double"})
    assert environment.step("Like this:\n```\nx * 3\n```\nor so:\n```python\nx * 2\n```")[1:4] == (1.0, True, False)
    assert judge.options == {"stop": True}
    completions = ["x * 2", [{"role": "assistant", "content": "```python\nx * 2```"}], "x * 5"]
    assert environment.rewards(["", "", ""], completions, problem=["double"] * 3) == [1.0, 1.0, 0.0]
    graded = module.KernelEnvironment(judge, {"double": SPEC}, reward=module.grade)
    assert graded.rewards(["", ""], completions[1:], problem=["double"] * 2) == [1.0, 0.0]
    codes = ["FWD:given", "FWD:wide", "SIZE:sizes", "VJP:grad"]
    lines = [{"verdict": "rejected", "asked": codes, "causes": [{"question": each}]} for each in codes[:2]]
    lines += [{"verdict": "weak", "asked": codes, "causes": []}, {"verdict": "rejected", "asked": [], "causes": []}]
    assert [module.grade(each) for each in lines] == [0.0, 0.375, 0.5, 0.0]
    environment.reset(options={"problem": "none"})
    with pytest.raises(module.NoVerdictError, match="has no reference"):
        environment.step("x * 2")
