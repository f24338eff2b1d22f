"""From frames to lines of the repository, and to addresses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import localisations
import pytest

from flashprof.report.gate_sources import Place, Sources, blob_url

COMMIT = "b81e44f60c2d9a7351e8f0a6c4d2b39785160e4f"
FILES = {"pipeline/train/masks.py", "a b/(c).py"}
SOURCES = Sources(has_file=FILES.__contains__, root="/work/repo", blob_url=f"https://github.com/o/r/blob/{COMMIT}")
GITHUB = {"GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": "0" * 40}
GITLAB = {"CI_PROJECT_URL": "https://gitlab.com/o/r", "CI_COMMIT_SHA": "1" * 40}


@pytest.mark.parametrize("where", ["pipeline/train/masks.py:41", "/work/repo/pipeline/train/masks.py:41"])
def test_a_frame_of_the_repository_has_a_line(where: str) -> None:
    place = SOURCES.place(localisations.frame("f", 1.0, where=where))

    assert Place("pipeline/train/masks.py", 41) == place


@pytest.mark.parametrize(
    "where",
    [
        "torch/nn/functional.py:12",
        "/usr/lib/python3/x.py:3",
        "pipeline/train/masks.py",
        "pipeline/train/masks.py:0",
        "pipeline/train/masks.py:²",
        "pipeline/train/masks.py:99999999999",
        "../pipeline/train/masks.py:4",
        "<string>:1",
        ":1",
        "",
    ],
)
def test_what_is_no_line_of_the_repository_has_none(where: str) -> None:
    assert SOURCES.place(localisations.frame("f", 1.0, where=where)) is None


@pytest.mark.parametrize("where", ["../secret.py:4", "a/../../secret.py:4", "/etc/x.py:4", "/work/repo:4"])
def test_no_frame_leads_out_of_the_repository(where: str) -> None:
    sources = replace(SOURCES, has_file=lambda path: True)

    assert sources.place(localisations.frame("f", 1.0, where=where)) is None


@pytest.mark.parametrize("name", ["µ" * 128, "a/" * 2_001])
def test_no_file_is_asked_for_whose_name_is_an_error(name: str, tmp_path: Path) -> None:
    sources = Sources(has_file=lambda path: (tmp_path / path).is_file())

    assert sources.place(localisations.frame("f", 1.0, where=f"{name}:4")) is None


def test_an_address_holds_no_character_that_ends_it() -> None:
    assert f"https://github.com/o/r/blob/{COMMIT}/a%20b/%28c%29.py#L3" == SOURCES.url(Place("a b/(c).py", 3))
    assert "" == Sources(has_file=FILES.__contains__).url(Place("a", 1))


@pytest.mark.parametrize(
    ("environ", "commit", "url"),
    [
        (GITHUB, COMMIT, f"https://github.com/o/r/blob/{COMMIT}"),
        (GITHUB, "", f"https://github.com/o/r/blob/{'0' * 40}"),
        (GITLAB, COMMIT, f"https://gitlab.com/o/r/-/blob/{COMMIT}"),
        (GITLAB, "", f"https://gitlab.com/o/r/-/blob/{'1' * 40}"),
        ({}, COMMIT, ""),
        (GITHUB, "main", ""),
        ({**GITHUB, "GITHUB_REPOSITORY": "o/r) [x](y"}, COMMIT, ""),
        ({**GITHUB, "GITHUB_SERVER_URL": "javascript:"}, COMMIT, ""),
    ],
)
def test_pages_of_files_follow_from_the_job(environ: dict[str, str], commit: str, url: str) -> None:
    assert url == blob_url(environ, commit)
