"""A study's windows go to its arms only where the study counts them."""

from __future__ import annotations

from pathlib import Path

from cut_off_study import cut_off_study

from flashprof.app.localise_study import localise_study
from flashprof.contracts.localisation import Localisation
from flashprof.store.study_folder import StudyFolder


def localised(path: Path, *, has_cut_block: bool) -> Localisation:
    folder = StudyFolder(path)
    blocks = cut_off_study(folder.launches, has_cut_block=has_cut_block)
    found = localise_study(folder, blocks, names=("old", "new"), seed=0)

    assert found is not None
    return found.localisation


def test_windows_of_a_block_that_was_measured_again_are_those_of_its_launch(tmp_path: Path) -> None:
    cut, whole = (localised(tmp_path / str(is_cut), has_cut_block=is_cut) for is_cut in (True, False))

    assert (8, 8) == cut.num_windows == whole.num_windows
    assert (whole.base_ns_per_token, whole.difference, whole.parts) == (
        cut.base_ns_per_token,
        cut.difference,
        cut.parts,
    )
