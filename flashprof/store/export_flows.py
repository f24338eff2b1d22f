"""
Which `send` of a target fed which step of a drafter, as far as the events tell exactly. Pure.

No event names both. What is used: a dispatcher deals a step's batches drafter by drafter, a target sends what it was
given in that order, each end of a step carries its tokens, supervised tokens and padding, and a drafter unpacks once a
step. So a target's n-th `send` is its n-th step, and the k-th batch is the step of some target with the same three
counts. With one target that is a proof; with several it is one where only one of them comes next with these counts.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from flashprof.contracts.events import EventLog, Step

TARGET, DRAFTER = "target", "drafter"
MAX_PARTS = 16
"""Batches that may make one step of a drafter."""
Counts = tuple[int, int, int]


@dataclass(kw_only=True)
class Flows:
    """Ids of flows, by log and by place."""

    sent: dict[int, array[int]] = field(default_factory=dict)
    """Index of a target's log → by its n-th step the flow's id, −1 for none."""
    taken: dict[int, array[int]] = field(default_factory=dict)
    """Index of a drafter's log → by its n-th step the id of its last part's flow, −1 for none."""
    parts: int = 1
    """Batches a drafter's step: the ids of one step follow each other."""
    notes: list[str] = field(default_factory=list)
    """Why some are left out."""


@dataclass(slots=True)
class _Target:
    """Where one target has come to."""

    log: int
    steps: Sequence[Step]
    at: int = 0
    is_doubtful: set[int] = field(default_factory=set)
    """Steps that could be exchanged for another target's."""

    @property
    def next_counts(self) -> Counts | None:
        return counts(self.steps[self.at]) if self.at < len(self.steps) else None


def pair_flows(logs: Sequence[EventLog]) -> Flows:
    """
    Pair sends and steps, host by host: a dispatcher deals to the drafters of its own.

    Args:
        logs: All processes, with their steps; spans are not needed.
    """
    flows = Flows()
    hosts: dict[str, list[int]] = defaultdict(list)
    for index, log in enumerate(logs):
        hosts[log.header.host].append(index)
    for indices in hosts.values():
        ranked = sorted(indices, key=lambda index: logs[index].header.rank)
        targets = [_Target(index, logs[index].steps) for index in ranked if logs[index].header.role == TARGET]
        drafters = [index for index in ranked if logs[index].header.role == DRAFTER]
        if targets and drafters:
            _pair_host(flows, targets, drafters, logs)
    return flows


def counts(step: Step) -> Counts:
    """What a batch is known by."""
    return step.num_tokens, step.num_supervised_tokens, step.num_padding_tokens


def _pair_host(flows: Flows, targets: Sequence[_Target], drafters: Sequence[int], logs: Sequence[EventLog]) -> None:
    # A line that is torn anywhere but at the end would shift all that comes after it.
    if any(logs[index].num_torn_lines for index in (*drafters, *(target.log for target in targets))):
        flows.notes.append("no flows: an events file has a line that cannot be read, so steps cannot be counted")
        return
    first_step = logs[drafters[0]].steps[:1]
    flows.parts = _num_parts(targets, first_step)
    for target in targets:
        flows.sent[target.log] = array("q", [-1]) * len(target.steps)
    for index in drafters:
        flows.taken[index] = array("q", [-1]) * len(logs[index].steps)
    if not flows.parts:
        flows.parts = 1
        flows.notes.append("no flows: a step of a drafter is made of several batches, and of several targets")
        return
    num_steps = min(len(logs[index].steps) for index in drafters)
    for step in range(num_steps):
        for index in drafters:
            if not _pair_step(flows, targets, index, step, counts(logs[index].steps[step])):
                if all(target.next_counts for target in targets):
                    flows.notes.append(
                        f"flows end at step {step}: no target's tokens are those of {_name(logs, index)}"
                    )
                return


def _pair_step(flows: Flows, targets: Sequence[_Target], drafter: int, step: int, wanted: Counts) -> bool:
    """Give one step of a drafter its sends; False where none fits."""
    if len(targets) == 1:
        return _pair_in_order(flows, targets[0], drafter, step, wanted)
    fitting = [target for target in targets if target.next_counts == wanted]
    if not fitting:
        return False
    if len(fitting) > 1:
        for target in fitting:
            target.is_doubtful.add(target.at)
    # Of two that fit the one that was given its batch first has most likely ended first.
    chosen = min(fitting, key=lambda target: target.steps[target.at].end_ns)
    if chosen.at not in chosen.is_doubtful:
        _join(flows, chosen.log, chosen.at, drafter, step)
    chosen.at += 1
    return True


def _pair_in_order(flows: Flows, target: _Target, drafter: int, step: int, wanted: Counts) -> bool:
    parts = target.steps[target.at : target.at + flows.parts]
    if len(parts) < flows.parts:
        target.at = len(target.steps)
        return False
    if _summed(parts) != wanted:
        return False
    for _ in parts:
        _join(flows, target.log, target.at, drafter, step)
        target.at += 1
    return True


def _join(flows: Flows, target: int, sent: int, drafter: int, step: int) -> None:
    flow = flow_id(target, sent)
    flows.sent[target][sent] = flow
    flows.taken[drafter][step] = flow


def flow_id(target: int, sent: int) -> int:
    """Of the n-th send of a log."""
    return (target << 32) + sent


def _num_parts(targets: Sequence[_Target], first_step: Sequence[Step]) -> int:
    """Batches of a drafter's step; 0 where that cannot be told."""
    if not first_step or any(target.next_counts is None for target in targets):
        return 1
    wanted = counts(first_step[0])
    if len(targets) > 1:
        return int(any(target.next_counts == wanted for target in targets))
    return next((num for num in range(1, MAX_PARTS + 1) if _summed(targets[0].steps[:num]) == wanted), 1)


def _summed(steps: Sequence[Step]) -> Counts:
    tokens, supervised, padding = (sum(column) for column in zip(*map(counts, steps), strict=True))
    return tokens, supervised, padding


def _name(logs: Sequence[EventLog], index: int) -> str:
    header = logs[index].header
    return f"{header.role} {header.rank}"
