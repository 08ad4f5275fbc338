"""A judge in a test of the server: it answers at once, and what the candidate's text says may end it before."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from opassay.properties.places.serving import serve


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    text = Path(question["candidate"].rpartition(":")[0] or question["candidate"]).read_text()
    word, _, number = text.partition(" ")
    if word == "dies":
        os._exit(1)
    if word == "ends":
        return {"ended": "the judge's process ended with status -9 and without an answer"}
    if word == "waits":
        time.sleep(float(number))
    return {"record": json.dumps({"verdict": "accepted", "text": text})}


if __name__ == "__main__":
    serve(lambda hello: {}, _answer)
