"""From a frame of a profile to a line of the repository, and to the page that shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from flashprof.contracts.localisation import FrameChange

COMMIT_DIGITS = 40
MAX_NAME_BYTES = 255
"""Linux takes no longer name of a file: to ask for one is an error, no answer."""
MAX_PATH_BYTES = 4_000


@dataclass(frozen=True, slots=True)
class Place:
    """A line of a file, relative to the top of the repository."""

    path: str
    line: int
    """From 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """What is known of the repository."""

    has_file: Callable[[str], bool]
    """Whether a path relative to its top is a file of head's tree: frames of libraries look alike."""
    root: str = ""
    """Its top, absolute; empty where that is not known."""
    blob_url: str = ""
    """Address before a path: `https://github.com/o/r/blob/COMMIT`; empty where there is none to link to."""

    def place(self, frame: FrameChange) -> Place | None:
        """Where the frame is in the repository; None for a library's, or one whose line is not known."""
        name, _, number = frame.where.rpartition(":")
        path = PurePosixPath(name)
        if self.root and path.is_relative_to(self.root):
            path = path.relative_to(self.root)
        is_line = number.isascii() and number.isdigit() and 0 < int(number) < 10**7
        if (
            not is_line
            or _is_too_long(path)
            or path.is_absolute()
            or ".." in path.parts
            or "\0" in name
            or not path.parts
        ):
            return None
        return Place(str(path), int(number)) if self.has_file(str(path)) else None

    def url(self, place: Place) -> str:
        """The page that shows the line; empty where there is none."""
        return f"{self.blob_url}/{quote(place.path, safe='/', errors='replace')}#L{place.line}" if self.blob_url else ""


def blob_url(environ: Mapping[str, str], head_commit: str) -> str:
    """
    The address of head's files on GitHub or GitLab, as their jobs' environment tells it.

    Args:
        environ: Of the job.
        head_commit: Full id of what was measured; the job's own commit where that is empty.
    """
    project = github_project(environ)
    infix = "blob"
    if not project:
        project, infix = environ.get("CI_PROJECT_URL", ""), "-/blob"
    commit = head_commit or environ.get("GITHUB_SHA", "") or environ.get("CI_COMMIT_SHA", "")
    if not (_is_address(project) and len(commit) == COMMIT_DIGITS and commit.isalnum()):
        return ""
    return f"{project}/{infix}/{commit}"


def github_project(environ: Mapping[str, str]) -> str:
    """The address of the repository on GitHub; empty outside its jobs."""
    server, repository = environ.get("GITHUB_SERVER_URL", ""), environ.get("GITHUB_REPOSITORY", "")
    return f"{server}/{repository}" if server and repository else ""


def _is_too_long(path: PurePosixPath) -> bool:
    sizes = [len(part.encode(errors="replace")) + 1 for part in path.parts]
    return max(sizes, default=0) > MAX_NAME_BYTES + 1 or sum(sizes) > MAX_PATH_BYTES


def _is_address(text: str) -> bool:
    return text.startswith(("https://", "http://")) and not any(mark in text for mark in "()<>\"' \\|`\n")
