"""One training run on one host: open the data, start the workers, dispatch, and end cleanly, however it ends."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence
from typing import Any

from flashprof.emit import connect
from pipeline.config import TrainConfig
from pipeline.crew import Crew
from pipeline.data.batches import BatchPlan
from pipeline.data.samples import open_samples
from pipeline.data.summary import startup_lines
from pipeline.log_output import say
from pipeline.roles.dispatcher import Dispatcher, plan_for_epoch
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
    """
    name_thread("dispatcher-0")
    emitter = connect("dispatcher")
    emitter.mark("toggles", values=config.toggles, refused=config.refused)
    data = config.preset.data
    samples = open_samples(
        data.source, cache=config.cache, vocab_size=config.preset.target.vocab_size, max_length=data.max_length
    )
    plans = plan_for_epoch(config, samples.lengths_N, epoch=0)
    say(*startup_lines(samples.info, samples.lengths_N, plans, data.bucket_bounds))
    with Crew(config, context, samples.info.mask_token_id, rehearsals(plans)) as crew:
        signals.enders.append(crew.kill)
        crew.wait_ready()
        emitter.mark("ready")
        signals.is_training = True
        dispatcher = Dispatcher(
            config,
            samples,
            emitter,
            target_pipes=crew.target_pipes(),
            queues=crew.queues,
            should_stop=lambda: bool(signals.received),
            check_workers=crew.check,
        )
        num_steps = dispatcher.run()
        if signals.received:
            say(f"{signals.received[0].name}: finishing the steps that are under way")
        crew.finish(num_steps)
        emitter.close()
    say(f"{_ending(config, signals.received, num_steps)} after {num_steps} steps")


def _ending(config: TrainConfig, received: Sequence[signal.Signals], num_steps: int) -> str:
    if received:
        return f"stopped by {received[0].name}"
    return "finished" if num_steps == config.num_steps else "stopped by command"


def rehearsals(plans: Sequence[BatchPlan]) -> tuple[Rehearsal, ...]:
    """The commonest batch shape of each bucket: representative, and at most six."""
    by_bucket: dict[int, Counter[tuple[int, int]]] = {}
    for plan in plans:
        by_bucket.setdefault(plan.bucket, Counter())[len(plan.indices), plan.padded_length] += 1
    shapes = [counts.most_common(1)[0][0] for _, counts in sorted(by_bucket.items())]
    return tuple(Rehearsal(num_samples=samples, padded_length=length) for samples, length in shapes)
