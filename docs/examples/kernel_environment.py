"""An environment for libraries of reinforcement learning: a problem is a spec, an action a candidate's text.

`reset` and `step` are those of Gymnasium (https://gymnasium.farama.org/api/env/), `rewards` is a reward function as
TRL's GRPOTrainer takes it (https://huggingface.co/docs/trl/grpo_trainer); neither package is needed. The judge is the
client of docs/serving.md, or whatever has its `submit` and `wait`.

The reward is 1 for `accepted` and 0 for all else: `weak` and `suspect` are no success. A graded one, `grade`, is at
most a half for what is not accepted, and grows with the share of questions that were answered well. A candidate that
is wrong on the inputs that were handed in has nothing of it, so that no half is to be had by answering nothing. Where
nobody was judged, because of the spec or because the judge failed, there is no reward to learn from: an exception.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: Text between fences of a completion, which is the candidate; the last one counts.
_FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


class NoVerdictError(RuntimeError):
    """Nothing is said of a candidate: the text says why."""


def is_accepted(judgement: Mapping[str, Any]) -> float:
    """1 for an accepted candidate, 0 for others."""
    return float(judgement["verdict"] == "accepted")


def grade(judgement: Mapping[str, Any]) -> float:
    """1 for an accepted candidate; for another that is right on the given inputs half of what is not wrong."""
    wrong, questions = {cause["question"] for cause in judgement["causes"]}, judgement.get("asked", [])
    if judgement["verdict"] == "accepted":
        return 1.0
    return 0.0 if "FWD:given" in wrong or "FWD:given" not in questions else 0.5 * (1 - len(wrong) / len(questions))


class KernelEnvironment:
    """Problems one after the other; an episode is so many attempts at one.

    Args:
        judge: submits candidates and waits for verdicts. problems: the texts of specs, by name.
        attempts: after which an episode is truncated.
        reward: of a judgement: `is_accepted`, or `grade`.
        options: of every request, such as `stop=True, questions=["FWD:given"]`.
    """

    def __init__(
        self, judge: Any, problems: Mapping[str, str], attempts: int = 4,
        reward: Callable[[Mapping[str, Any]], float] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        self._reward = reward or is_accepted
        self._judge, self._problems, self._options = judge, dict(problems), options
        self._attempts, self._remaining, self._problem = attempts, 0, ""
        self._random = random.Random(0)

    def reset(self, *, seed: int | None = None, options: Mapping[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode: the spec of a problem, which `options={"problem": NAME}` chooses."""
        if seed is not None:
            self._random = random.Random(seed)
        self._problem = (options or {}).get("problem") or self._random.choice(sorted(self._problems))
        self._remaining = self._attempts
        return self._problems[self._problem], {"problem": self._problem}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Judge a candidate: what is wrong with it, the reward, whether it is accepted, whether that was the last try.

        Raises:
            NoVerdictError: see there.
        """
        (judgement,) = self._judge_all([action], [self._problem])
        self._remaining -= 1
        right = judgement["verdict"] == "accepted"
        text = "\n\n".join(f"{cause['question']}: {cause['text']}" for cause in judgement["causes"])
        return text, self._reward(judgement), right, not right and self._remaining <= 0, {"judgement": judgement}

    def rewards(
        self, prompts: Sequence[Any], completions: Sequence[Any], problem: Sequence[str], **_: Any
    ) -> list[float]:
        """The rewards of completions, each for the problem of that name in the column `problem` of the data set.

        Raises:
            NoVerdictError: see there.
        """
        texts = [each if isinstance(each, str) else each[-1]["content"] for each in completions]
        return [self._reward(each) for each in self._judge_all(texts, problem)]

    def _judge_all(self, texts: Sequence[str], problems: Sequence[str]) -> list[dict[str, Any]]:
        """The judgements of candidates, all of which are submitted before the first is waited for."""
        names = []
        for text, problem in zip(texts, problems, strict=True):
            candidate = (_FENCED.findall(text) or [text])[-1]
            names += self._judge.submit([candidate], self._problems[problem], **self._options)
        items = [self._judge.wait(name) for name in names]
        for item in items:
            if item.get("judgement", {}).get("verdict", "error") == "error":
                raise NoVerdictError(item.get("error") or item["judgement"]["error"])
        return [item["judgement"] for item in items]
