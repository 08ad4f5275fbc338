"""Kernels to be written, as an environment of the package `openenv`, and as its server."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from .reward import ServedJudge, describe_causes, grade


def kernel_environment(
    judge: ServedJudge, problems: Mapping[str, str], *, attempts: int = 4,
    reward: Callable[[Mapping[str, Any]], float] = grade,
) -> Any:  # fmt: skip
    """A subclass of OpenEnv's `Environment`: an action is a candidate's text, an observation what is wrong with it.

    `reset(problem=NAME)` chooses a problem, and `seed` draws one. Its members `Action` and `Observation` are what
    `openenv.core.env_server.create_app` needs besides it.

    Args:
        judge: of candidates. problems: the texts of specs, by name. attempts: after which an episode is done.
        reward: of a judgement.

    Raises:
        ModuleNotFoundError: `openenv` is not installed; the extra of that name brings it.
    """
    from openenv.core.env_server import interfaces, types

    class KernelAction(types.Action):  # type: ignore[misc]
        candidate: str

    class KernelObservation(types.Observation):  # type: ignore[misc]
        text: str

    class KernelEnvironment(interfaces.Environment):  # type: ignore[misc]
        SUPPORTS_CONCURRENT_SESSIONS = True
        Action, Observation = KernelAction, KernelObservation

        def __init__(self) -> None:
            super().__init__()
            self._state, self._problem = types.State(), min(problems)

        def reset(self, seed: int | None = None, episode_id: str | None = None, problem: str = "", **_: Any) -> Any:
            """Begin an episode: the spec is the text of the observation; ValueError for an unknown problem."""
            if problem and problem not in problems:
                raise ValueError(f"problem={problem!r}: need one of {', '.join(problems)}")
            self._problem = problem or random.Random(seed).choice(sorted(problems))
            self._state = types.State(episode_id=episode_id or uuid.uuid4().hex)
            return KernelObservation(text=problems[self._problem], metadata={"problem": self._problem})

        def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Any:
            """Judge a candidate; NoVerdictError where nobody was judged."""
            judgement = judge.judge(action.candidate, problems[self._problem])
            self._state.step_count += 1
            return KernelObservation(
                text=describe_causes(judgement),
                reward=reward(judgement),
                done=judgement["verdict"] == "accepted" or self._state.step_count >= attempts,
                metadata={"verdict": judgement["verdict"]},
            )

        @property
        def state(self) -> Any:
            return self._state

    return KernelEnvironment
