"""One training run on one host: open the data, start the workers, dispatch, and end cleanly, however it ends."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from typing import Any

from flashprof.emit import connect
from pipeline.cell import cell_facts
from pipeline.config import TrainConfig
from pipeline.crew import Crew
from pipeline.data.batches import BatchPlan, batch_rule, batches_from, plan_epoch
from pipeline.data.filled import fill_epoch
from pipeline.data.samples import open_samples
from pipeline.data.summary import startup_lines
from pipeline.log_output import say
from pipeline.presets import FILLED
from pipeline.roles.dispatcher import Dispatcher, Lines
from pipeline.roles.worker import Rehearsal, name_thread
from pipeline.signals import StopSignals


def train(config: TrainConfig, context: Any, signals: StopSignals) -> None:
    """
    Train until the steps are done, a signal comes, or the control channel says stop.

    Args:
        config: Of the run.
        context: The multiprocessing context that workers come from.
        signals: Those that came, and what they do.

    Raises:
        SubjectError: A worker died.
        UsageError: A worker refused what it was given.
    """
    name_thread(f"dispatcher-{config.host.rank}")
    emitter = connect("dispatcher", config.host.rank)
    emitter.mark("toggles", values=config.toggles, refused=config.refused)
    data, samples = config.preset.data, open_samples(config.preset, cache=config.cache)
    lengths_N = samples.lengths_N
    split = samples.split(block_size=config.preset.drafter.block_size, held_out_share=data.held_out_share)
    rule = batch_rule(data, config.seed)
    make_epoch = fill_epoch if data.batches == FILLED else plan_epoch
    epoch = make_epoch(lengths_N, split.train_N, rule, 0)
    if config.host.rank == 0:
        say(*startup_lines(samples.info, lengths_N, split, epoch, data.bucket_bounds))
    with Crew(config, context, samples.info.mask_token_id, rehearsals(epoch, data.token_budget)) as crew:
        signals.enders.append(crew.kill)
        # While the workers load, so that it costs no time.
        emitter.mark("cell", **cell_facts(config, samples))
        crew.wait_ready()
        emitter.mark("ready")
        signals.is_training = True
        lines = Lines(
            targets=crew.pipes("target"),
            drafters=crew.pipes("drafter"),
            orders=crew.orders,
            should_stop=lambda: bool(signals.received),
            check_workers=crew.check,
        )
        batches = batches_from(lengths_N, split.train_N, rule, first=config.num_batches_before, make_epoch=make_epoch)
        num_steps = Dispatcher(config, samples.dataset, batches, emitter, lines).run()
        crew.finish()
        emitter.close()
    say(f"{_ending(config, signals.received, num_steps)} after {num_steps} steps{_saved(config, num_steps)}")


def _ending(config: TrainConfig, received: Sequence[signal.Signals], num_steps: int) -> str:
    if num_steps == config.num_steps:
        return "finished"
    return f"stopped by {received[0].name}" if received else "stopped by command"


def _saved(config: TrainConfig, num_steps: int) -> str:
    if config.checkpoints is None:
        return "; nothing saved: no --checkpoints"
    folder = config.checkpoints.folder
    if num_steps == config.num_steps:
        return f"; saved in {folder}"
    return f"; saved, continue with --checkpoints {folder} --resume auto"


def rehearsals(plans: Sequence[BatchPlan], token_budget: int) -> tuple[Rehearsal, ...]:
    """
    The batch shapes of an epoch, the longest rows first: the largest allocations come first and are used again.

    Packed rows are of unlike lengths up to *token_budget*, and what runs on them takes all: the longest is one for all.
    """
    if any(plan.is_packed for plan in plans):
        return (Rehearsal(num_samples=1, padded_length=token_budget, is_packed=True),)
    shapes = {(plan.num_rows, plan.padded_length) for plan in plans}
    return tuple(
        Rehearsal(num_samples=samples, padded_length=length)
        for samples, length in sorted(shapes, key=lambda shape: shape[1], reverse=True)
    )
