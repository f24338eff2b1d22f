"""Folders that no run has left: each costs at most its own line, runs nothing, reads and writes nothing outside."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
import study_results
from report_folders import dump, edit, localisation, write_bisect, write_compare, write_run

from flashprof.app.report import make_report
from flashprof.contracts.errors import UsageError

SECRET = "a-secret-of-the-machine"
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(1)>"
LINK = "[x](javascript:alert(1))"
Spoil = Callable[[Path], object]


def summary_of(run: Path) -> dict[str, object]:
    return dict(json.loads((run / "summary.json").read_text(encoding="utf-8")))


def outside(run: Path) -> Path:
    """A file that no report may show: beside the folder of reports."""
    return run.parent.parent / "secret.txt"


def relink(path: Path, target: Path) -> None:
    """Put a link in the place of a file or folder, which is put out of the way."""
    if path.exists():
        path.rename(path.with_name(f"{path.name}.was"))
    path.symlink_to(target)


def refifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def resocket(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        # Paths of sockets are short: bind from within.
        before = Path.cwd()
        os.chdir(path.parent)
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


def cut(path: Path, num_bytes: int) -> None:
    os.truncate(path, num_bytes)


def with_windows(run: Path, **changes: object) -> None:
    windows = [{**window, **changes} for window in summary_of(run)["windows"]]  # type: ignore[attr-defined]
    edit(run / "summary.json", windows=windows)


def many_windows(run: Path) -> None:
    (window, *_) = summary_of(run)["windows"]  # type: ignore[misc]
    edit(run / "summary.json", windows=[window] * 100_000)


def many_threads(run: Path) -> None:
    (thread, *_) = summary_of(run)["threads"]  # type: ignore[misc]
    edit(run / "summary.json", threads=[thread] * 30_000)


def nested(path: Path) -> None:
    path.write_text('{"format": ' + "[" * 200_000, encoding="utf-8")


def nested_well(path: Path) -> None:
    inner = "[" * 900 + "]" * 900
    path.write_text(path.read_text(encoding="utf-8").rstrip()[:-1] + f', "cell": {{"x": {inner}}}}}', encoding="utf-8")


def replaced(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def frames(run: Path, text: str) -> None:
    """Stacks with a frame of any text, in each profile window."""
    for path in (run / "samples").glob("*/*.folded"):
        path.write_text(f"{text} 5\nmain (t.py:1);{text} 4\n", encoding="utf-8", errors="surrogateescape")


def device(run: Path) -> None:
    relink(run / "summary.json", Path("/dev/zero"))


def compared(run: Path, **changes: object) -> None:
    write_compare(run.with_name("compare-hostile"))
    edit(run.with_name("compare-hostile") / "comparison.json", **changes)


def bisected(run: Path, **changes: object) -> None:
    write_bisect(run.with_name("bisect-hostile"))
    edit(run.with_name("bisect-hostile") / "result.json", **changes)


def localised(run: Path) -> None:
    """A comparison whose localisation is script in every text."""
    found = localisation(SCRIPT, SCRIPT)
    write_compare(run.with_name("compare-hostile"), replace(study_results.regression(), localisation=found))


CASES: MappingProxyType[str, Spoil] = MappingProxyType(
    {
        # Files that are not what they should be.
        "empty manifest": lambda run: cut(run / "manifest.json", 0),
        "truncated summary": lambda run: cut(run / "summary.json", 700),
        "no summary": lambda run: (run / "summary.json").unlink(),
        "future run": lambda run: edit(run / "manifest.json", version=99),
        "future summary": lambda run: edit(run / "summary.json", version=2**70),
        "foreign format": lambda run: edit(run / "summary.json", format=SCRIPT),
        "summary is a list": lambda run: dump(run / "summary.json", [1, 2]),
        "binary": lambda run: (run / "summary.json").write_bytes(bytes(range(256)) * 100),
        "foreign folder": lambda run: (run / "manifest.json").rename(run / "other.json"),
        "manifest of another program": lambda run: dump(run / "manifest.json", {"name": "web", "icons": []}),
        "sparse and huge": lambda run: os.truncate(run / "summary.json", 2**40),
        "fifo": lambda run: refifo(run / "summary.json"),
        "socket": lambda run: resocket(run / "manifest.json"),
        "device": device,
        "folder for a file": lambda run: ((run / "summary.json").unlink(), (run / "summary.json").mkdir()),
        "fifo among the events": lambda run: refifo(run / "events" / "drafter-0.jsonl"),
        "fifo among the samples": lambda run: os.mkfifo(run / "samples" / "x.folded"),
        "fifo of counters": lambda run: os.mkfifo(run / "counters.jsonl"),
        "fifo of a timeline": lambda run: refifo(run / "timeline.json"),
        # Links and paths.
        "link to a file outside": lambda run: relink(run / "summary.json", outside(run)),
        "link to a folder outside": lambda run: relink(run / "samples", outside(run).parent / "elsewhere"),
        "link to events outside": lambda run: relink(run / "events", outside(run).parent / "elsewhere"),
        "link to stacks outside": lambda run: (run / "samples" / "w.folded").symlink_to(outside(run)),
        "cyclic link": lambda run: relink(run / "samples", run),
        "link to itself": lambda run: relink(run / "manifest.json", run / "manifest.json"),
        "link for a run": lambda run: run.with_name("linked").symlink_to(outside(run).parent / "elsewhere"),
        "the page is a link": lambda run: (run.parent / "report.html").symlink_to(outside(run)),
        "the page's part is a link": lambda run: (run.parent / ".report.html.tmp").symlink_to(outside(run)),
        "paths that lead out": lambda run: edit(run / "summary.json", paths={"log": "../../secret.txt", "run": "/"}),
        "a path that is script": lambda run: edit(run / "summary.json", paths={"log": "javascript:alert(1)"}),
        # Values.
        "NaN": lambda run: edit(run / "summary.json", padding_share=float("nan")),
        "infinity": lambda run: edit(run / "summary.json", startup_s=float("inf")),
        "a float too large": lambda run: replaced(run / "summary.json", '"startup_s": ', '"startup_s": 1e999, "x": '),
        "huge whole numbers": lambda run: with_windows(run, num_tokens=10**400),
        "digits without end": lambda run: replaced(
            run / "summary.json", '"num_tokens": ', '"num_tokens": ' + "9" * 9000
        ),
        "windows that end before they begin": lambda run: with_windows(run, start_ns=2**62, end_ns=-(2**62)),
        "negative counts": lambda run: with_windows(run, num_tokens=-5, num_steps=-1),
        "zero rate": lambda run: edit(run / "summary.json", tok_per_s={**INTERVAL, "estimate": 0.0}),
        "an interval upside down": lambda run: edit(run / "summary.json", tok_per_s={**INTERVAL, "low": 9e307}),
        "wrong types": lambda run: edit(run / "summary.json", windows={"a": 1}, notes="text"),
        "true for a number": lambda run: edit(run / "summary.json", padding_share=True),
        "unknown outcome": lambda run: edit(run / "summary.json", outcome=SCRIPT),
        "100,000 windows": many_windows,
        "30,000 threads": many_threads,
        "nested without end": lambda run: nested(run / "manifest.json"),
        "nested 900 deep": lambda run: nested_well(run / "summary.json"),
        "lone surrogates": lambda run: edit(run / "summary.json", reason="\ud800", notes=["\udfff"]),
        "facts that are a list": lambda run: edit(run / "manifest.json", cell_facts=[SCRIPT]),
        "facts that are nested": lambda run: edit(run / "manifest.json", cell_facts={SCRIPT: {SCRIPT: [SCRIPT]}}),
        # Script wherever text may stand.
        "script in texts": lambda run: edit(
            run / "summary.json", reason=SCRIPT, notes=[SCRIPT, LINK], cell={SCRIPT: SCRIPT}, run_id=SCRIPT
        ),
        "script in windows": lambda run: with_windows(run, label=SCRIPT),
        "script in frames": lambda run: frames(run, f"{SCRIPT.replace(' ', '_')} (x.py:1)"),
        "end of a script in frames": lambda run: frames(run, "</script><!--<script>(x.py:1)"),
        "bytes that are no text in frames": lambda run: frames(run, "\udcff\udcfe (\udcff.py:1)"),
        "a deep stack": lambda run: frames(run, ";".join(f"f{number} (x.py:1)" for number in range(5000))),
        "script in a timeline": lambda run: replaced(run / "timeline.json", "mask", SCRIPT),
        "script in a localisation": localised,
        "script in a comparison": lambda run: compared(run, base=SCRIPT, notes=[SCRIPT], cell={SCRIPT: SCRIPT}),
        "a comparison of nothing": lambda run: compared(run, comparisons=[], blocks=[]),
        "a damaged comparison": lambda run: compared(run, comparisons=[{}]),
        "script in a bisect": lambda run: bisected(run, good=SCRIPT, labels={"swa": SCRIPT}, notes=[LINK]),
        "a damaged bisect": lambda run: bisected(run, verdict="maybe"),
        # Names.
        "script for a name": lambda run: run.rename(run.with_name("<script>alert(1)<∕script>")),
        "a name with a line end": lambda run: run.rename(run.with_name("two\nlines")),
        "a name that is a scheme": lambda run: run.rename(run.with_name("javascript:alert(1)")),
        "a name that is no text": lambda run: run.rename(run.with_name("\udcff\udcfe")),
    }
)
INTERVAL = MappingProxyType(
    {"estimate": 1.0, "low": 0.5, "high": 2.0, "level": 0.95, "num_samples": 3, "method": SCRIPT}
)


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of writing of all plain files: one of them is as large as a disk."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def hostile(tmp_path: Path, name: str) -> Path:
    """A folder of reports with a healthy and a hostile folder, and around it what no report may show."""
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "w").mkdir(parents=True)
    (elsewhere / "w" / "drafter-0.folded").write_text(f"{SECRET} (x.py:1) 5\n", encoding="utf-8")
    (tmp_path / "secret.txt").write_text(json.dumps({"format": SECRET}), encoding="utf-8")
    reports = tmp_path / "reports"
    write_run(reports / "healthy")
    CASES[name](write_run(reports / "hostile", hours=1))
    return reports


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", CASES)
def test_a_hostile_folder_harms_nothing(tmp_path: Path, name: str) -> None:
    reports = hostile(tmp_path, name)
    before = snapshot(tmp_path)

    result = make_report(reports)

    page, twin = (path.read_text(encoding="utf-8") for path in (result.page, result.twin))
    after = snapshot(tmp_path)
    assert "healthy" in [view.summary.run_id for view in result.site.runs]
    assert all(item.line.isprintable() and "\n" not in item.folder for item in result.site.broken)
    assert len(result.site.runs) + len(result.site.broken) + len(result.site.notes) > 1
    assert SECRET not in page + twin
    assert not re.search(r"<script>alert|<img|onerror=alert\(1\)>|href=.?javascript", page)
    assert not re.search(r"<script|<img|[^\\]\]\(javascript", twin)
    assert {str(result.page), str(result.twin)} == after.keys() - before.keys()
    assert before == {path: stamp for path, stamp in after.items() if path in before}


def test_all_hostile_folders_together_leave_the_healthy_run(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    write_run(reports / "healthy")
    (tmp_path / "secret.txt").write_text("{}", encoding="utf-8")
    for number, name in enumerate(CASES):
        # Each beside its own, since some make a second folder or change names.
        inner = tmp_path / f"{number}" / "reports"
        CASES[name](write_run(inner / "hostile", hours=1))
        for place, path in enumerate(inner.iterdir()):
            path.rename(reports / f"{number}-{place}")

    result = make_report(reports)

    assert "healthy" in [view.summary.run_id for view in result.site.runs]
    assert 25 <= len(result.site.broken)


def test_a_folder_of_nothing_but_damage_is_refused_with_its_lines(tmp_path: Path) -> None:
    (write_run(tmp_path / "reports" / "damaged") / "summary.json").write_text("{", encoding="utf-8")

    with pytest.raises(UsageError, match="no run, comparison or bisect that can be read") as caught:
        make_report(tmp_path / "reports")

    assert "summary.json is damaged" in str(caught.value)
