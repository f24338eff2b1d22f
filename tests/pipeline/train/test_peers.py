"""Two drafters in two processes agree, and sum gradients; one that loses the other says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import nn

from flashprof.contracts.control import Command, CommandName
from flashprof.contracts.errors import UsageError
from pipeline.config import HostPlace
from pipeline.train.peers import Agreement, Peers
from pipeline.transport.messages import Order
from pipeline.transport.queue import QueueClosedError

CPU = torch.device("cpu")
SWA = Command(command_id=1, name=CommandName.SET_TOGGLES, detail={"values": {"swa": True}})


def _sum_and_report(rank: int, rendezvous: Path, pipe: Any) -> None:
    torch.set_num_threads(1)
    peers = Peers(rank=rank, num_drafters=2, rendezvous=rendezvous, host=HostPlace(), device=CPU)
    # Only drafter 0's commands count; any drafter's stop does.
    agreements = [
        peers.agree(1.5 + rank, 10, Order(commands=(SWA,), stop=False)),
        peers.agree(1.0, 10, Order(stop=rank == 1)),
    ]
    peers.require_equal("the same", 7)
    with pytest.raises(UsageError, match="differ in the step"):
        peers.require_equal("the step", rank)
    first, second = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(3))
    first.grad, second.grad = torch.full((2, 2), rank + 1.0), torch.arange(3.0) * (rank + 1)
    peers.sum_gradients([first, second])
    pipe.send((agreements, first.grad.tolist(), second.grad.tolist()))
    if rank == 1:
        # Gone without a word, as a killed process is.
        return
    pipe.recv()
    try:
        peers.agree(1.0, 1, Order())
    except QueueClosedError as error:
        pipe.send(str(error))


@pytest.mark.slow
def test_two_drafters_sum_and_notice_when_one_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    context = torch.multiprocessing.get_context("fork")
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = context.Pipe()
        process = context.Process(target=_sum_and_report, args=(rank, tmp_path / "store", theirs), daemon=True)
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)

    answers = [pipe.recv() for pipe in pipes]
    processes[1].join(10)
    pipes[0].send("the other one is gone")
    last_words = pipes[0].recv()
    processes[0].join(10)

    agreements = [Agreement(4.0, 20, stop=False, commands=(SWA,)), Agreement(2.0, 20, stop=True, commands=())]
    expected = (agreements, [[3.0, 3.0], [3.0, 3.0]], [0.0, 3.0, 6.0])
    assert [expected, expected] == answers
    assert last_words.startswith("lost another drafter")
    assert [0, 0] == [process.exitcode for process in processes]


def test_alone_a_drafter_asks_nobody(tmp_path: Path) -> None:
    peers = Peers(rank=0, num_drafters=1, rendezvous=tmp_path / "store", host=HostPlace(), device=CPU)
    parameter = nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([1.0, 2.0])

    agreement = peers.agree(4.0, 7, Order(commands=(SWA,), stop=True))
    peers.sum_gradients([parameter])
    peers.close()

    assert Agreement(4.0, 7, stop=True, commands=(SWA,)) == agreement
    assert [1.0, 2.0] == parameter.grad.tolist()
    assert [] == list(tmp_path.iterdir())
