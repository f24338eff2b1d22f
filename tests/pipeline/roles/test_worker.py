"""What a worker tells on its standard error of a fault that no code of its own has caught."""

from __future__ import annotations

import threading

import pytest

from pipeline.roles.worker import tell_unless_peer_is_gone


def told(error: BaseException, capsys: pytest.CaptureFixture[str], *, in_helper: bool) -> str:
    def tell() -> None:
        tell_unless_peer_is_gone(type(error), error, None)

    if in_helper:
        helper = threading.Thread(target=tell)
        helper.start()
        helper.join()
    else:
        tell()
    return capsys.readouterr().err


@pytest.mark.parametrize("error", [ConnectionResetError("reset by peer"), EOFError()])
def test_a_peer_that_breaks_off_while_memory_is_handed_over_is_no_fault_of_ours(
    error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not told(error, capsys, in_helper=True)
    assert type(error).__name__ in told(error, capsys, in_helper=False)


def test_any_other_fault_of_a_helper_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert "ValueError: bad" in told(ValueError("bad"), capsys, in_helper=True)
