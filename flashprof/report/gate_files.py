"""Which texts of a gate go where: its folder, paths that were asked for, and what GitHub's runner reads. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from flashprof.contracts.gate import GateResult
from flashprof.report.gate_github import (
    annotation_lines,
    output_text,
    outputs,
    without_commands,
    without_old_commands,
)
from flashprof.report.gate_gitlab import render_code_quality, render_metrics
from flashprof.report.gate_json import bigger_is_better, gate_to_json, smaller_is_better
from flashprof.report.gate_junit import render_gate_junit
from flashprof.report.gate_markdown import render_gate_comment, render_gate_summary
from flashprof.report.gate_sources import Sources, blob_url


class Format(StrEnum):
    """A text for somebody, under the name of its file in the gate's folder."""

    JSON = "gate.json"
    REPORT = "report.md"
    COMMENT = "comment.md"
    """For a pull request, at most 64 KiB."""
    JUNIT = "junit.xml"
    BIGGER_IS_BETTER = "benchmark-bigger.json"
    """For github-action-benchmark, as the next one."""
    SMALLER_IS_BETTER = "benchmark-smaller.json"
    METRICS = "metrics.txt"
    """GitLab's metrics report."""
    CODE_QUALITY = "code-quality.json"
    """GitLab's annotations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlets:
    """Where the texts of a gate are wanted, and what the job is."""

    environ: Mapping[str, str]
    """Of the job: `GITHUB_ACTIONS`, `GITHUB_STEP_SUMMARY`, `GITHUB_OUTPUT`, and those that links are made of."""
    has_file: Callable[[str], bool]
    """Whether a path relative to *root* is a file of head's tree."""
    token: str
    """Random: what a text of the run cannot know."""
    root: str = ""
    """Top of the repository, absolute."""
    folder: Path | None = None
    """The gate's own; all formats are written there. None where it has none."""
    copies: Mapping[Format, Path] = field(default_factory=dict)
    """Paths that were asked for."""
    comment_key: str = ""
    """Tells the gates of one pull request apart."""
    inconclusive: str | None = None
    """`pass` or `fail`, as for the status."""

    @property
    def is_github(self) -> bool:
        """Whether a runner of GitHub reads what is printed."""
        return self.environ.get("GITHUB_ACTIONS") == "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileText:
    """A text and its place, to be written as UTF-8."""

    path: Path
    text: str
    is_appended: bool = False
    """Files of GitHub's runner belong to the whole step; others are replaced."""


def gate_texts(result: GateResult, outlets: Outlets) -> dict[Format, str]:
    """Every format."""
    sources = _sources(result, outlets)
    return {
        Format.JSON: gate_to_json(result),
        Format.REPORT: render_gate_summary(result, sources),
        Format.COMMENT: render_gate_comment(result, sources, key=outlets.comment_key),
        Format.JUNIT: render_gate_junit(result, inconclusive=outlets.inconclusive),
        Format.BIGGER_IS_BETTER: bigger_is_better(result),
        Format.SMALLER_IS_BETTER: smaller_is_better(result),
        Format.METRICS: render_metrics(result),
        Format.CODE_QUALITY: render_code_quality(result, sources),
    }


def gate_files(result: GateResult, outlets: Outlets) -> tuple[FileText, ...]:
    """All that is to be written: the folder first, then paths that were asked for, then the runner's."""
    texts = gate_texts(result, outlets)
    inside = () if outlets.folder is None else tuple((outlets.folder / kind, text) for kind, text in texts.items())
    asked = tuple((path, texts[kind]) for kind, path in outlets.copies.items())
    files = tuple(FileText(path=path, text=text) for path, text in (*inside, *asked))
    runner = (
        ("GITHUB_STEP_SUMMARY", texts[Format.REPORT]),
        ("GITHUB_OUTPUT", output_text(outputs(result), outlets.token)),
    )
    named = tuple((Path(outlets.environ[name]), text) for name, text in runner if outlets.environ.get(name))
    return (*files, *(FileText(path=path, text=text, is_appended=True) for path, text in named))


def gate_stdout(result: GateResult, console_text: str, outlets: Outlets) -> str:
    """What to print: on GitHub the console's text, in which no commands are looked for, and annotations after it."""
    if not outlets.is_github:
        return console_text
    return without_commands(console_text, outlets.token) + gate_annotations(result, outlets)


def gate_json_streams(result: GateResult, outlets: Outlets) -> tuple[str, str]:
    """
    Of `--json`.

    Returns:
        For stdout one document and nothing else; for stderr annotations, which GitHub's runner reads there as well.
    """
    text = gate_to_json(result)
    return (without_old_commands(text), gate_annotations(result, outlets)) if outlets.is_github else (text, "")


def gate_annotations(result: GateResult, outlets: Outlets) -> str:
    """A line each, for GitHub's runner."""
    lines = annotation_lines(result, _sources(result, outlets), inconclusive=outlets.inconclusive)
    return "".join(f"{line}\n" for line in lines)


def _sources(result: GateResult, outlets: Outlets) -> Sources:
    return Sources(has_file=outlets.has_file, root=outlets.root, blob_url=blob_url(outlets.environ, result.head_commit))
