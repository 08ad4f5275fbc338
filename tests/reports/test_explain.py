"""`opassay explain` knows every name that a user meets, and each text is about its own name."""

from __future__ import annotations

import re

import pytest
import torch

import opassay
from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.properties.engine.profiles import PROFILES
from opassay.properties.names import SUBJECTS
from opassay.properties.table import KINDS, PROPERTIES, TABLE
from opassay.reports.cli.commands import COMMANDS
from opassay.reports.cli.main import main
from opassay.reports.cli.project.contracts import allowance_names, describe_allowance
from opassay.reports.cli.project.explain import _CODES, samples_of
from opassay.reports.explain import TEXTS, read_glossary


def test_every_name_has_a_text_of_whole_sentences() -> None:
    assert list(TEXTS["profiles"]) == list(PROFILES)
    assert set(TEXTS["subjects"]) == set(SUBJECTS)
    assert list(TEXTS["questions"]) == [*PROPERTIES, *(code for code in KINDS if code not in PROPERTIES)]
    assert {code for code, text in TEXTS["faults"].items() if text} == set(PROPERTIES)
    texts = [*TEXTS["profiles"].values(), *TEXTS["subjects"].values(), *TEXTS["questions"].values()]
    texts += [TEXTS["faults"][code] for code in PROPERTIES]
    assert len(set(texts)) == len(texts)
    assert [text for text in texts if not re.match(r"[A-Z]|torch", text) or not text.endswith(".")] == []


def test_every_code_belongs_to_an_outcome() -> None:
    assert set(_CODES) == set(Outcome)
    numbers = [tuple(int(result) for result in re.findall(r"OA(\d+)", text)) for text in _CODES.values()]
    covered = {f"OA{number}" for bounds in numbers for number in range(bounds[0], bounds[-1] + 1)}
    assert set(map(str, Code)) <= covered


def test_the_words_agree_with_the_table_of_profiles() -> None:
    assert PROFILES["commit"].examples == 4 * PROFILES["brief"].examples  # "four times as many samples as brief"
    assert 12 <= PROFILES["nightly"].examples / PROFILES["commit"].examples < 13
    fixed = {name for name, profile in PROFILES.items() if profile.fixed}
    assert {name for name, text in TEXTS["profiles"].items() if "The same commit is asked the same" in text} == fixed
    assert {name for name, text in TEXTS["profiles"].items() if "inductor" in text} == {
        name for name, profile in PROFILES.items() if profile.inductor
    }
    assert (samples_of("FWD", "brief"), samples_of("COMP", "brief"), samples_of("ORD2", "commit")) == (25, 1, 20)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OA101", ["OA101 VALUE: an element outside its accept set", "Look at: The worst element"]),
        ("vjp", ["VJP, a property: reverse mode, first order", "It sees, for example: A backward pass", "18 in brief"]),
        ("commit", ["commit, a profile", "A cell has 80 samples"]),
        ("not run", ["not run, an outcome of a cell (–)", "OA401 to OA405"]),
        ("Torch", ["torch, a subject", "opassay run OP --subject torch"]),
        ("special", ["OA102 SPECIAL", "SPECIAL, a property"]),  # a code and a property have this name
        ("refused", ["OA305 REFUSED", "refused, an outcome"]),
        ("wrong", ["wrong, a severity of a failure", "No digit is right", "crash, wrong, raises, inaccurate"]),
        ("accept set", ["accept set, a word of the glossary", "rounded once to the format of the output"]),
        ("fast_math", ["fast_math, a contract", "factors of products rounded to tf32", "--contract fast_math"]),
        ("torch", ["torch, a subject", "torch, a contract: what a kernel may do", "intermediates stored"]),
        ("flush", ["flush, an allowance", "It allows: subnormal operands", "Source: PTX ISA"]),
        ("half-width", ["half-width, a word of the glossary", "The largest rounding error"]),
        ("strict+bfloat16", ["sums in bfloat16", "--contract strict+bfloat16"]),
        ("VJP", ["VJP, a property", "VJP, a word of the glossary"]),
        ("suspect", ["suspect, a field of a judgement's JSON", "within its bound and not likely"]),
        ("left_out", ["what of it could not be asked"]),
    ],
)
def test_a_name_is_explained(name: str, message: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *name.split()]) == 0
    text = capsys.readouterr().out
    assert [part for part in message if part not in " ".join(text.split())] == []


def test_the_words_of_a_card_are_explained() -> None:
    inputs = torch.linspace(0, 1, 64)
    wrong = opassay.judge(lambda x: x.exp() * 1.01, torch.exp, (inputs,))
    other = opassay.judge(lambda x: x.sum(-1)[..., None], lambda x: torch.softmax(x, -1), (inputs[None],))
    text = "\n".join(each.report(verbose=True) for each in (wrong, other))
    labels = {label.strip() for label in re.findall(r"^  (?=[a-z ]{11}\S)([a-z]+(?: [a-z]+)*)  ", text, re.MULTILINE)}
    labels |= set(re.findall(r"^  ([a-z]+(?: [a-z]+)*): ", text, re.MULTILINE))
    assert {"computed", "exact", "error", "outside", "where", "allowed", "format", "sees", "input"} <= labels
    assert labels - {*read_glossary(), *COMMANDS, *map(str, Outcome)} == set()


def test_every_allowance_has_its_sentence() -> None:
    for name in allowance_names():
        assert "It allows: " in describe_allowance(name)


def test_without_a_name_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    listed = {word for line in capsys.readouterr().out.splitlines() for word in line.split()}
    assert {
        *map(str, Code),
        *TABLE,
        *PROFILES,
        *SUBJECTS,
        "verified",
        "properties",
        "fast_math",
        "flush,",
        "vacuous,",
    } <= listed


@pytest.mark.parametrize(("name", "message"), [("VPJ", "'VJP'"), ("breif", "'brief'"), ("unstabel", "'unstable'")])
def test_a_name_that_is_nearly_right(name: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", name]) == 2
    assert f"(did you mean {message}?)" in capsys.readouterr().err


def test_a_contract_of_no_allowance_says_which_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "torch+flash"]) == 2
    assert "got allowance 'flash' (did you mean 'flush'?), need one of float32" in capsys.readouterr().err
