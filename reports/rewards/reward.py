"""The reward of a candidate: what `opassay serve` answers, as a number.

A graded reward is at most a half for what is not accepted, and grows with the share of questions that were answered
well. A candidate that is wrong on the inputs that were handed in has nothing of it, so that no half is to be had by
answering nothing. Where nobody was judged, because of the spec or because the judge failed, there is no reward to learn
from: an exception. A candidate that does not compile has been judged: it has 0.
"""

from __future__ import annotations

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Text between fences of a completion, which is the candidate; the last one counts.
_FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)
#: The statuses that ask for another try, and seconds between tries where the answer names none.
_LATER, _PAUSE = (429, 503), 1.0
#: How errors begin that are the candidate's, and no lack of a verdict.
_OF_CANDIDATE = "candidate/candidate.py"


class NoVerdictError(RuntimeError):
    """Nothing is said of a candidate; the text says why."""


@dataclass(frozen=True)
class ServedJudge:
    """A client of `opassay serve`.

    Attributes:
        url, token: of the server, as it prints them. options: fields of every request, such as `{"stop": True}`.
    """

    url: str
    token: str = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def judge(self, completion: str, spec: str) -> dict[str, Any]:
        """The judgement of a completion, whose last fenced text is the candidate.

        Raises:
            NoVerdictError: nobody was judged. urllib.error.HTTPError: the server refuses the request, with its status.
        """
        candidate = (_FENCED.findall(completion) or [completion])[-1]
        item = self._ask("/judgements", {"candidate": candidate, "spec": spec, **self.options})
        while item["state"] != "done":
            item = self._ask(f"/judgements/{item['id']}?wait=30")
        text, judgement = item.get("error", ""), item.get("judgement")
        if judgement is None and text.startswith(_OF_CANDIDATE):
            cause = {"question": "FWD:given", "text": text}
            return {"verdict": "rejected", "asked": ["FWD:given"], "causes": [cause]}
        if judgement is None or judgement["verdict"] == "error":
            raise NoVerdictError(text or judgement["error"])
        return dict(judgement)

    def _ask(self, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, content, {"Authorization": f"Bearer {self.token}"})
        while True:
            try:
                with urllib.request.urlopen(request) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as err:
                if err.code not in _LATER:
                    raise
                time.sleep(float(err.headers.get("Retry-After") or _PAUSE))


def is_accepted(judgement: Mapping[str, Any]) -> float:
    """1 for an accepted candidate, 0 for others: `weak` and `suspect` are no success."""
    return float(judgement["verdict"] == "accepted")


def grade(judgement: Mapping[str, Any]) -> float:
    """1 for an accepted candidate; for another that is right on the given inputs half of what is not wrong."""
    wrong, questions = {cause["question"] for cause in judgement["causes"]}, judgement.get("asked", [])
    if judgement["verdict"] == "accepted":
        return 1.0
    return 0.0 if "FWD:given" in wrong or "FWD:given" not in questions else 0.5 * (1 - len(wrong) / len(questions))


def describe_causes(judgement: Mapping[str, Any]) -> str:
    """What is wrong with a candidate, for whoever tries again: the cards; empty for nothing."""
    return "\n\n".join(f"{cause['question']}: {cause['text']}" for cause in judgement["causes"])
