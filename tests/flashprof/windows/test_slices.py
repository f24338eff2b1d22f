"""A window cut out of a launch says of phases and lanes what the whole launch does."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from launch_files import MS, PHASES, Trainer

from flashprof.contracts.results import Window, WindowKind
from flashprof.windows.phases import lane_rows, phase_rows
from flashprof.windows.slices import LogSlices


def window(start_ns: int, end_ns: int) -> Window:
    return Window(
        label="w",
        kind=WindowKind.MEASURE,
        start_ns=start_ns,
        end_ns=end_ns,
        num_steps=1,
        num_tokens=1,
        num_supervised_tokens=0,
        num_padding_tokens=0,
    )


@example(1993, 1, 2)
@given(st.integers(0, 2000), st.integers(1, 3000), st.integers(0, 5))
def test_rows_of_a_slice_are_rows_of_the_launch(start_ms: int, length_ms: int, seed: int) -> None:
    trainer = Trainer(seed=seed)
    trainer.train(20, PHASES)
    cut = window(start_ms * MS, (start_ms + length_ms) * MS)
    inside = LogSlices([trainer.log]).within(cut.start_ns, cut.end_ns)

    # Where a window holds no complete cycle, phases stand in the order of the launch, or of the window.
    whole, sliced = (sorted(phase_rows(logs, [cut]), key=lambda row: row.phase) for logs in ([trainer.log], inside))

    assert whole == sliced
    assert lane_rows([trainer.log], [cut]) == lane_rows(inside, [cut])


def test_a_slice_holds_no_more_than_it_needs() -> None:
    trainer = Trainer()
    trainer.train(100, PHASES)
    (inside,) = LogSlices([trainer.log]).within(1000 * MS, 1500 * MS)

    assert len(inside.spans) < 25
    assert len(inside.steps) < 12


def test_a_launch_without_events_has_empty_slices() -> None:
    assert [] == LogSlices([]).within(0, 10)
