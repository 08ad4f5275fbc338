"""Every attack gets its verdict, in one line and by the exit code; and nothing is left, nor written, nor stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opassay.properties.candidates.host.isolation import offer

from .answer_attacks import ANSWERING
from .attack import PRELUDE, SPECS, Attack
from .honest_candidates import HONEST
from .judge_attacks import REACHING
from .process_attacks import CHANGING
from .reward_hacks import HACKING
from .value_attacks import COMPUTING

#: What is asked where an attack does not say; the attack must be told by one of these.
EVERY = {**REACHING, **ANSWERING, **COMPUTING, **CHANGING, **HACKING}
#: One of each kind is fast.
FAST = (
    "rewrites the ruling in the judge's memory",
    "answers by a pipe that nobody fills",
    "is a class whose clones are right",
    "leaves a process without an environment",
)
CODES = {"accepted": 0, "rejected": 1, "weak": 4, "suspect": 4, "error": 3}


def judgement(folder: Path, attack: Attack, seconds: float = 300) -> tuple[dict[str, Any], list[str]]:
    """The line of JSON of the command on an attack in a folder, and what is wrong with the rest of what it did.

    It is killed after so many seconds.
    """
    home = folder / ("elsewhere" if "elsewhere" in attack.text else "problem")
    mine, temporary = folder / "problem", folder / "temporary"
    for each in (home, mine, temporary):
        each.mkdir(exist_ok=True)
    spec, candidate = home / "spec.py", mine / "candidate.py"
    spec.write_text("import torch\n" + SPECS[attack.spec])
    candidate.write_text(PRELUDE + attack.text)
    before = {path: path.read_bytes() for path in (spec, candidate)}
    command = [sys.executable, "-P", "-m", "opassay", "judge", str(candidate), "--spec", str(spec), "--json", "-x"]
    named = () if "-k" in attack.options else _ask(attack)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, *attack.options, *named],
        cwd=mine, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    (line,) = out.splitlines() or [err]
    reply = json.loads(line)
    faults = [f"written: {path}" for path, content in before.items() if path.read_bytes() != content]
    faults += [f"new: {path}" for each in {home, mine} for path in each.iterdir() if path not in before]
    faults += [f"left: {path}" for path in temporary.glob("opassay-*")]
    faults += [f"left: {path}" for path in temporary.glob("torchinductor_*")]
    faults += [f"exit code {process.returncode}"] if process.returncode != CODES[reply["verdict"]] else []
    return reply, faults


def _ask(attack: Attack) -> tuple[str, ...]:
    """Options that ask what the attack must be told by, and all where it must be accepted."""
    codes = dict.fromkeys(["PURE:process", "FWD:given", attack.question]) if attack.question else {}
    return tuple(word for code in codes for word in ("-k", code))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else pytest.mark.slow) for n in EVERY])
@pytest.mark.skipif(bool(offer().lacks), reason="the kernel cannot isolate: opassay doctor says what it lacks")
def test_an_attack_gets_its_verdict(name: str, tmp_path: Path) -> None:
    attack = EVERY[name]
    victim = Path("/dev/shm/opassay-victim")
    victim.write_text("of another program")
    output, faults = judgement(tmp_path, attack)
    assert victim.read_text() == "of another program"
    assert [path for path in victim.parent.glob("opassay-*") if path != victim] == []
    assert output["verdict"] == attack.verdict, output
    causes = [cause["question"] for cause in output["causes"]]
    assert not attack.question or causes[:1] == [attack.question], output["causes"]
    assert faults == []
    assert output["isolation"].startswith("landlock-")
    running = [Path(f"/proc/{pid}/cmdline") for pid in os.listdir("/proc") if pid.isdecimal()]
    assert not any(path.exists() and b"50.25" in path.read_bytes() for path in running)


@pytest.mark.slow
@pytest.mark.parametrize("name", HONEST)
def test_a_right_candidate_is_accepted_isolated_or_not(name: str, tmp_path: Path) -> None:
    for isolation in ("auto", "none"):
        (tmp_path / isolation).mkdir()
        honest = replace(HONEST[name], options=(*HONEST[name].options, "--isolation", isolation))
        output, faults = judgement(tmp_path / isolation, honest)
        assert (output["verdict"], faults) == ("accepted", []), (
            output["causes"] or output["weaknesses"] or output["error"]
        )
        assert output["isolation"] == (offer().by if isolation == "auto" else "none")
        assert output["ran"]["triton"] == ("Triton" in name)
