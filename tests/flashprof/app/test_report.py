"""A folder of reports becomes one page and its twin, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from report_folders import STACKS, write_bisect, write_compare, write_run

from flashprof.app.report import FIGURES, NUM_DETAILED, Drawers, make_report
from flashprof.contracts.errors import UsageError
from flashprof.contracts.site import Site


def no_figures(folder: Path, site: Site) -> list[Path]:
    return []


def listed(site: Site) -> str:
    """A page of names."""
    return " ".join([*(view.summary.run_id for view in site.runs), *(view.result.study for view in site.compares)])


def drawers(page: Callable[[Site], str] = listed, twin: Callable[[Site], str] = listed) -> Drawers:
    return Drawers(page=page, twin=twin, figures=no_figures)


def test_a_page_and_its_twin_lie_in_the_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    result = make_report(tmp_path, drawers=drawers())

    assert {"run", "report.html", "report.md"} == {path.name for path in tmp_path.iterdir()}
    assert ("run", "run") == (result.page.read_text(encoding="utf-8"), result.twin.read_text(encoding="utf-8"))
    assert result.page_bytes == 3


def test_the_real_page_shows_runs_comparisons_and_bisects(tmp_path: Path) -> None:
    write_run(tmp_path / "run-of-mine")
    write_compare(tmp_path / "compare-abc")
    write_bisect(tmp_path / "bisect-abc")
    result = make_report(tmp_path)
    page, twin = (path.read_text(encoding="utf-8") for path in (result.page, result.twin))

    for name in ("run-of-mine", "compare-abc", "bisect-abc"):
        assert name in page
        assert name in twin


def test_a_second_report_takes_the_place_of_the_first_and_does_not_read_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    make_report(tmp_path, drawers=drawers())
    write_run(tmp_path / "b", hours=1)
    result = make_report(tmp_path, drawers=drawers())

    assert "b a" == result.page.read_text(encoding="utf-8")
    assert () == result.site.broken


def test_another_folder_for_the_page_is_made_and_leads_back(tmp_path: Path) -> None:
    write_run(tmp_path / "reports" / "run")
    result = make_report(tmp_path / "reports", out=tmp_path / "new" / "site", drawers=drawers())

    assert tmp_path / "new" / "site" / "report.html" == result.page
    assert "../../reports/run/" == result.site.runs[0].folder


def test_an_interrupted_report_leaves_the_last_one(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    make_report(tmp_path, drawers=drawers())

    def interrupted(site: Site) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_report(tmp_path, drawers=drawers(lambda site: "half", twin=interrupted))

    assert {"run", "report.html", "report.md"} == {path.name for path in tmp_path.iterdir()}
    assert "run" == (tmp_path / "report.html").read_text(encoding="utf-8")


def test_a_view_that_cannot_be_drawn_is_named_and_costs_only_itself(tmp_path: Path) -> None:
    write_run(tmp_path / "fine")
    write_run(tmp_path / "odd", hours=1)

    def draw(site: Site) -> str:
        if any(view.summary.run_id == "odd" for view in site.runs):
            raise ZeroDivisionError("no such rate")
        return listed(site)

    result = make_report(tmp_path, drawers=drawers(draw))

    assert "fine" == result.page.read_text(encoding="utf-8")
    assert [("odd/", "its values cannot be drawn: ZeroDivisionError: no such rate; try: measure it again")] == [
        (item.folder, item.line) for item in result.site.broken
    ]


def test_runs_bring_their_stacks_and_the_newest_only(tmp_path: Path) -> None:
    for number in range(NUM_DETAILED + 2):
        write_run(tmp_path / f"run-{number:02}", hours=number)
    site = make_report(tmp_path, drawers=drawers()).site
    detailed = [view.summary.run_id for view in site.runs if view.profiles]

    assert NUM_DETAILED == len(detailed)
    assert "run-01" not in detailed
    assert sum(int(line.rpartition(" ")[2]) for line in STACKS) == site.runs[0].profiles[0].num_samples
    assert any("newest" in note for note in site.notes)


def test_a_damaged_part_is_named_and_the_rest_of_the_run_is_shown(tmp_path: Path) -> None:
    (write_run(tmp_path / "run") / "timeline.json").write_text("{", encoding="utf-8")
    site = make_report(tmp_path, drawers=drawers()).site

    assert ["run"] == [item.folder for item in site.broken]
    assert site.runs[0].profiles
    assert site.runs[0].timeline is None


@pytest.mark.parametrize(("write", "views"), [(write_compare, "compares"), (write_bisect, "bisects")])
def test_a_verdict_has_the_stacks_of_the_launches_that_explain_it(
    tmp_path: Path, write: Callable[[Path], Path], views: str
) -> None:
    path = write(tmp_path / "study-1")
    for name, hours in (("base-1", 1), ("base-2", 2), ("candidate-1", 1)):
        write_run(path / "explained" / name, hours=hours)
    site = make_report(tmp_path, drawers=drawers()).site
    (view,) = getattr(site, views)

    # The newer one of the base: an earlier call named another culprit.
    assert {"base-2"} == {profile.launch for profile in view.base_profiles}
    assert {"candidate-1"} == {profile.launch for profile in view.candidate_profiles}
    assert {"study-1"} == {run.is_part_of for run in site.runs}


def test_figures_are_drawn_into_a_folder_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path / "reports" / "run")
    (tmp_path / "outside").mkdir()
    (tmp_path / "reports" / FIGURES).symlink_to(tmp_path / "outside")

    def draw(folder: Path, site: Site) -> list[Path]:
        (folder / "a.svg").write_text("", encoding="utf-8")
        return [folder / "a.svg"]

    for _ in range(2):
        result = make_report(
            tmp_path / "reports", figures=True, drawers=Drawers(page=listed, twin=listed, figures=draw)
        )

    assert (tmp_path / "reports" / FIGURES / "a.svg",) == result.figures
    assert result.figures[0].is_file()
    assert [] == list((tmp_path / "outside").iterdir())
    assert () == result.site.broken


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no runs"):
        make_report(tmp_path, drawers=drawers())


def test_a_place_that_cannot_be_written_to_is_a_usage_error(tmp_path: Path) -> None:
    write_run(tmp_path / "reports" / "run")
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(UsageError, match="cannot write the report"):
        make_report(tmp_path / "reports", out=tmp_path / "file", drawers=drawers())


def test_the_folder_of_one_run_leads_to_the_folder_that_it_lies_in(tmp_path: Path) -> None:
    run = tmp_path / "reports" / "run"
    write_run(run)
    before = sorted(run.rglob("*"))

    with pytest.raises(UsageError, match="the folder of one run") as refusal:
        make_report(run, drawers=drawers())

    assert f"flashprof report {run.parent}" in str(refusal.value.next_command)
    assert sorted(run.rglob("*")) == before
