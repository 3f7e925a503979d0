"""One process at a time writes into a run directory; locks of dead processes do not matter."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from process_fixtures import assert_refused_by_holder, created_at_once, until

from murmuration.cli import main
from murmuration.runs import directory as runs, locks
from murmuration.runs.manifest import FORMAT
from murmuration.system import files, process_names
from murmuration.system.errors import Failure, Misuse
from murmuration.system.files import write_record

pytest_plugins = ["process_fixtures"]


@pytest.mark.parametrize("command", [("train", "two-moons"), ("compare", "two-moons")])
def test_a_second_process_is_refused_in_one_line(tmp_path: Path, holder, command, capsys):
    assert_refused_by_holder(tmp_path / "run", holder, command, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("command", [("resume",), ("calibrate",), ("evaluate",)])
def test_commands_on_a_run_are_refused_while_it_is_written(tmp_path: Path, holder, command, capsys):
    write_record(tmp_path / "run" / "run.json", {"format": FORMAT, "status": "training", "files": {}})
    assert main([*command, str(tmp_path / "run")]) == 2
    assert f"is being written by process {holder.pid}" in capsys.readouterr().err


def test_the_lock_of_a_killed_process_does_not_matter(tmp_path: Path, holder):
    path = tmp_path / "run"
    with pytest.raises(Misuse, match="is being written by process"), runs.locked(path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert len(locks.holders(path)) == 1
    assert not locks.is_held(path)
    with runs.locked(path):
        assert [each.process for each in locks.holders(path)] == [os.getpid()]
    assert not list(path.iterdir())


def test_a_process_that_was_not_reaped_yet_is_dead(tmp_path: Path, holder):
    holder.send_signal(signal.SIGKILL)
    until(lambda: not process_names.is_running(holder.pid))


@pytest.mark.slow
def test_a_number_that_another_process_has_now_is_dead(tmp_path: Path, holder):
    (found,) = locks.holders(tmp_path / "run")
    assert not found.is_dead
    if process_names.process_start(os.getpid()) is None:
        pytest.skip("this system does not say when a process began")
    found.file.write_text(json.dumps({**found.about, "started": "another time"}))
    (again,) = locks.holders(tmp_path / "run")
    assert again.is_dead


def test_a_lock_of_another_host_names_the_file_to_remove(tmp_path: Path):
    foreign = tmp_path / f"{locks.PREFIX}far-away.7"
    foreign.write_text("{")  # killed while it was written
    told = r"process 7 on far-away .*; if it has, remove .*\.lock\.far-away\.7$"
    with pytest.raises(Misuse, match=told), runs.locked(tmp_path):
        pass
    assert [file.name for file in tmp_path.iterdir()] == [foreign.name]


def test_a_thread_may_lock_again_and_another_may_not(tmp_path: Path):
    path, refused = tmp_path / "a" / "run", []

    def other() -> None:
        try:
            with runs.locked(path):
                pass
        except Misuse as error:
            refused.append(str(error))

    with runs.locked(path), runs.locked(path):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert locks.is_held(path)
    assert refused == [f"{path} is being written by another thread of this process: wait until it has ended"]
    assert not (tmp_path / "a").exists()  # made for the lock, and empty in the end


@pytest.mark.slow
def test_of_several_creators_of_one_run_one_wins_and_none_harms_it(tmp_path: Path):
    wins = []
    for turn in range(15):
        path = tmp_path / f"new-{turn}" / "run"
        won = created_at_once(path, 4)
        wins.append(sum(won))
        if any(won):
            assert [file.name for file in path.iterdir()] == [runs.MANIFEST]
            assert runs.read_run(path).status == "training"
        else:
            assert not path.exists()
    assert max(wins) == 1  # never two
    assert sum(wins) >= 10  # hardly ever none


def test_a_read_only_place_is_a_failure_in_one_line(tmp_path: Path, monkeypatch):
    def refuse(self, *arguments, **settings):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(Failure, match=r"cannot write .*run: .*Read-only file system"), runs.locked(tmp_path / "run"):
        pass


def windows_fsync(handle: int) -> None:
    """As Windows: a file that is not open for writing cannot be flushed."""
    import fcntl

    if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
        raise OSError(errno.EBADF, "Bad file descriptor")


def test_files_are_written_where_directories_cannot_be_opened(tmp_path: Path, monkeypatch):
    opened = os.open

    def as_windows(path, flags, *more, **settings):
        if Path(path).is_dir():
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, flags, *more, **settings)

    flushed = []
    monkeypatch.setattr(os, "open", as_windows)
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(windows_fsync(handle)))
    files.write_bytes(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"
    assert flushed == [None]  # the file itself


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_files_are_written_on_systems_that_cannot_flush(tmp_path: Path, monkeypatch, code):
    def refuse(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", refuse)
    files.write_json(tmp_path / "file", {"a": 1})
    assert files.read_json(tmp_path / "file") == {"a": 1}


def test_an_open_file_is_replaced_when_its_reader_is_done_with_it(tmp_path: Path, monkeypatch):
    refusals = iter([PermissionError(errno.EACCES, "in use")] * 3)
    replace = os.replace

    def as_windows(source, target):
        for refusal in refusals:
            raise refusal
        replace(source, target)

    monkeypatch.setattr(files.os, "replace", as_windows)
    with pytest.raises(Failure, match="cannot write"):  # elsewhere it is a refusal for good
        files.write_bytes(tmp_path / "file", b"content")
    monkeypatch.setattr(files, "ON_WINDOWS", True)
    files.write_bytes(tmp_path / "file", b"content")
    assert (tmp_path / "file").read_bytes() == b"content"


def test_a_link_to_itself_is_refused_in_one_line(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(Failure, match=r"cannot write .*loop"), locks.locked(tmp_path / "loop"):
        pass


def test_a_live_lock_of_another_namespace_holds(tmp_path: Path, holder):
    words = ["unshare", "--pid", "--fork", "--mount-proc"]
    if shutil.which("unshare") is None or subprocess.run([*words, "true"], check=False, capture_output=True).returncode:
        pytest.skip("unshare --pid is not available or not permitted")
    path = tmp_path / "run"
    take = f"from murmuration.runs import directory as runs\nwith runs.locked(runs.Path({str(path)!r})): print('held')"
    done = subprocess.run([*words, sys.executable, "-c", take], capture_output=True, text=True, check=False)
    assert "held" not in done.stdout
    assert f"process {holder.pid} on " in done.stderr
    assert "another container" in done.stderr
    (lock,) = locks.holders(path)
    assert done.stderr.strip().endswith(f"if it has, remove {lock.file}")


def test_a_lock_from_before_a_restart_does_not_matter(tmp_path: Path, monkeypatch):
    machine = f"lab-0123abcd-{process_names.FIRST_NAMESPACE}"
    (tmp_path / f"{locks.PREFIX}{machine}.7").write_text('{"empty": true}')
    for module in (locks, process_names):
        monkeypatch.setattr(module, "this_machine", lambda: machine.replace("0123abcd", "ffffffff"))
    monkeypatch.setattr(process_names, "is_on_own_disk", lambda path: False)  # it may be another machine's of one name
    with pytest.raises(Misuse, match=r"process 7 on lab in another container, or before a restart"):
        locks.locked(tmp_path).__enter__()
    monkeypatch.setattr(process_names, "is_on_own_disk", lambda path: True)
    with runs.locked(tmp_path):
        assert [holder.process for holder in locks.holders(tmp_path)] == [os.getpid()]


def test_a_lock_is_not_written_through_a_link(tmp_path: Path):
    target = tmp_path / "precious.txt"
    target.write_text("precious")
    (tmp_path / "run").mkdir()
    locks.own_file(tmp_path / "run").symlink_to(target)
    with runs.locked(tmp_path / "run"):
        assert not locks.own_file(tmp_path / "run").is_symlink()
    assert target.read_text() == "precious"


def test_a_lock_is_flushed_before_anything_else_is_written(tmp_path: Path, monkeypatch):
    flushed, fsync = [], os.fsync

    def note(handle: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{handle}") if Path("/proc/self/fd").exists() else ".lock.")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    with runs.locked(tmp_path):
        assert len(flushed) == 1
        assert locks.PREFIX in flushed[0]


def test_a_lock_that_was_cut_in_an_empty_directory_does_not_hide_that_it_was_empty(tmp_path: Path):
    """Killed while it wrote its lock, then killed again inside a file: the third command begins anew."""
    (tmp_path / f"{locks.PREFIX}{process_names.this_machine()}.{2**22 + 1}").write_text('{"comm')
    with runs.new_run(tmp_path):
        lock = locks.own_file(tmp_path)
        assert json.loads(lock.read_text())["empty"]
        lock.rename(lock.with_name(f"{locks.PREFIX}{process_names.this_machine()}.{2**22 + 2}"))
        (tmp_path / runs.MEMBERS).touch()
    (tmp_path / f"{locks.PREFIX}{process_names.this_machine()}.{2**22 + 3}").touch()  # and killed in a lock again
    with runs.new_run(tmp_path):
        assert [file.name for file in tmp_path.iterdir()] == [locks.own_file(tmp_path).name]


def test_a_place_where_nothing_can_be_made_is_refused(tmp_path: Path, monkeypatch):
    def mkdir(path: Path) -> None:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with (
        pytest.raises(Failure, match=r"cannot write .*run: .*No such file or directory"),
        runs.locked(tmp_path / "run"),
    ):
        pass
