"""`main` returns a code of the table, says why in a sentence, and never goes quietly, whatever a command does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.shell_completion import ShellComplete

from opassay.properties.candidates.host.isolation import offer
from opassay.properties.engine import environment
from opassay.reports import exit_codes, record
from opassay.reports.cli import host
from opassay.reports.cli.commands import cli
from opassay.reports.cli.host import Stop
from opassay.reports.cli.main import main
from tests.reports.conftest import failed, make_run, verdict


def _python(program: str, *words: str, cwd: Path, stdout: Any = subprocess.PIPE, **environment: str) -> Any:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *words],
        cwd=cwd, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        env=os.environ | environment,
    )  # fmt: skip


MAIN = "import sys\nfrom opassay.reports.cli.main import main\nsys.exit(main())\n"


def _without(*names: str) -> str:
    """A program in which some packages are not installed."""
    return f"""
        import sys
        class Absent:
            def find_spec(self, name, path=None, target=None):
                if name.partition(".")[0] in {names!r}:
                    raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
        sys.meta_path.insert(0, Absent())
        from opassay.reports.cli.main import main
        sys.exit(main())
    """


def _plant(fault: str) -> str:
    """A program in which the command `report schema` does something else."""
    return f"""
        import sys
        import opassay.reports.cli.report.single as command
        def schema(name):
            {fault}
        command.text_of = schema
        from opassay.reports.cli.main import main
        sys.exit(main(["report", "schema"]))
    """


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("raise ValueError('x' * 10**6)", 3, "internal error, ValueError: xxx"),
        ("raise BaseException('deep')", 3, "internal error, BaseException: deep"),
        ("raise GeneratorExit", 3, "internal error, GeneratorExit"),
        ("raise RecursionError", 3, "internal error, RecursionError"),
        ("raise MemoryError", 3, "internal error, MemoryError"),
        ("raise KeyboardInterrupt", 130, "interrupted"),
        ("sys.exit(0)", 2, "ended the program by sys.exit(0)"),
        ("sys.exit(1)", 2, "ended the program by sys.exit(1)"),
        ("sys.exit('a word')", 2, "ended the program by sys.exit('a word')"),
        ("import click; raise click.exceptions.Exit(77)", 3, "code=77, which the table of exit codes does not have"),
        ("import click; raise click.Abort", 130, "interrupted"),
        ("import opassay.none", 3, "internal error, ModuleNotFoundError"),
        ("class E(Exception): __str__ = lambda self: 1 / 0\n            raise E", 3, "internal error, E"),
        ("from opassay.reports.cli.host import Stop; raise Stop(4, 'a\\x1b[31mb')", 4, "opassay: ab"),
    ],
)
def test_whatever_a_command_raises(tmp_path: Path, fault: str, code: int, message: str) -> None:
    done = _python(_plant(fault), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert message in done.stderr
    assert len(done.stderr) < 1000
    for line in done.stderr.splitlines():
        if "traceback in " in line:
            Path(line.split("traceback in ")[1]).unlink()


def test_an_internal_error_needs_no_temporary_folder(tmp_path: Path) -> None:
    program = _plant("import tempfile; tempfile.tempdir = '/nowhere'; raise ValueError('deep')")
    done = _python(program, cwd=tmp_path)
    assert done.returncode == 3
    assert "internal error, ValueError: deep" in done.stderr
    assert "could not be written to a file (FileNotFoundError)" in done.stderr
    assert "in schema\nValueError: deep\n" in done.stderr


# --------------------------------------------------------------------------------------- readers that go away


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("list",), 0),
        (
            (
                "report",
                "schema",
            ),
            0,
        ),
        (("explain",), 0),
        (("--help",), 0),
        (("gate", "good.json"), 0),
        (("gate", "bad.json"), 1),
        (("gate", "half.json"), 4),
        (("gate", "none.json"), 2),
        (("report", "accuracy", "bad.json"), 0),
    ],
)
def test_a_reader_that_goes_away_does_not_change_the_code(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    from opassay.oracles.verdicts.verdict import Code, Outcome

    record.save(tmp_path / "good.json", make_run(verdict()))
    record.save(tmp_path / "bad.json", make_run(verdict(), failed()))
    record.save(tmp_path / "half.json", make_run(verdict(), verdict("VJP", Outcome.CRASH, Code.CRASHED)))
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = _python(MAIN, *words, cwd=tmp_path, stdout=writer)
    finally:
        os.close(writer)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize(("name", "code"), [("good.json", 3), ("bad.json", 1)])
def test_output_that_cannot_be_written_is_said(tmp_path: Path, name: str, code: int) -> None:
    record.save(tmp_path / "good.json", make_run(verdict()))
    record.save(tmp_path / "bad.json", make_run(verdict(), failed()))
    with open("/dev/full", "w") as full:
        done = _python(MAIN, "gate", name, cwd=tmp_path, stdout=full)
    assert done.returncode == code
    assert done.stderr == "opassay: the output could not be written: No space left on device\n"


def test_without_standard_output_the_code_stays(tmp_path: Path) -> None:
    record.save(tmp_path / "bad.json", make_run(verdict(), failed()))
    done = _python("import os; os.close(1)\n" + MAIN, "gate", "bad.json", cwd=tmp_path)
    assert done.returncode == 1


def test_in_a_process_of_others_the_streams_come_back(capsys: pytest.CaptureFixture[str]) -> None:
    before = sys.stdout, sys.stderr
    assert main(["explain", "OA101"]) == 0
    assert (sys.stdout, sys.stderr) == before
    assert "OA101" in capsys.readouterr().out


# -------------------------------------------------------------------------------------------- what is missing


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize(
    ("absent", "words"),
    [
        ("click", ("list",)),
        ("click", ("--help",)),
        ("msgspec", ("gate", "run.json")),
        ("jinja2", ("report", "run.json")),
        ("rich", ("run",)),
        ("junitparser", ("report", "run.json")),
        ("hypothesis", ("replay", "case.json")),
        ("mpmath", ("replay", "case.json")),
        ("torch", ("replay", "case.json")),
    ],
)
def test_a_missing_package_is_one_sentence(tmp_path: Path, absent: str, words: tuple[str, ...]) -> None:
    record.save(tmp_path / "run.json", make_run(verdict()))
    (tmp_path / "case.json").write_text("{}")
    done = _python(_without(absent), *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == f'opassay: {absent} is not installed; pip install "opassay[verify]"\n'


def test_the_module_says_so_too(tmp_path: Path) -> None:
    program = _without("click").replace(
        "from opassay.reports.cli.main import main\n        sys.exit(main())", ""
    ) + textwrap.dedent(
        """
        import runpy
        runpy.run_module("opassay", run_name="__main__")
        """
    ).replace("\n", "\n        ")
    done = _python(program, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == 'opassay: click is not installed; pip install "opassay[verify]"\n'


def test_what_is_required_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    host.require("sys", "json")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Stop, match=r'hypothesis is not installed; pip install "opassay\[verify\]"'):
        host.require("hypothesis")


def test_the_doctor_works_without_torch(tmp_path: Path) -> None:
    done = _python(_without("torch"), "doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert "note: torch cannot be imported (ModuleNotFoundError" in done.stdout
    assert "python  " in done.stdout
    assert done.stderr == ""


def test_the_doctor_says_in_json_whether_cells_can_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["doctor", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ready"]
    assert facts["environment"] == {**environment.environment(), "isolation": offer().by}
    monkeypatch.setattr("opassay.properties.places.landlock.version", lambda: 4)
    monkeypatch.setattr("opassay.reports.cli.doctor.is_installed", lambda name: name != "hypothesis")
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "isolation       landlock-4\n" in out
    assert "note: candidates may reach signals, and `judge --isolation required` ends with 2\n" in out
    assert out.endswith("not ready: no cell can run\n")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("run lay", {"layer_norm"}),
        ("run --property VJ", {"VJP"}),
        ("run --dtype b", {"bfloat16"}),
        ("judge -k FWD:o", {"FWD:offset"}),
        ("explain tensor", {"tensor_core"}),
    ],
)
def test_a_shell_completes_names(words: str, names: set[str]) -> None:
    *before, begun = words.split()
    completions = ShellComplete(cli, {}, "opassay", "_OPASSAY_COMPLETE").get_completions(before, begun)
    assert {item.value for item in completions} == names


@pytest.mark.parametrize(("cuda", "says"), [("not available", "device cpu"), ("13.0", "devices cpu and cuda")])
def test_the_doctor_says_of_which_devices_cells_can_run(
    cuda: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("opassay.reports.cli.doctor.surroundings.environment", lambda: {"torch": "2", "cuda": cuda})
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"ready: cells of {says} can run"


def test_the_doctor_names_what_is_missing(tmp_path: Path) -> None:
    done = _python(_without("torch", "xdist", "hypothesis"), "doctor", cwd=tmp_path)
    assert 'hypothesis, xdist: not installed; pip install "opassay[verify]"' in done.stdout


@pytest.mark.slow
def test_a_name_of_the_framework_says_what_to_install(tmp_path: Path) -> None:
    program = textwrap.dedent(_without("hypothesis")).split("from opassay")[0]
    done = _python(f"{program}\nimport opassay\nopassay.verify\n", cwd=tmp_path)
    message = 'opassay.verify needs hypothesis, which is not installed; pip install "opassay[verify]"'
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"ModuleNotFoundError: {message}")


def test_versions_that_were_never_tested_are_named() -> None:
    first, last = environment.TESTED["torch"]
    message = environment.untested({"python": "3.12.1", "torch": "2.99.0a0+cpu", "numpy": "9.0"})
    assert message == [f"torch 2.99.0a0+cpu: opassay was tested with torch {first} to {last} only"]
    assert environment.untested({"torch": f"{last}.1+cu130"}) == []
    assert len(environment.untested({"python": "3.9", "torch": "unknown"})) == 2
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    for name, (first, last) in environment.TESTED.items():
        assert f"{name} {first} to {last}" in readme.replace("Python", "python").replace("Triton", "triton")


def test_the_environment_of_the_newest_torch_has_the_last_versions_tested() -> None:
    pinned = (Path(__file__).parents[2] / "constraints-newest.txt").read_text().splitlines()
    versions = dict(line.split("==") for line in pinned)
    for name in ("torch", "triton"):
        assert versions[name].startswith(f"{environment.TESTED[name][1]}.")


# ------------------------------------------------------------------------------------- declarations that misbehave


DECLARATIONS = {
    "import sys; sys.exit(0)": "SystemExit: 0",
    "raise ValueError('no such table')": "ValueError: no such table",
    "raise BaseException('deep')": "BaseException: deep",
    "def __getattr__(name): raise ZeroDivisionError": "ZeroDivisionError",
    "x = 1 +": "SyntaxError",
    "import a_package_that_is_not_there": "No module named",
    "pass": "nothing at 'planted6:OP'",
}


@pytest.mark.slow
def test_a_declaration_that_does_not_load_is_a_usage_error(tmp_path: Path) -> None:
    for i, source in enumerate(DECLARATIONS):
        (tmp_path / f"planted{i}.py").write_text(source)
    program = f"""
        from opassay.reports.cli.main import main
        print([main(["run", "--op", f"planted{{i}}:OP"]) for i in range({len(DECLARATIONS)})])
    """
    done = _python(program, cwd=tmp_path)
    assert done.stdout.splitlines() == [str([2] * len(DECLARATIONS))]
    lines = done.stderr.splitlines()
    assert len(lines) == len(DECLARATIONS)
    for line, words in zip(lines, DECLARATIONS.values(), strict=True):
        assert line.startswith("opassay: op ")
        assert words in line
    assert not (tmp_path / "opassay-report").exists()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["import sys; sys.exit(0)", "raise ValueError('broken')"])
def test_a_plugin_that_ends_the_program_is_not_green(tmp_path: Path, source: str) -> None:
    (tmp_path / "planted.py").write_text(source)
    info = tmp_path / "planted-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: planted\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[opassay.ops]\nplanted = planted:OP\n")
    for words in (("run", "-n", "0"), ("run", "planted")):
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        done = _python(MAIN, *words, cwd=tmp_path, PYTHONPATH=path)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("opassay: ")


def test_every_code_of_the_table_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "outcomes.md").read_text()
    assert all(f"| {code} |" in text for code in (exit_codes.OK, *exit_codes.PRIORITY))


def test_the_list_is_what_a_run_with_the_same_options_asks(capsys: pytest.CaptureFixture[str]) -> None:
    def keys(*words: str) -> list[str]:
        assert main(["list", "trace", "--dtype=float32", *words]) == exit_codes.OK
        return [line.split()[1] for line in capsys.readouterr().out.splitlines()]

    assert keys("-k", "VJP or FWD") == ["trace::FWD[float32-cpu-opassay]", "trace::VJP[float32-cpu-opassay]"]
    parts = [keys("--shard", f"{i}/3") for i in (1, 2, 3)]
    assert sorted(key for part in parts for key in part) == sorted(keys())
    assert all(len(part) < len(keys()) for part in parts)
    assert main(["list", "trace", "--shard", "4/3"]) == exit_codes.USAGE
