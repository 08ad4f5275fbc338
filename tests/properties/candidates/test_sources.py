"""Modules of a spec's folder come from the bytes that were read; what appears beside them is found by nobody else."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import marshal
import os
import struct
import sys
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import pytest

from opassay.properties.candidates.host.module_files import GivenError, RaisedError, file_of, module_of
from opassay.properties.candidates.host.sources import Sources, content_of, sources
from opassay.properties.candidates.host.watching import Watch


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Another finder for each test, and none of its modules afterwards."""
    finders, modules = list(sys.meta_path), set(sys.modules)
    sys.meta_path[:] = [each for each in finders if not isinstance(each, Sources)]
    yield
    sys.meta_path[:] = finders
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def poison(path: Path, text: str) -> Path:
    """Write a bytecode cache beside a file, which Python would take for the file, of another text."""
    cache = Path(importlib.util.cache_from_source(str(path)))
    cache.parent.mkdir(exist_ok=True)
    status = path.stat()
    head = importlib.util.MAGIC_NUMBER + struct.pack("<III", 0, int(status.st_mtime), status.st_size)
    cache.write_bytes(head + marshal.dumps(compile(text, str(path), "exec", dont_inherit=True)))
    return cache


def test_no_bytecode_cache_is_read_or_written(tmp_path: Path) -> None:
    spec, neighbour = tmp_path / "planted_spec.py", tmp_path / "planted_neighbour.py"
    package = tmp_path / "planted_package"
    package.mkdir()
    (package / "__init__.py").write_text("WHO = 'source'\n")
    (package / "part.py").write_text("WHO = 'source'\n")
    neighbour.write_text("WHO = 'source'\n")
    spec.write_text(
        "import planted_neighbour as n, planted_package as p\nfrom planted_package import part\n"
        "WHO = [n.WHO, p.WHO, part.WHO, 'source']\n"
    )
    for path in (neighbour, package / "__init__.py", package / "part.py"):
        poison(path, "WHO = 'cache!'\n")
    poison(spec, "WHO = ['cache!']\n")
    before = sorted(tmp_path.rglob("*"))
    module, _ = module_of(str(spec))
    assert module.WHO == ["source"] * 4
    assert sorted(tmp_path.rglob("*")) == before
    assert sources().digests[str(spec)] == sha256(spec.read_bytes()).hexdigest()
    assert set(map(Path, sources().digests)) == {spec, neighbour, package / "__init__.py", package / "part.py"}


def test_the_lines_that_are_told_are_those_that_were_executed(tmp_path: Path) -> None:
    path = tmp_path / "rewritten_spec.py"
    path.write_text("def reference(x):\n    return x * 2\n")
    module, _ = module_of(str(path))
    path.write_text("# another\n# file\ndef reference(x):\n    return x * 3\n")
    assert inspect.getsource(module.reference) == "def reference(x):\n    return x * 2\n"


def test_bytes_that_are_handed_over_are_executed_in_place_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "handed.py"
    path.write_text("WHO = 'file'\n")
    sources({str(path): b"WHO = 'handed over'\n"})
    assert module_of(str(path))[0].WHO == "handed over"


def test_a_file_beside_a_spec_is_for_the_spec_and_its_neighbours_alone(tmp_path: Path) -> None:
    """What others try to import, as torch does `tabulate` when it ends, is not looked for there."""
    spec = tmp_path / "lazy_spec.py"
    (tmp_path / "planted_tool.py").write_text("WHO = 'neighbour'\n")
    spec.write_text("def reference():\n    import planted_tool\n    return planted_tool.WHO\n")
    module, _ = module_of(str(spec))
    assert str(tmp_path) not in sys.path
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("planted_tool")
    assert module.reference() == "neighbour"


def test_a_folder_that_is_no_package_gives_way_to_one_that_is_installed(tmp_path: Path) -> None:
    (tmp_path / "wave").mkdir()
    (tmp_path / "planted_data").mkdir()
    spec = tmp_path / "folders_spec.py"
    spec.write_text("import wave, planted_data\n")
    sys.modules.pop("wave", None)
    module, _ = module_of(str(spec))
    assert module.wave.open
    assert module.planted_data.__file__ is None


def test_a_file_takes_the_place_of_no_module_of_the_judge(tmp_path: Path) -> None:
    path = tmp_path / "json.py"
    path.write_text("WHO = 'spec'\n")
    json = sys.modules["json"]
    assert module_of(str(path))[0].WHO == "spec"
    assert sys.modules["json"] is json


def test_a_module_by_its_name_comes_from_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    package = tmp_path / "planted_home"
    package.mkdir()
    for name in ("__init__", "kernel"):
        (package / f"{name}.py").write_text("WHO = 'source'\n")
        poison(package / f"{name}.py", "WHO = 'cache!'\n")
    assert file_of("planted_home.kernel:f") == package / "kernel.py"
    assert "planted_home" not in sys.modules
    module, name = module_of("planted_home.kernel:f")
    assert (module.WHO, sys.modules["planted_home"].WHO, name) == ("source", "source", "f")
    with pytest.raises(GivenError, match="no module"):
        file_of("planted_nowhere.kernel:f")


def test_an_exception_of_a_file_is_told_with_its_frames(tmp_path: Path) -> None:
    path = tmp_path / "raising.py"
    path.write_text("def fails():\n    raise KeyError('key')\nfails()\n")
    with pytest.raises(RaisedError) as error:
        module_of(str(path))
    assert f"at {path}:2 in fails: raise KeyError('key')" in str(error.value)
    path.write_text("def f(:\n")
    with pytest.raises(RaisedError, match="SyntaxError"):
        module_of(str(path))


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.py")
    for name in ("fifo.py", "."):
        with pytest.raises(GivenError, match="no regular file"):
            file_of(str(tmp_path / name))
    with pytest.raises(OSError, match="no regular file"):
        content_of(tmp_path / "fifo.py")


# ------------------------------------------------------------------------------------------------------------ watching


def _package(folder: Path) -> None:
    (folder / "appeared").mkdir()
    (folder / "appeared" / "__init__.py").touch()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "spec.py").write_text("other\n"), "a file was written: {}/spec.py"),
        (lambda folder: os.utime(folder / "spec.py"), "a file was written: {}/spec.py"),
        (lambda folder: (folder / "spec.py").unlink(), "a file is gone: {}/spec.py"),
        (lambda folder: (folder / "elsewhere" / "candidate.py").write_text("other\n"), "a file was written"),
        (lambda folder: (folder / "tabulate.py").touch(), "a file appeared: {}/tabulate.py"),
        (lambda folder: (folder / "spec.abi3.so").touch(), "a file appeared: {}/spec.abi3.so"),
        (lambda folder: (folder / "spec.pyc").touch(), "a file appeared: {}/spec.pyc"),
        (lambda folder: (folder / "neighbour.py").unlink(), "a file is gone: {}/neighbour.py"),
        (_package, "a file appeared: {}/appeared"),
        (lambda folder: poison(folder / "spec.py", "x = 2\n"), "a file appeared: {}/__pycache__/spec."),
    ],
)
def test_what_could_be_imported_later_is_watched(
    change: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    watch = _watched(tmp_path)
    assert watch.changes() == []
    change(tmp_path)
    (result,) = watch.changes()
    assert result.startswith(message.format(tmp_path))


def test_what_a_candidate_could_not_write_is_no_finding_but_for_rights(tmp_path: Path) -> None:
    """A commit in the checkout of judge or spec writes such files while a candidate is judged."""
    watch, own = _watched(tmp_path), tmp_path / "elsewhere"
    (tmp_path / "spec.py").write_text("other\n")
    (tmp_path / "tabulate.py").touch()
    (tmp_path / "neighbour.py").unlink()
    assert watch.changes([str(own)]) == []
    assert len(watch.changes()) == 3
    (tmp_path / "spec.py").chmod(0o600)
    (own / "candidate.py").write_text("other\n")
    assert watch.changes([str(own)]) == [
        f"the rights of a file were changed: {tmp_path}/spec.py",
        f"a file was written: {own}/candidate.py",
    ]


def _watched(folder: Path) -> Watch:
    (folder / "elsewhere").mkdir()
    for name in ("spec.py", "neighbour.py", "elsewhere/candidate.py"):
        (folder / name).write_text("x = 1\n")
    return Watch([folder / "spec.py", folder / "elsewhere" / "candidate.py"], [folder])


def test_what_other_programs_write_beside_a_spec_is_no_finding(tmp_path: Path) -> None:
    watch = _watched(tmp_path)
    for name in ("log.txt", "results.json", "elsewhere/other_candidate.py", ".hidden"):
        (tmp_path / name).write_text("x")
    poison(tmp_path / "spec.py", "x = 1\n")  # as Python itself writes it
    stale = poison(tmp_path / "neighbour.py", "x = 2\n")
    stale.write_bytes(stale.read_bytes()[:8] + bytes(8) + stale.read_bytes()[16:])
    (tmp_path / "__pycache__" / "test_it.cpython-311-pytest-8.pyc").touch()
    (tmp_path / "data").mkdir()
    assert watch.changes() == []


def test_the_caches_of_this_package_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[Watch.__module__]
    monkeypatch.setattr(module, "_OURS", tmp_path)
    (tmp_path / "oracles").mkdir()
    (tmp_path / "oracles" / "verdict.py").write_text("x = 1\n")
    watch = Watch([], [])
    poison(tmp_path / "oracles" / "verdict.py", "x = 2\n")
    (tmp_path / "oracles" / "verdict.so").touch()
    assert sorted(line.partition(":")[0] for line in watch.changes()) == ["a file appeared"] * 2
