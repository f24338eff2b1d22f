"""What a declared subject needs is looked for before anything starts, and what is missing is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from declared import declare

from flashprof.app.foreign_needs import has_cuda, refuse_unmet
from flashprof.contracts.errors import UsageError
from flashprof.contracts.foreign import ForeignSubject

TOGGLES = '[toggles.a]\nneeds = ["cuda"]\non = {args = ["a"]}\n'


def declared(folder: Path, line: str, program: str = "t") -> ForeignSubject:
    return declare(folder, f'[subject]\ncommand = ["{program}"]\n{line}\n{TOGGLES}')


def refused(subject: ForeignSubject, expression: str = "none", *, cuda: bool = False, path: str = "") -> str:
    """What is said to be missing; nothing where all is there."""
    try:
        refuse_unmet(subject, [subject.parse(expression)], {"PATH": path}, has_cuda=lambda env: cuda)
    except UsageError as error:
        return error.what
    return ""


def test_a_gpu_is_needed_by_the_subject_or_by_a_toggle_that_is_on(tmp_path: Path) -> None:
    plain, needing = declared(tmp_path, ""), declared(tmp_path, 'needs = ["cuda"]')

    assert ("", "") == (refused(plain), refused(needing, cuda=True))
    assert "toggle 'a' needs a CUDA GPU" in refused(plain, "a")
    assert "the subject needs a CUDA GPU" in refused(needing)
    assert "" == refused(plain, "a", cuda=True)


def test_a_compiler_is_looked_for_on_the_path(tmp_path: Path) -> None:
    subject = declared(tmp_path, 'needs = ["compiler"]')
    compiler = tmp_path / "gcc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)

    assert "needs a C compiler" in refused(subject, path="/nowhere")
    assert "" == refused(subject, path=str(tmp_path))


def test_a_refusal_says_who_asked_and_what_to_do(tmp_path: Path) -> None:
    subject = declared(tmp_path, 'files = ["data.bin"]')
    with pytest.raises(UsageError) as raised:
        refuse_unmet(subject, [], {})

    assert str(subject.path) == raised.value.where
    assert ("data.bin", f"ls {tmp_path}") == (raised.value.offered, raised.value.next_command)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "missing: data.bin" in refused(declared(tmp_path, 'files = ["train.py", "data.bin"]'))
    assert "" == refused(declared(tmp_path, 'files = ["train.py"]'))


def test_packages_are_those_of_the_subjects_own_python(tmp_path: Path) -> None:
    line = 'packages = ["pytest", "no-such-package"]'

    assert f"the Python of {sys.executable} has no no-such-package" == refused(declared(tmp_path, line, sys.executable))
    assert "" == refused(declared(tmp_path, 'packages = ["pytest"]', sys.executable))


def test_packages_of_another_environment_are_looked_for_there(tmp_path: Path) -> None:
    site = tmp_path / "venv" / "lib" / "python3.12" / "site-packages" / "mine-1.0.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (tmp_path / "venv" / "bin").mkdir()

    assert "" == refused(declared(tmp_path, 'packages = ["mine"]', "venv/bin/python"))
    assert "has no pytest" in refused(declared(tmp_path, 'packages = ["pytest"]', "venv/bin/python"))


def test_where_packages_cannot_be_told_they_are_not_missed(tmp_path: Path) -> None:
    assert "" == refused(declared(tmp_path, 'packages = ["mine"]', "no-such-program"))


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_hidden_gpus_are_none(hidden: str) -> None:
    assert not has_cuda({"CUDA_VISIBLE_DEVICES": hidden})
