"""Subjects start, are found wherever their children move, and end without a trace, also when FlashProf is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from processes import own_children

from flashprof.contracts.errors import ToolError, UsageError
from flashprof.contracts.ports import LaunchSpec
from flashprof.launch.guard import MARK_VARIABLE, end_all
from flashprof.launch.process import ProcessLauncher, ProcessSubject

ENV = {"PATH": os.defpath, "PYTHONDONTWRITEBYTECODE": "1"}
SLEEPER = "import time; time.sleep(60)"
# Starts a grandchild in a session of its own, prints its pid, and goes on.
WITH_GRANDCHILD = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-S", "-c", {child!r}], start_new_session=True)
print(child.pid, flush=True)
{then}
"""
DEAF = """
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(60)
"""

Launch = Callable[..., ProcessSubject]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    subjects: list[ProcessSubject] = []

    def start(code: str, **env: str) -> ProcessSubject:
        spec = _spec(tmp_path, (sys.executable, "-S", "-c", textwrap.dedent(code)), **env)
        subjects.append(ProcessLauncher().launch(spec))
        return subjects[-1]

    yield start
    for subject in subjects:
        subject.kill_tree()


def test_output_is_merged_in_the_log_and_the_status_is_told(launch: Launch, tmp_path: Path) -> None:
    subject = launch("import sys; print('out', flush=True); print('err', file=sys.stderr); sys.exit(3)")
    _wait_for(lambda: subject.returncode() is not None)

    assert (tmp_path / "log").read_text() == "out\nerr\n"
    assert subject.returncode() == 3
    assert subject.kill_tree() == 0


def test_the_subject_has_a_session_of_its_own_no_input_and_the_given_environment(
    launch: Launch, tmp_path: Path
) -> None:
    subject = launch("import os, sys; print(os.getsid(0) == os.getpid(), repr(sys.stdin.read()), *sorted(os.environ))")
    _wait_for(lambda: subject.returncode() is not None)
    words = (tmp_path / "log").read_text().split()

    assert words[:2] == ["True", "''"]
    assert {MARK_VARIABLE, *ENV} == set(words[2:]) - {"LC_CTYPE"}


def test_interrupt_reaches_the_program_only(launch: Launch, tmp_path: Path) -> None:
    then = """
    import signal
    signal.signal(signal.SIGINT, lambda *_: sys.exit(7))
    print("ready", flush=True)
    time.sleep(60)
    """
    subject = launch(WITH_GRANDCHILD.format(child=SLEEPER, then=textwrap.dedent(then)))
    _wait_for(lambda: "ready" in (tmp_path / "log").read_text())
    subject.interrupt()
    _wait_for(lambda: subject.returncode() is not None)

    assert subject.returncode() == 7
    assert psutil.pid_exists(_first_pid(tmp_path))
    assert subject.kill_tree() == 1


def test_a_grandchild_in_another_session_is_ended_with_the_tree(launch: Launch, tmp_path: Path) -> None:
    subject = launch(WITH_GRANDCHILD.format(child=SLEEPER, then="time.sleep(60)"))
    pid = _first_pid(tmp_path)

    assert subject.kill_tree() == 2
    assert not _runs(pid)
    assert subject.returncode() == -signal.SIGTERM
    assert subject.kill_tree() == 0


def test_a_grandchild_that_lost_its_parent_and_ignores_sigterm_is_killed(launch: Launch, tmp_path: Path) -> None:
    subject = launch(WITH_GRANDCHILD.format(child=DEAF, then="pass"))
    pid = _first_pid(tmp_path)
    _wait_for(lambda: "deaf" in (tmp_path / "log").read_text() and subject.returncode() is not None)

    assert subject.kill_tree() == 1
    assert not _runs(pid)


def test_a_descendant_that_cleared_its_environment_is_found_as_a_child(launch: Launch, tmp_path: Path) -> None:
    code = WITH_GRANDCHILD.replace("start_new_session=True", "start_new_session=True, env={{}}")
    subject = launch(code.format(child=SLEEPER, then="time.sleep(60)"))
    pid = _first_pid(tmp_path)

    assert subject.kill_tree() == 2
    assert not _runs(pid)


def test_helpers_that_end_by_themselves_after_a_clean_end_are_not_counted(launch: Launch, tmp_path: Path) -> None:
    subject = launch(WITH_GRANDCHILD.format(child="import time; time.sleep(0.3)", then="pass"))
    _first_pid(tmp_path)
    _wait_for(lambda: subject.returncode() is not None)

    assert subject.kill_tree() == 0


def test_a_multiprocessing_forkserver_is_ended_with_its_workers(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "main.py"
    script.write_text(
        textwrap.dedent("""
        import multiprocessing as mp, os, time
        def work():
            print(os.getpid(), flush=True)
            time.sleep(60)
        if __name__ == "__main__":
            mp.get_context("forkserver").Process(target=work).start()
            time.sleep(60)
        """)
    )
    subject = launch(f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')")
    pid = _first_pid(tmp_path)

    # Main, forkserver, resource tracker and worker.
    assert subject.kill_tree() == 4
    assert not _runs(pid)


def test_a_killed_flashprof_leaves_no_subject(tmp_path: Path) -> None:
    flashprof = textwrap.dedent(f"""
        import sys, time
        from pathlib import Path
        from flashprof.contracts.ports import LaunchSpec
        from flashprof.launch.process import ProcessLauncher
        folder = Path({str(tmp_path)!r})
        code = {WITH_GRANDCHILD.format(child=SLEEPER, then="time.sleep(60)")!r}
        spec = LaunchSpec(command=(sys.executable, "-S", "-c", code), cwd=folder, env={ENV!r}, log_path=folder / "log")
        print(ProcessLauncher().launch(spec).pid, flush=True)
        time.sleep(60)
    """)
    env = {**ENV, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", flashprof], env=env, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        pids = [int(killed.stdout.readline()), _first_pid(tmp_path)]
        running = [_runs(pid) for pid in pids]
        killed.kill()
    _wait_for(lambda: not any(_runs(pid) for pid in pids))

    assert running == [True, True]


def test_the_guard_goes_with_the_subject(launch: Launch) -> None:
    before = set(own_children())
    subject = launch(SLEEPER)
    started = set(own_children()) - before
    subject.kill_tree()

    assert len(started) == 2
    assert before == set(own_children())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ((), "no command"),
        (("no-such-trainer", "--x"), "command not found: no-such-trainer"),
        (("./train.py",), "cannot be executed"),
        (("./plain",), "Exec format error"),
        (("./shebang",), "command not found: ./shebang"),
    ],
)
def test_a_command_that_cannot_run_is_a_usage_error(tmp_path: Path, command: tuple[str, ...], words: str) -> None:
    (tmp_path / "train.py").write_text("print()")
    for name, text in (("plain", "not a program"), ("shebang", "#!/no/such/python\n")):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    before = set(own_children())

    with pytest.raises(UsageError, match=words) as caught:
        ProcessLauncher().launch(_spec(tmp_path, command))
    assert caught.value.allowed
    assert before == set(own_children())


def test_a_folder_that_does_not_exist_is_a_usage_error(tmp_path: Path) -> None:
    spec = LaunchSpec(command=("true",), cwd=tmp_path / "none", env=ENV, log_path=tmp_path / "log")

    with pytest.raises(UsageError, match="folder to run in does not exist"):
        ProcessLauncher().launch(spec)


def test_a_log_that_cannot_be_written_is_a_tool_error(tmp_path: Path) -> None:
    spec = LaunchSpec(command=("true",), cwd=tmp_path, env=ENV, log_path=tmp_path / "none" / "log")

    with pytest.raises(ToolError, match="log cannot be written"):
        ProcessLauncher().launch(spec)


def test_ending_gives_up_on_nothing_that_still_forks() -> None:
    rounds: list[set[int]] = [{2**22 + 1}, {2**22 + 2}, set(), set()]

    assert {2**22 + 1, 2**22 + 2} == end_all(lambda: rounds.pop(0))


def test_a_process_that_has_no_environment_yet_is_ended_too() -> None:
    rounds: list[set[int]] = [{2**22 + 1}, set(), {2**22 + 2}, set(), set()]

    assert {2**22 + 1, 2**22 + 2} == end_all(lambda: rounds.pop(0))


def _spec(folder: Path, command: tuple[str, ...], **env: str) -> LaunchSpec:
    return LaunchSpec(command=command, cwd=folder, env={**ENV, **env}, log_path=folder / "log")


def _first_pid(folder: Path) -> int:
    log = folder / "log"
    _wait_for(lambda: log.exists() and "\n" in log.read_text())
    return int(log.read_text().split()[0])


def _runs(pid: int) -> bool:
    # An orphan stays a zombie where nothing reaps in this container; that is not ours to mend.
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline_s, "nothing came within 10 s"
        time.sleep(0.01)
