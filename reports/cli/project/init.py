"""`opassay init`: the first files of a project that judges its ops: an example, settings, and a workflow for CI."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import click

from ... import exit_codes
from ...record import RecordError
from ...store.files import write_atomically
from ...templates import source_of
from ...text import clean
from ..host import Stop
from ..reading import as_usage

#: What was done with a file: a word, its path, and what is in it.
FileNote = tuple[str, Path, str]
_IGNORED = ("gitignore.txt", "what a run leaves, and no repository keeps")
#: The templates of an op and of a kernel, of their tests, and what they are.
_OP = (
    ("example.txt", "an op, its formula, its samples"), ("test_example.txt", "the same questions in pytest"), _IGNORED
)  # fmt: skip
_KERNEL = (
    ("kernel.txt", "a kernel, what it means, and inputs"), ("test_kernel.txt", "one line for pytest"), _IGNORED
)  # fmt: skip
_SETTINGS = "pyproject.toml"
_SKILL = "skills/opassay/SKILL.md"
_WORKFLOW = ".github/workflows/opassay.yml"


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--module", default="opassay_example", show_default=True, help="The name of the example's module.")
@click.option("--kernel", is_flag=True, help="A kernel beside its spec, for `opassay judge`, in place of an op.")
@click.option(
    "--skill", is_flag=True, help="Write skills/opassay/SKILL.md, for programs that write code, and nothing else."
)
@click.option("--ci/--no-ci", default=True, show_default=True, help="Write a workflow for GitHub Actions.")
def init_command(folder: Path, module: str, kernel: bool, skill: bool, ci: bool) -> int:
    """Write an example op, its test, settings and a CI workflow into FOLDER, by default the current one.

    Nothing that exists is overwritten. The settings are added to the end of a pyproject.toml that is there already.
    \f

    Raises:
        Stop: the name cannot be imported, pyproject.toml cannot be read, or a file cannot be written.
    """
    if not module.isidentifier():
        raise Stop(exit_codes.USAGE, f"--module: got {module!r}, need a name that Python can import")
    if skill:
        with as_usage():
            _tell_notes(
                [_new(folder / _SKILL, source_of(__package__, "SKILL.md"), "how a program that writes code judges it")]
            )
        return exit_codes.OK
    # The settings come first: a pyproject.toml that cannot be read must not leave half of the files behind.
    with as_usage():
        settings = () if kernel else _settings(folder, module)
        command = f"opassay judge {module}.py --report-dir opassay-report" if kernel else "opassay run"
        example = _example(folder, module, _KERNEL if kernel else _OP)
        notes = [*settings, *example, *(_workflow(folder, command) if ci else ())]
    _tell_notes(notes)
    place = "" if folder == Path() else f"cd {clean(str(folder))} && "
    click.echo(f"next    {place}{command}    # judges the example; the report is opassay-report/report.html")
    if ci:
        click.echo("then    say in the workflow, under OPASSAY, where pip finds opassay")
    return exit_codes.OK


def _tell_notes(notes: Sequence[FileNote]) -> None:
    width = max(len(str(path)) for _, path, _ in notes)
    for word, path, about in notes:
        click.echo(clean(f"{word:<6}  {path!s:<{width}}  {about}"))


def _example(folder: Path, module: str, files: Sequence[tuple[str, str]]) -> Iterator[FileNote]:
    names = f"{module}.py", f"test_{module}.py", ".gitignore"
    for name, (template, about) in zip(names, files, strict=True):
        yield _new(folder / name, source_of(__package__, template).replace("MODULE", module), about)


def _settings(folder: Path, module: str) -> Iterator[FileNote]:
    path = folder / _SETTINGS
    text = source_of(__package__, "settings.txt").replace("MODULE", module)
    about = "settings of `opassay run`"
    if not path.exists():
        yield _new(path, text, about)
        return
    try:
        before = path.read_text(encoding="utf-8")
        if "opassay" in tomllib.loads(before).get("tool", {}):
            yield "left", path, "has settings of opassay already"
            return
        after = f"{before.rstrip()}\n\n{text}"
        tomllib.loads(after)  # a file that was right must not be made wrong
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise RecordError(f"{path}: {err}; need a pyproject.toml that can be read, or none") from err
    write_atomically(path, after.encode())
    yield "added", path, f"{about}, at its end"


def _workflow(folder: Path, command: str) -> Iterator[FileNote]:
    try:
        torch = f"torch=={version('torch').partition('+')[0]}"
    except PackageNotFoundError:
        torch = "torch"
    text = source_of(__package__, "workflow.txt").replace("TORCH_REQUIREMENT", torch).replace("COMMAND", command)
    yield _new(folder / _WORKFLOW, text, "a workflow of GitHub Actions that runs it on every push")


def _new(path: Path, text: str, about: str) -> FileNote:
    """Writes a file where there is none; says in a line what it did."""
    if path.exists() or path.is_symlink():
        return "left", path, "exists already"
    write_atomically(path, text.encode())
    return "wrote", path, about
