"""Dossiers have the form that maintainers act on, the rules of the form can fail, and programs of torch are run."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import sys
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import torch

from opassay.reports import exit_codes
from tests.workshop.calling import workshop
from workshop.upstream.dossier import (
    BROKEN,
    FIXED,
    KEYS,
    NOT_RUN,
    PRESENT,
    Attempt,
    Dossier,
    DossierError,
    Heading,
    Search,
    list_dossiers,
    read_dossier,
    store_attempt,
)
from workshop.upstream.form import MOST_LINES, find_faults
from workshop.upstream.issue import write_issue
from workshop.upstream.trying import read_outcome, try_program

TREE = Path(__file__).resolve().parents[2]
DOSSIERS = {name: read_dossier(TREE, name) for name in list_dossiers(TREE)}
#: Compiling takes longer than all other programs.
SLOW = {"torch_compile_scalar_write", "torch_compile_erf", "torch_compile_gather", "torch_compile_expm1"}
#: When these were found, the second release was not at hand.
TRIED_ONCE = {"torch_compile_gather", "torch_compile_expm1"}
#: What these show depends on the vectors of the CPU: the capabilities with which it was seen.
VECTORS = {
    **dict.fromkeys(
        (
            "torch_add_alpha",
            "torch_cdist",
            "torch_conv_float16",
            "torch_erf_half",
            "torch_fmod",
            "torch_fused_adagrad",
            "torch_fused_sgd",
            "torch_gelu",
            "torch_layer_norm_bias",
        ),
        ("AVX2", "AVX512"),
    ),
    "torch_conv_bfloat16": ("AVX2",),  # With AVX-512 oneDNN may have instructions for bfloat16, and sums in float32.
    "torch_gelu_infinite": ("AVX512",),  # Without these oneDNN leaves gelu to torch's own kernel, which is right.
}
PROGRAM = """\
import colorsys
actual, expected = colorsys.rgb_to_hls(0.0, 1.0, 0.0)[0], 1 / 3
print("actual", actual + 1.0)
print("expected", expected, "twin", expected)
raise SystemExit(1)
"""
FAULT = Dossier(
    "planted", Heading("colorsys", "`colorsys`: planted", "Nobody."), PROGRAM.strip(), {}, "A third.", "",
    "Somebody planted it.", "", "def test_planted(self):\n    self.assertEqual(1, 2)",
    Search("**Upstream**: we found no report.", ("planted fault",), date(2026, 11, 27)),
    (Attempt("1.0", "2026-11-27", PRESENT, "actual 1.3\nexpected 0.3"),),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------- all of them


def test_every_finding_has_a_dossier() -> None:
    programs = {path.stem for path in (TREE / "benchmarks" / "findings").glob("*.py")} - {"proof", "onnx_model"}
    assert set(DOSSIERS) == programs


@pytest.mark.parametrize("name", DOSSIERS)
def test_a_dossier_keeps_the_form(name: str) -> None:
    assert find_faults(DOSSIERS[name]) == []


@pytest.mark.parametrize("name", [name for name, each in DOSSIERS.items() if each.heading.library == "torch"])
def test_a_dossier_of_torch_was_tried_at_two_releases(name: str) -> None:
    wanted = {"2.13.0"} if name in TRIED_ONCE else {"2.13.0", "2.15.0"}
    assert wanted <= {attempt.version for attempt in DOSSIERS[name].attempts}


@pytest.mark.parametrize(
    "name", [name for name, each in DOSSIERS.items() if each.heading.library == "torch" and name not in SLOW]
)
def test_a_program_of_torch_gives_its_former_outcome(name: str) -> None:
    """In this process, because importing torch takes longer than all of them."""
    output, threads, shows_stacks = io.StringIO(), torch.get_num_threads(), faulthandler.is_enabled()
    faulthandler.disable()  # Some programs fork a process that ends by a signal, whose stack is none of this run's.
    try:
        with contextlib.redirect_stdout(output), pytest.raises(SystemExit) as end:
            exec(compile(DOSSIERS[name].program, name, "exec"), {"__name__": "__main__"})
    finally:
        torch.set_num_threads(threads)
        if shows_stacks:
            faulthandler.enable()
    assert isinstance(end.value.code, int)
    outcomes = {attempt.version: attempt.outcome for attempt in DOSSIERS[name].attempts}
    version, _, _ = torch.__version__.partition("+")
    outcome = read_outcome(end.value.code, output.getvalue())
    capability = torch.backends.cpu.get_cpu_capability()
    other_vectors = capability not in VECTORS.get(name, (capability,))
    assert outcome != BROKEN
    assert other_vectors or outcome == outcomes.get(version, outcome)


# ------------------------------------------------------------------------------------------------ the form can fail


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"program": PROGRAM.replace("raise", "\n" * MOST_LINES + "raise")}, "program: 20 lines"),
        ({"program": "import os\n" + PROGRAM}, "program: imports os"),
        ({"program": PROGRAM.replace('"expected"', '"right"')}, "program: prints no 'expected'"),
        ({"program": PROGRAM.replace("raise SystemExit(1)", "")}, "program: ends without"),
        ({"program": PROGRAM.replace('"twin", ', "")}, "program: either prints a twin"),
        ({"no_twin": "One is printed."}, "program: either prints a twin"),
        ({"program": "print("}, "program: '(' was never closed"),
        ({"program": PROGRAM.replace("import", "# the bound\nimport", 1)}, "program: says 'bound'"),
        ({"truth": ""}, "truth: empty"),
        ({"mechanism": "One. Two."}, "mechanism: not one sentence"),
        ({"mechanism": "No end"}, "mechanism: not one sentence"),
        ({"mechanism": "opassay found it."}, "mechanism: says 'opassay'"),
        ({"heading": replace(FAULT.heading, harm="")}, "harm: empty"),
        ({"test": "def test_x("}, "test: '(' was never closed"),
        ({"test": "assert True"}, "test: no function test_..."),
        ({"test": "def test_x(): pass"}, "test: asserts nothing"),
        ({"search": replace(FAULT.search, words=())}, "search: no words"),
        ({"search": replace(FAULT.search, text="**Upstream** knows.")}, "upstream: neither"),
        ({"attempts": ()}, "attempts: tried at no version"),
        (
            {"attempts": (*FAULT.attempts, Attempt("2.0", "2026-11-27", BROKEN, "Error"))},
            "attempts: the program broke",
        ),
        ({"attempts": (Attempt("1.0", "today", PRESENT, "x"),)}, "attempts: day='today'"),
        ({"attempts": (Attempt("", "2026-11-27", FIXED, "x"),)}, "attempts: one of 2026-11-27 has no version"),
    ],
)
def test_the_form_refuses_what_it_says(change: dict[str, Any], fault: str | None) -> None:
    lines = find_faults(replace(FAULT, **change))
    assert [line for line in lines if fault is None or line.startswith(fault)] == lines
    assert bool(lines) == (fault is not None)


# ------------------------------------------------------------------------------------------------------- the attempts


@pytest.mark.parametrize(
    ("code", "printed", "outcome"),
    [
        (1, "actual 1\nexpected 2", PRESENT),
        (0, "actual 2\nexpected 2", FIXED),
        (1, "", BROKEN),  # an exception
        (2, "actual 1\nexpected 2", BROKEN),
    ],
)
def test_an_outcome_needs_words(code: int, printed: str, outcome: str) -> None:
    assert read_outcome(code, printed) == outcome


def test_a_program_is_tried_by_an_interpreter() -> None:
    dossier = replace(FAULT, heading=replace(FAULT.heading, library="pytest"))
    assert (attempt := try_program(dossier, sys.executable)).outcome == PRESENT
    assert (attempt.version, attempt.output.splitlines()[0]) == (pytest.__version__, "actual 1.3333333333333333")
    assert try_program(replace(dossier, program="1 / 0"), sys.executable).outcome == BROKEN
    assert try_program(replace(dossier, program="while True: pass"), sys.executable, 0.5).outcome == BROKEN
    assert try_program(FAULT, sys.executable).outcome == NOT_RUN
    without_gpu = 'raise AssertionError("Torch not compiled with CUDA enabled")'
    assert try_program(replace(dossier, program=without_gpu), sys.executable).outcome == NOT_RUN


def _tree(root: Path) -> Path:
    """A checkout with one dossier of one finding."""
    for folder in ("corpus/upstream", "benchmarks/findings"):
        (root / folder).mkdir(parents=True)
    text = '"""`colorsys`: planted\n\n**Does it matter?** No.\n"""\nLIBRARY, VERSION = "colorsys", "1.0"\n'
    (root / "benchmarks/findings/planted.py").write_text(text)
    fields = {key: "x." for key, needed in KEYS.items() if needed} | {"test": "def test_x(self): self.assertTrue(0)"}
    lines = [f"{key} = '''\n{value}\n'''" for key, value in fields.items() if key not in ("words", "searched")]
    (root / "corpus/upstream/planted.toml").write_text("\n".join([*lines, 'words = ["w"]', "searched = 2026-11-27"]))
    return root


def test_a_dossier_is_read_of_two_files_and_its_trials(tmp_path: Path) -> None:
    tree = _tree(tmp_path)
    for attempt in (
        Attempt("", "2026-11-25", NOT_RUN, "not installed"),
        Attempt("1.0", "2026-11-26", PRESENT, "actual 1"),
        Attempt("1.0", "2026-11-27", FIXED, "actual 2"),
        Attempt("", "2026-11-27", NOT_RUN, "not installed"),
    ):
        store_attempt(tree, "planted", attempt)
    dossier = read_dossier(tree, "planted")
    assert dossier.heading == Heading("colorsys", "`colorsys`: planted", "No.")
    assert dossier.attempts == (Attempt("1.0", "2026-11-27", FIXED, "actual 2"),)
    program = tree / "benchmarks/findings/planted.py"
    program.write_text(program.read_text().replace("LIBRARY", "LIBRARIES"))
    with pytest.raises(DossierError, match="0 times"):
        read_dossier(tree, "planted")
    path = tree / "corpus/upstream/planted.toml"
    for text in (path.read_text() + '\ntitle = "twice"', path.read_text().replace("truth", "trust"), "= ="):
        path.write_text(text)
        with pytest.raises(DossierError, match=r"planted\.toml"):
            read_dossier(tree, "planted")


def test_the_threads_are_those_that_the_text_links() -> None:
    search = DOSSIERS["torch_layer_norm_second"].search
    assert search.threads == ["pytorch#196700", "pytorch#196699", "pytorch#198017"]


# ------------------------------------------------------------------------------------------------------ the command


def test_the_command_prints_an_issue_and_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    tree = f"--tree={TREE}"
    assert workshop(["upstream", "torch_ndtr", tree]) == exit_codes.OK
    text = capsys.readouterr().out
    assert text == write_issue(DOSSIERS["torch_ndtr"])
    assert text.startswith("# `torch.special.ndtr`: the lower tail is zero\n\n```python\nimport math\nimport torch\n")
    assert "| 2.15.0 |" in text
    assert 'by these words: "torch.special.ndtr lower tail zero erf cancellation"' in text
    assert workshop(["upstream", tree]) == exit_codes.OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(DOSSIERS)
    assert workshop(["upstream", tree, "--check"]) == exit_codes.OK


def test_the_command_refuses_what_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert workshop(["upstream", f"--tree={tmp_path}"]) == exit_codes.USAGE
    assert "has no dossiers" in capsys.readouterr().err
    assert workshop(["upstream", "no_such", f"--tree={TREE}"]) == exit_codes.USAGE
    assert "name='no_such' has no dossier: need one of fla_cross_entropy" in capsys.readouterr().err
    tree = _tree(tmp_path)
    assert workshop(["upstream", f"--tree={tree}", "--check"]) == exit_codes.FAILED
    assert "planted: attempts: tried at no version" in capsys.readouterr().out
    assert workshop(["upstream", f"--tree={tree}", "--run"]) == exit_codes.OK
    assert [attempt.outcome for attempt in read_dossier(tree, "planted").attempts] == [NOT_RUN]
