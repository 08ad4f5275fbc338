"""The report folder: nothing of others is touched, one run at a time, and no log is lost without its record."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from opassay.reports.store.folder import FILES, Folder, FolderError
from opassay.reports.store.marker import new_run_id

RUNS = [f"20260301-10000{i}-aaaaaa" for i in range(5)]
CASE = "0123abcd-0001.json"


def _tree(path: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder, with content; without the lock and the marker, which change."""
    results: dict[str, bytes | str] = {}
    for entry in sorted(path.rglob("*")):
        name = str(entry.relative_to(path))
        if entry.is_symlink():
            results[name] = f"-> {entry.readlink()}"
        elif entry.is_file() and entry.name not in ("lock", "marker.json"):
            results[name] = entry.read_bytes()
        elif entry.is_dir():
            results[name] = "folder"
    return results


def _run(path: Path, run: str, *, record: bool = True, case: str = CASE) -> None:
    with Folder.claim(path, run) as folder:
        with folder.open_log() as log:
            log.write(b"{}\n")
        folder.write(f"cases/{case}", run.encode())
        if record:
            folder.write("run.json", run.encode())
            folder.finish()


def test_a_new_folder_is_made_with_its_parents_and_marked(tmp_path: Path) -> None:
    with Folder.claim(tmp_path / "a" / "b", RUNS[0]) as folder:
        assert folder.log == tmp_path / "a/b/.opassay" / f"{RUNS[0]}.ndjson"
        for name in FILES:
            folder.write(name, b"content")
        folder.write(f"cases/{CASE}", b"{}")
        assert folder.unrecorded() == []
    marker = json.loads((tmp_path / "a/b/.opassay/marker.json").read_text())
    assert (marker["tool"], marker["schema"], marker["run"], marker["pid"]) == ("opassay", 1, RUNS[0], os.getpid())
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == sorted([".opassay", "cases", *FILES])
    assert (tmp_path / "a/b/cases" / CASE).read_bytes() == b"{}"
    assert {path.name for path in (tmp_path / "a/b/.opassay").iterdir()} == {"lock", "marker.json"}


def test_ids_of_runs_sort_by_time_and_differ() -> None:
    ids = [new_run_id() for _ in range(20)]
    assert len(set(ids)) == 20
    assert [item[:15] for item in ids] == sorted(item[:15] for item in ids)
    with pytest.raises(ValueError, match="run='x'"):
        Folder.claim(Path("nowhere"), "x")
    assert not Path("nowhere").exists()


# ------------------------------------------------------------------------------------- what others own


def _user_folder(path: Path) -> None:
    (path / "events").mkdir(parents=True)
    (path / "events/models.py").write_text("class Event: ...\n")


def _link(name: str) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        _run(path, RUNS[0])
        target = path.parent / "elsewhere"
        target.mkdir()
        (path / name).unlink() if (path / name).is_file() else (path / name).exists() and (path / name).rename(target)
        (path / name).symlink_to(target)

    return plant


def _instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        _run(path, RUNS[0])
        (path / name).unlink(missing_ok=True)
        make(path / name)

    return plant


def _write(name: str, text: str) -> Callable[[Path], None]:
    def plant(path: Path) -> None:
        _run(path, RUNS[0])
        (path / name).write_text(text)

    return plant


def _is_file(path: Path) -> None:
    path.write_text("mine")


def _is_link(path: Path) -> None:
    (path.parent / "elsewhere").mkdir()
    path.symlink_to("elsewhere")


MARKER = ".opassay/marker.json"


@pytest.mark.parametrize(
    ("plant", "message"),
    [
        (_user_folder, "holds 'events' and no marker"),
        (_is_file, "Not a directory|File exists"),
        (_is_link, "is a symbolic link"),
        (_link(".opassay"), ".opassay in it is a symbolic link"),
        (_link("cases"), "cases in it is a symbolic link"),
        (_link("cases-earlier"), "cases-earlier in it is a symbolic link"),
        (_link("run.json"), "run.json in it is a symbolic link"),
        (_link("plan.json"), "plan.json in it is a symbolic link"),
        (_link(f".opassay/{RUNS[0]}.ndjson"), "ndjson in it is a symbolic link"),
        (_link(".opassay/lock"), "lock in it is a symbolic link"),
        (_link(MARKER), "marker.json in it is a symbolic link"),
        (_instead("run.json", Path.mkdir), "run.json in it is a folder"),
        (_instead("report.html", os.mkfifo), "report.html in it is a pipe"),
        (_instead(MARKER, os.mkfifo), "marker.json in it is a pipe"),
        (_instead(".opassay/lock", os.mkfifo), "lock in it is a pipe"),
        (_instead("cases-earlier", _is_file), "cases-earlier in it is a regular file"),
        (_instead(MARKER, lambda path: None), "holds .* and no marker"),
        (_write(MARKER, "{"), "cannot be read"),
        (_write(MARKER, "x" * 100_000), "cannot be read"),
        (_write(MARKER, '{"tool": "other", "schema": 1, "run": "a", "pid": 1, "started": ""}'), "tool 'other'"),
        (_write(MARKER, '{"tool": "opassay", "schema": 9, "run": "a", "pid": 1, "started": ""}'), "schema 9"),
        (
            _write(MARKER, '{"tool": "opassay", "schema": 1, "run": "../../x", "pid": 1, "started": ""}'),
            "names runs in another way",
        ),
    ],
)
def test_what_is_not_ours_is_refused_and_left(plant: Callable[[Path], None], message: str, tmp_path: Path) -> None:
    path = tmp_path / "report"
    plant(path)
    before = _tree(tmp_path)
    with pytest.raises(FolderError, match=message) as error:
        Folder.claim(path, RUNS[1])
    assert repr(str(path)) in str(error.value)
    assert _tree(tmp_path) == before


def test_only_our_names_are_written(tmp_path: Path) -> None:
    with Folder.claim(tmp_path / "r", RUNS[0]) as folder:
        for name in (
            "x.json",
            "../run.json",
            "cases/../run.json",
            "cases/notes.txt",
            "cases/a/b.json",
            ".opassay/lock",
            "",
        ):
            with pytest.raises(ValueError, match="got name="):
                folder.write(name, b"")
    with pytest.raises(ValueError, match="released"):
        folder.write("run.json", b"")


def test_names_exchanged_while_a_run_goes_on_lead_nowhere(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run.json").write_text("mine")
    with Folder.claim(tmp_path / "r", RUNS[0]) as folder:
        (tmp_path / "r/run.json").symlink_to(outside / "run.json")
        (tmp_path / "r/cases").symlink_to(outside)
        folder.log.symlink_to(outside / "log")
        for name in ("run.json", f"cases/{CASE}"):
            with pytest.raises(FolderError, match=r"symbolic link|not a folder itself"):
                folder.write(name, b"")
        with pytest.raises(OSError, match="symbolic links"):
            folder.open_log()
        # The folder itself is exchanged: what is written goes where the claimed one went.
        (tmp_path / "r").rename(tmp_path / "moved")
        (tmp_path / "r").symlink_to(outside)
        folder.write("plan.json", b"here")
    assert (tmp_path / "moved/plan.json").read_bytes() == b"here"
    assert {path.name for path in outside.iterdir()} == {"run.json"}
    assert (outside / "run.json").read_text() == "mine"


# ----------------------------------------------------------------------------------------- runs after runs


def test_cases_of_an_earlier_run_are_put_away_and_notes_of_a_user_stay(tmp_path: Path) -> None:
    _run(tmp_path, RUNS[0])
    (tmp_path / "cases/notes.json").write_text("mine")
    (tmp_path / "cases/0123abcd-0002.json").symlink_to("notes.json")
    (tmp_path / "mine.txt").write_text("mine")
    _run(tmp_path, RUNS[1], case="ffffffff-0001.json")
    names = {"notes.json", "0123abcd-0002.json", "ffffffff-0001.json"}
    assert {path.name for path in (tmp_path / "cases").iterdir()} == names
    assert (tmp_path / "cases-earlier" / RUNS[0] / CASE).read_text() == RUNS[0]
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_cases_put_away_twice_do_not_overwrite_each_other(tmp_path: Path) -> None:
    _run(tmp_path, RUNS[0])
    target = tmp_path / "cases-earlier" / RUNS[0]
    target.mkdir(parents=True)
    (target / CASE).write_text("before")
    _run(tmp_path, RUNS[1])
    assert {path.name: path.read_text() for path in target.iterdir()} == {
        CASE: "before",
        "0123abcd-0001.2.json": RUNS[0],
    }


def test_a_log_is_kept_until_a_later_record_stands(tmp_path: Path) -> None:
    def logs() -> list[str]:
        return sorted(path.stem for path in (tmp_path / ".opassay").glob("*.ndjson"))

    _run(tmp_path, RUNS[0])
    assert logs() == RUNS[:1]
    _run(tmp_path, RUNS[1], record=False)
    assert logs() == RUNS[:2]
    with Folder.claim(tmp_path, RUNS[2]) as folder:
        folder.open_log().close()
        assert folder.unrecorded() == [RUNS[1]]
        folder.finish()
    assert logs() == RUNS[1:3]  # the first has a record, and a later record stands; the second has none


def test_a_run_that_died_is_reopened(tmp_path: Path) -> None:
    _run(tmp_path, RUNS[0])
    with pytest.raises(FolderError, match="every run in it has its record"):
        Folder.reopen(tmp_path)
    _run(tmp_path, RUNS[1], record=False)
    with Folder.reopen(tmp_path) as folder:
        assert folder.run == RUNS[1]
        assert folder.log.read_bytes() == b"{}\n"
        assert (tmp_path / "cases" / CASE).read_text() == RUNS[1]  # its own cases stay where they are
        folder.write("run.json", b"recovered")
        folder.finish()
        assert folder.unrecorded() == []
    with pytest.raises(FolderError, match="has no log of run"):
        Folder.reopen(tmp_path, RUNS[4])
    with pytest.raises(FolderError, match="nothing to recover"):
        Folder.reopen(tmp_path)


def test_recovering_an_older_run_keeps_the_log_of_the_newer_one(tmp_path: Path) -> None:
    _run(tmp_path, RUNS[0], record=False)
    _run(tmp_path, RUNS[1], case="ffffffff-0001.json")
    with Folder.reopen(tmp_path) as folder:
        assert folder.run == RUNS[0]
        folder.write("run.json", b"recovered")
        folder.finish()
        assert folder.unrecorded() == [RUNS[1]]  # its record was replaced: it can be recovered in turn
    assert (tmp_path / "cases-earlier" / RUNS[1] / "ffffffff-0001.json").exists()
    with Folder.reopen(tmp_path) as folder:
        assert folder.run == RUNS[1]


@pytest.mark.parametrize("plant", [lambda path: None, Path.mkdir, _user_folder, _is_file, _is_link])
def test_only_a_report_folder_is_reopened(plant: Callable[[Path], None], tmp_path: Path) -> None:
    plant(tmp_path / "r")
    before = _tree(tmp_path)
    with pytest.raises(FolderError, match="report folder"):
        Folder.reopen(tmp_path / "r")
    assert _tree(tmp_path) == before


# ---------------------------------------------------------------------------------------- runs beside runs

_HOLD = """
import sys, time
from pathlib import Path
from opassay.reports.store.folder import Folder
folder = Folder.claim(Path(sys.argv[1]), sys.argv[2])
folder.open_log().write(b"{}\\n")
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_run_is_refused_until_the_first_one_dies(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _HOLD, str(tmp_path), RUNS[0]]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        holder = rf"in use by run {RUNS[0]} \(pid {first.pid}\)"
        with pytest.raises(FolderError, match=holder):
            Folder.claim(tmp_path, RUNS[1])
        with pytest.raises(FolderError, match=holder):
            Folder.reopen(tmp_path)
        first.send_signal(signal.SIGKILL)
    with Folder.reopen(tmp_path) as folder:
        assert folder.run == RUNS[0]


def test_a_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    folder = Folder.claim(tmp_path, RUNS[0])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(writer)
        os.read(reader, 1)
        os._exit(0)
    folder.release()
    folder.release()
    Folder.claim(tmp_path, RUNS[1]).release()
    os.close(writer)
    os.waitpid(child, 0)
    os.close(reader)


def test_what_was_half_written_is_cleared_and_a_refusal_frees_the_lock(tmp_path: Path) -> None:
    _run(tmp_path, RUNS[0])
    scratch = tmp_path / ".opassay" / f"new-{'0' * 16}"
    scratch.write_text("half")
    with pytest.raises(FolderError, match="has a log of run"):
        Folder.claim(tmp_path, RUNS[0])
    _run(tmp_path, RUNS[1])
    assert not scratch.exists()


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    with Folder.claim(tmp_path, RUNS[0]) as folder:
        folder.write("run.json", b"old")
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            folder.write("run.json", b"new")
    assert (tmp_path / "run.json").read_bytes() == b"old"
    assert {path.name for path in (tmp_path / ".opassay").iterdir()} == {"lock", "marker.json"}


def test_the_record_of_an_earlier_run_does_not_stand_for_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "r"
    _run(path, RUNS[0])
    with Folder.claim(path, RUNS[1]) as folder:  # and then it is killed, say
        assert not (path / "run.json").exists()
        assert (path / f".opassay/{RUNS[0]}.run.json").read_text() == RUNS[0]
        assert folder.unrecorded() == []
    _run(path, RUNS[2])
    assert (path / "run.json").read_text() == RUNS[2]
    assert not (path / f".opassay/{RUNS[0]}.run.json").exists()
