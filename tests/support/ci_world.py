"""A runner's machine without its service: steps of action.yml in their shell, a fake `flashprof` and `gh` on PATH."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from gate_world import git

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"
SCRIPT = ROOT / "scripts" / "gate-ci"
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
"""What `shell: bash` means to GitHub's runner."""
FAKE_FLASHPROF = """
import json, os, pathlib, sys
words = sys.argv[1:]
told = {"words": words, "cwd": os.getcwd(), "program": sys.argv[0]}
pathlib.Path(os.environ["FAKE_LOG"]).write_text(json.dumps(told))
for flag, text in zip(words, words[1:]):
    if flag == "--write":
        pathlib.Path(text.partition("=")[2]).write_text("<!-- flashprof gate h200 -->\\ntext\\n")
if os.environ.get("GITHUB_OUTPUT"):
    with open(os.environ["GITHUB_OUTPUT"], "a") as out:
        out.write("verdict=fail\\n")
sys.exit(int(os.environ.get("FAKE_STATUS", "0")))
"""
FAKE_GH = """
import json, os, pathlib, sys
log = pathlib.Path(os.environ["FAKE_LOG"])
log.write_text((log.read_text() if log.exists() else "") + json.dumps(sys.argv[1:]) + "\\n")
if sys.argv[1:3] == ["pr", "view"]:
    print(os.environ["FAKE_COMMENTS"], end="")
sys.exit(int(os.environ.get("FAKE_STATUS", "0")))
"""


def read_action() -> dict[str, Any]:
    """All of action.yml."""
    action: dict[str, Any] = yaml.safe_load(ACTION.read_text(encoding="utf-8"))
    return action


@dataclass
class Machine:
    """A folder with a repository of two branches; `topic`, one commit on from `main`, is checked out."""

    root: Path
    env: dict[str, str] = field(default_factory=dict)
    """What the service and a test add to the environment."""

    def make(self) -> Machine:
        """The repository, and the fakes."""
        for name in ("repo", "bin", "temp"):
            (self.root / name).mkdir()
        git(self.repo, "init", "-q", "-b", "main")
        self.commit("start")
        git(self.repo, "checkout", "-q", "-b", "topic")
        self.commit("change")
        self.put("flashprof", FAKE_FLASHPROF)
        return self

    @property
    def repo(self) -> Path:
        """The checkout."""
        return self.root / "repo"

    @property
    def log(self) -> Path:
        """What a fake was called with."""
        return self.root / "log"

    def commit(self, subject: str) -> str:
        """One more commit; returns its id."""
        (self.repo / "train.py").write_text(f"print('tok/s=1')  # {subject}\n")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-q", "-m", subject)
        return git(self.repo, "rev-parse", "HEAD")

    def clone(self, *words: str) -> None:
        """Check `topic` out anew, as a runner does: detached, branches at the remote only."""
        self.repo.rename(self.root / "remote")
        url = (self.root / "remote").as_uri()
        git(self.root, "clone", "-q", "--no-local", "--branch", "topic", *words, url, "repo")
        git(self.repo, "checkout", "-q", "--detach")
        git(self.repo, "branch", "-q", "-D", "topic")

    def put(self, name: str, text: str) -> Path:
        """A program on PATH, in Python."""
        path = self.root / "bin" / name
        path.write_text(f"#!{sys.executable} -IS\n{text}")
        path.chmod(0o755)
        return path

    def environ(self) -> dict[str, str]:
        """Of a step: nothing of the job that runs this test."""
        return {
            "PATH": f"{self.root / 'bin'}{os.pathsep}{os.defpath}",
            "HOME": str(self.root),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "RUNNER_TEMP": str(self.root / "temp"),
            "FAKE_LOG": str(self.log),
            **self.env,
        }

    def step(
        self, name: str, inputs: Mapping[str, str], event: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """
        Run a step of the action as GitHub would.

        Args:
            name: Of the step.
            inputs: By name; the rest has its default.
            event: What other expressions mean, such as `github.event.before`.
        """
        action = read_action()
        defaults = {f"inputs.{key}": str(value["default"]) for key, value in action["inputs"].items()}
        known = {**defaults, **{f"inputs.{key}": value for key, value in inputs.items()}, **(event or {})}
        step = next(step for step in action["runs"]["steps"] if step["name"] == name)
        github = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(self.root / "output"),
            "GITHUB_REPOSITORY": "o/r",
        }
        env = {key: evaluate(text, known) for key, text in step["env"].items()}
        place = self.repo / evaluate(step.get("working-directory", "."), known)
        (self.root / "step.sh").write_text(step["run"])
        return self.call(*SHELL, str(self.root / "step.sh"), cwd=place, env={**github, **env})

    def call(self, *words: str, cwd: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        env = {**env, **self.environ()}
        return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)

    def asked(self) -> list[str]:
        """The words that `flashprof` was called with, but for `--write`."""
        words: list[str] = json.loads(self.log.read_text())["words"]
        pairs = list(zip(["", *words], words, strict=False))
        return [word for before, word in pairs if "--write" not in (before, word)]

    def outputs(self) -> dict[str, str]:
        """Of the step."""
        return dict(line.split("=", 1) for line in (self.root / "output").read_text().splitlines())


def evaluate(text: str, known: Mapping[str, str]) -> str:
    """`${{ a.b || c.d }}`: the first that is known and not empty."""
    return re.sub(
        r"\$\{\{ (.*?) \}\}",
        lambda found: next((known[name] for name in found[1].split(" || ") if known.get(name)), ""),
        text,
    )
