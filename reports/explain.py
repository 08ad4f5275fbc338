"""What a reason code and an outcome mean, what a profile costs, what a subject is, and what a severity says.

The names of profiles and subjects are those of `properties.engine.profiles` and `properties.names`, which this module
must not import; `tests/reports/test_explain.py` holds both lists against each other.
"""

from __future__ import annotations

import functools
import re
import textwrap
from importlib import resources

from ..oracles.verdicts.explanations import EXPLANATIONS
from ..oracles.verdicts.verdict import Code, Outcome

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
#: Columns of a terminal that texts are wrapped to.
WIDTH = 96

OUTCOMES: dict[Outcome, str] = {
    Outcome.VERIFIED: "the bound held, with enough effort",
    Outcome.WEAK: "held, but on too few samples or too few judged elements",
    Outcome.FAIL: "violated, and violated again when repeated",
    Outcome.UNSTABLE: "violated, but not at every repetition",
    Outcome.REFUSED: "the subject documents that it does not offer this, and said so by a clear error",
    Outcome.UNSUPPORTED: "outside the op's declared contract",
    Outcome.NOT_RUN: "deselected, no device, or interrupted",
    Outcome.CRASH: "the process died",
    Outcome.TIMEOUT: "the process was stopped",
    Outcome.ERROR: "the framework or the reference raised; says nothing about the op",
}

#: What each profile is for; the number of samples is that of the table of profiles.
PROFILE_TEXTS: dict[str, str] = {
    "brief": "For a first look, and for every commit where there are many ops. The whole catalog of opassay takes"
    " 20 to 30 minutes on two cores. The same commit is asked the same questions every time.",
    "dev": "For work on an op. Every run draws other inputs, and steers them to where the largest error was.",
    "commit": "For a gate in CI, and the default: four times as many samples as brief. The same commit is asked the"
    " same questions every time, so a failure repeats and budgets can be compared.",
    "nightly": "For a long run on a machine that is free. It draws twelve times as many samples as commit and other"
    " inputs every time, and COMP compiles with inductor. It takes hours for many ops.",
}

SUBJECT_TEXTS: dict[str, str] = {
    "opassay": "The implementation that ships, and the default. Of the catalog it is the production op of opassay, of"
    " an op that you declare the implementation that you name so.",
    "torch": "torch's own op of the same name, under the same questions. It is held to what torch documents.",
    "decomposition": "What torch._decomp or torch._refs make of torch's op: the Python texts that compilers trace.",
    "compiled": "torch's op as inductor compiles it, each path of transforms as a whole.",
    "functional": "torch's functional collectives, on process groups.",
    "triton": "The production op with its CUDA kernels run by Triton's interpreter on the CPU. What a GPU alone can"
    " show, such as timing, is not seen.",
    "ptx": "The production op with its CUDA kernels as Triton compiles them for sm_90, their PTX executed on the CPU."
    " What ptxas and a GPU make of it is not seen.",
    "module": "The module of torch.nn, built of each call's arguments; WAYS asks about its state, too.",
    "own_module": "The production module that takes its place.",
}

#: What each severity says of an error, on the scale of the tensor that it is in.
SEVERITY_TEXTS: dict[str, str] = {
    "crash": "The process died.",
    "wrong": "No digit is right, on the scale of the tensor; or a NaN or an infinity stands where a number is right, or"
    " a number where one of them is; or an output has another dtype or shape.",
    "raises": "An exception on valid input. Nothing wrong was computed.",
    "inaccurate": "Half of the digits of the format or more are lost, on the scale of the tensor.",
    "promise": "A promise that is not about values was broken: the same bits, memory, an error that was expected.",
    "not finite": "A NaN stands in place of an infinity, or the reverse.",
    "last digits": "Fewer than half of the digits are lost, on the scale of the tensor.",
    "negligible": "The error is less than one rounding of the largest number of the tensor and of what is summed.",
}


def paragraphs(head: str, *texts: str) -> str:
    """A headline and texts below it, wrapped for a terminal."""
    return "\n\n".join([head, *(textwrap.fill(text, WIDTH, break_on_hyphens=False) for text in texts)])


def explain(code: Code) -> str:
    """The explanation of a code as lines for a terminal."""
    explanation = EXPLANATIONS[code]
    return paragraphs(
        f"{code} {code.name}: {explanation.title}", explanation.meaning, f"Look at: {explanation.look_at}"
    )


@functools.cache
def read_glossary() -> dict[str, str]:
    """The text of every word of docs/glossary.md, of which the wheel has a copy, without links.

    Two words that share a text have it each.
    """
    page = resources.files(__package__).joinpath("glossary.md").read_text(encoding="utf-8")
    texts: dict[str, str] = {}
    for entry in re.split(r"^### ", page, flags=re.MULTILINE)[1:]:
        words, _, text = entry.partition("\n")
        plain = _LINK.sub(r"\1", re.split(r"^#", text, flags=re.MULTILINE)[0])
        texts |= dict.fromkeys(words.strip().split(", "), " ".join(plain.split()))
    return texts
