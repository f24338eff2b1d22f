"""Which texts go where, by options and environment."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import gate_results

from flashprof.report.gate_files import Format, Outlets, gate_files, gate_json_streams, gate_stdout, gate_texts
from flashprof.report.gate_markdown import render_gate_comment
from flashprof.report.gate_sources import Sources

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_STEP_SUMMARY": "/runner/summary",
    "GITHUB_OUTPUT": "/runner/output",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "o/r",
}


def outlets(environ: dict[str, str] | None = None, **fields: object) -> Outlets:
    values: dict[str, object] = {"has_file": lambda path: path == "pipeline/train/masks.py", "token": "t0", **fields}
    return Outlets(environ=environ or {}, **values)  # type: ignore[arg-type]


def test_every_format_is_written_to_the_gates_folder() -> None:
    files = gate_files(gate_results.failed(), outlets(folder=Path("reports/g")))

    assert {Path("reports/g") / kind for kind in Format} == {file.path for file in files}
    assert not any(file.is_appended for file in files)
    assert all(file.text.endswith("\n") for file in files)


def test_without_a_folder_only_what_was_asked_for_is_written() -> None:
    copies = {Format.JUNIT: Path("out/j.xml"), Format.BIGGER_IS_BETTER: Path("bench.json")}
    files = gate_files(gate_results.failed(), outlets(copies=copies))

    assert [Path("out/j.xml"), Path("bench.json")] == [file.path for file in files]
    assert files[0].text.startswith("<?xml")


def test_the_runners_files_are_appended_to() -> None:
    files = gate_files(gate_results.failed(), outlets(GITHUB))

    assert [Path("/runner/summary"), Path("/runner/output")] == [file.path for file in files if file.is_appended]
    assert "verdict=fail\n" in files[-1].text
    assert files[0].text.startswith("## ✕ fail")


def test_an_empty_name_of_a_file_is_none() -> None:
    assert () == gate_files(gate_results.failed(), outlets({**GITHUB, "GITHUB_STEP_SUMMARY": "", "GITHUB_OUTPUT": ""}))


def test_links_are_made_of_the_jobs_environment() -> None:
    texts = gate_texts(gate_results.failed(), outlets(GITHUB, comment_key="h200"))
    url = f"https://github.com/o/r/blob/{gate_results.HEAD_COMMIT}"
    sources = Sources(has_file=lambda path: True, blob_url=url)

    assert f"{url}/pipeline/train/masks.py#L41" in texts[Format.COMMENT]
    assert texts[Format.COMMENT] == render_gate_comment(gate_results.failed(), sources, key="h200")


def test_what_an_open_answer_counts_as_reaches_the_test_report() -> None:
    texts = gate_texts(gate_results.inconclusive(), outlets(inconclusive="fail"))

    assert '<failure message="tok/s' in texts[Format.JUNIT]


def test_only_github_gets_commands_on_stdout() -> None:
    result = gate_results.failed()
    printed = gate_stdout(result, "text\n", outlets(GITHUB))

    assert "text\n" == gate_stdout(result, "text\n", outlets())
    assert printed.startswith("::stop-commands::t0\ntext\n::t0::\n::error file=pipeline/train/masks.py,line=41,title=")
    assert gate_stdout(gate_results.passed(), "text\n", outlets(GITHUB)).endswith("\n::t0::\n")


def test_a_reason_in_json_begins_no_command() -> None:
    reason = "::add-mask::a\n::add-mask::b ##[add-mask]c"
    document, annotations = gate_json_streams(replace(gate_results.failed(), reason=reason), outlets(GITHUB))

    assert reason == json.loads(document)["reason"]
    assert not [line for line in document.splitlines() if line.lstrip().startswith("::") or "##[" in line]
    assert annotations.startswith("::error file=pipeline/train/masks.py,line=41,title=")
