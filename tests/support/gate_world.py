"""A whole `flashprof gate` in virtual time: a real repository, and a trainer that reads its speed from its tree."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

from bisect_world import BisectWorld
from study_world import STEP_S, WINDOWS

from flashprof.app.gate import gate
from flashprof.contracts.experiment import SubjectKind, SubjectSpec
from flashprof.contracts.gate import TOK_PER_S, GateRequest, GateResult, Threshold
from flashprof.contracts.ports import LaunchSpec

FAST, SLOW = "1.0", "1.08"
"""What a step takes: 8 % longer is 7.4 % fewer tok/s."""
TOK_THRESHOLD = Threshold(metric=TOK_PER_S, max_regression=0.03)


def git(repo: Path, *words: str) -> str:
    """What git prints there, as somebody with a name."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    who = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    env = {**kept, **who, "GIT_CONFIG_GLOBAL": os.devnull}
    done = subprocess.run(("git", *words), cwd=repo, env=env, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class GateWorld(BisectWorld):
    """`main`, and a branch that is checked out, one commit on."""

    def make(self) -> GateWorld:
        """Make the history and ask whether the branch may land."""
        self.repo = self.root / "repo"
        self.repo.mkdir()
        git(self.repo, "init", "-q", "-b", "main")
        self.base = self.commit("start", speed=FAST, train="print('tok/s=1')\n")
        git(self.repo, "checkout", "-q", "-b", "change")
        self.head = self.commit("change", readme="how to\n")
        self.cwd = self.repo
        self.step_s = self._step_s
        self.gated = GateRequest(
            thresholds=(TOK_THRESHOLD,),
            base_ref="main",
            repo=self.repo,
            command=("trainer",),
            subject=SubjectSpec(kind=SubjectKind.FOREIGN, command=("trainer",), toggles="none"),
            windows=WINDOWS,
            budget_s=1200.0,
            explain=False,
            reports=self.reports,
        )
        return self

    def commit(self, subject: str, **files: str) -> str:
        """One more commit where HEAD is; returns its id."""
        for name, text in files.items():
            self.write(name, text)
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", subject)
        return git(self.repo, "rev-parse", "HEAD")

    def write(self, name: str, text: str) -> None:
        """Change a file of the tree, without a commit."""
        names = {"speed": "speed.cfg", "train": "train.py", "readme": "README.md"}
        (self.repo / names[name]).write_text(text)

    def want(self, **changes: object) -> None:
        """Change the question."""
        self.gated = replace(self.gated, **changes)  # type: ignore[arg-type]

    def gate(self) -> GateResult:
        """Give the command."""
        return gate(self.gated, self.ports, self.progress)

    @property
    def place(self) -> Path:
        """The one gate's folder."""
        (path,) = self.reports.glob("gate-????????????")
        return path

    def _step_s(self, spec: LaunchSpec) -> float:
        return STEP_S * float((spec.cwd / "speed.cfg").read_text())
