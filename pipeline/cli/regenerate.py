"""`regenerate`: training data in the target's own words. torch is imported only once the options make sense."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import click

from flashprof.contracts.errors import ToolError, UsageError
from pipeline.cli.machine import choose_device, default_cache
from pipeline.cli.places import require_writable
from pipeline.presets import Preset, TargetPlan, find_preset
from pipeline.signals import stop_signals

if TYPE_CHECKING:
    from pipeline.data.conversations import Conversation
    from pipeline.evaluate.answer_file import AnswerFile, Regenerated
    from pipeline.evaluate.regenerate import TargetAnswerer

DIALOGUES = "dialogues"
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)


@click.command()
@click.option("--preset", help="Take target and conversations from this workload, such as smollm2.")
@click.option("--target", type=FOLDER, help="Transformers folder with model, tokenizer and chat template.")
@click.option("--data", type=click.Path(path_type=Path), help="Conversations: JSONL, `messages` or ShareGPT.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path, dir_okay=False), help="JSONL; continued if there."
)
@click.option("--max-new-tokens", default=192, show_default=True, type=click.IntRange(min=1, max=2**17))
@click.option("--batch-size", default=64, show_default=True, type=click.IntRange(min=1, max=2**16))
@click.option("--num-conversations", type=click.IntRange(min=1), help="Only the first so many.")
@click.option("--max-turns", default=3, show_default=True, type=click.IntRange(min=1), help="Answers a conversation.")
@click.option("--max-length", type=click.IntRange(min=1), help="Tokens; a conversation ends there. Default: preset's.")
@click.option("--device", default="auto", show_default=True, type=click.Choice(["auto", "cpu", "cuda"]))
@click.option("--cache", type=click.Path(path_type=Path, file_okay=False), help="Where converted models are kept.")
def regenerate(**given: Any) -> None:
    """
    Replace every answer in conversations by the target's own greedy one.

    Turn by turn, so that later answers follow from earlier new ones. Ctrl-C or a kill loses the batch under way; the
    same command continues where it stopped. Train on it with `--data OUT`.
    """
    preset = _find_workload(given)
    require_writable(given["out"], "--out")
    with stop_signals():
        work = _open(given, preset)
    with terminable():
        _run(work, batch_size=given["batch_size"], max_turns=given["max_turns"])


@dataclass(frozen=True, kw_only=True)
class Work:
    """All that is needed to answer."""

    conversations: Sequence[Conversation]
    file: AnswerFile
    path: Path
    answerer: TargetAnswerer


@contextmanager
def terminable() -> Iterator[None]:
    """Until left, SIGTERM ends the program as Ctrl-C does, with the summary, but with status 143."""

    def end(number: int, frame: FrameType | None) -> NoReturn:
        del frame
        raise SystemExit(128 + number)

    previous = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _find_workload(given: dict[str, Any]) -> Preset:
    target, data, name = given["target"], given["data"], given["preset"]
    if name is None and (target is None or data is None):
        raise _incomplete()
    preset = find_preset(name or "smollm2")
    if target is not None:
        preset = replace(preset, target=TargetPlan(source="folder", path=str(target.resolve())))
    if preset.target.is_random:
        raise UsageError(
            f"preset {preset.name!r} has a random target, which has nothing to say",
            offered=preset.name,
            allowed="--preset smollm2, or --target DIR",
        )
    if data is not None:
        preset = replace(preset, data=replace(preset.data, source="file", path=str(data)))
    # An empty path would be the folder that the command is called in, whatever lies there.
    has_data = preset.data.path or preset.data.source == DIALOGUES
    if not has_data or (preset.target.source == "folder" and not preset.target.path):
        raise _incomplete()
    return preset


def _incomplete() -> UsageError:
    return UsageError(
        "there must be a target and conversations",
        allowed="--preset smollm2, or --target DIR --data FILE, or --preset smollm2 --data FILE",
        next_command="python -m pipeline regenerate --preset smollm2 --out answers.jsonl",
    )


def _open(given: dict[str, Any], preset: Preset) -> Work:
    from pipeline.evaluate.answer_file import AnswerFile, conversations_digest

    conversations = _read(preset)
    if not any(conversations):
        raise UsageError(
            "no conversation has an answer to replace",
            where=preset.data.path or preset.data.source,
            allowed="a turn of the assistant after one of the user",
        )
    max_length = given["max_length"] or preset.data.max_length
    settings = {
        "target": [preset.target.source, preset.target.path],
        "max_new_tokens": given["max_new_tokens"],
        "max_turns": given["max_turns"],
        "max_length": max_length,
        "conversations": conversations_digest(conversations),
    }
    # Before the model is loaded: a file that does not fit is told at once.
    file = AnswerFile(given["out"], settings)

    from pipeline.data.vocabulary import load_vocabulary
    from pipeline.evaluate.regenerate import TargetAnswerer
    from pipeline.model.target import load_target

    device = choose_device(given["device"])
    cache = given["cache"] or default_cache()
    vocabulary = load_vocabulary(preset.target, cache)
    if vocabulary.tokenizer is None or not vocabulary.tokenizer.chat_template:
        raise UsageError(
            "the target's tokenizer has no chat template",
            where=vocabulary.where,
            next_command="add chat_template.jinja to the folder",
        )
    model = load_target(preset, cache).to(device)
    _check_room(model.config, max_length, given["max_new_tokens"])
    answerer = TargetAnswerer(
        model,
        vocabulary.tokenizer,
        max_new_tokens=given["max_new_tokens"],
        max_length=max_length,
    )
    chosen = conversations[: given["num_conversations"]]
    return Work(conversations=chosen, file=file, path=given["out"], answerer=answerer)


def _check_room(config: Any, max_length: int, max_new_tokens: int) -> None:
    """Past its positions a model's words mean nothing, and seldom end."""
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None and max_length + max_new_tokens > positions:
        raise UsageError(
            "the longest conversation and its answer have more tokens than the target has positions",
            offered=f"--max-length {max_length} + --max-new-tokens {max_new_tokens}",
            allowed=f"{positions:,} together, by max_position_embeddings in config.json",
            next_command="a smaller --max-new-tokens or --max-length",
        )


def _read(preset: Preset) -> list[Conversation]:
    from pipeline.data.conversations import to_conversation
    from pipeline.data.dialogues import read_dialogues
    from pipeline.data.shards import find_shards, read_shard

    if preset.data.source == DIALOGUES:
        return read_dialogues()
    records = (record for shard in find_shards(Path(preset.data.path)) for record in read_shard(shard))
    # An empty one stays: positions in the source are what a second run goes by.
    return [to_conversation(fields, where) for where, fields in records]


def _run(work: Work, *, batch_size: int, max_turns: int) -> None:
    import torch

    from pipeline.evaluate.regenerate import answer_batch, plan_conversation_batches

    batches = plan_conversation_batches(
        work.conversations, work.file.done_ids, batch_size=batch_size, max_turns=max_turns
    )
    num_left = sum(map(len, batches))
    num_empty = sum(not conversation for conversation in work.conversations)
    left_out = f", {num_empty:,} without an answer to replace" if num_empty else ""
    num_done = len(work.file.done_ids)
    click.echo(f"{len(work.conversations):,} conversations, {num_done:,} answered already{left_out}", err=True)
    tally = Tally()
    start_s = time.perf_counter()
    try:
        for ids in batches:
            answered = list(answer_batch(work.conversations, ids, work.answerer, max_turns=max_turns))
            work.file.append(answered)
            tally = tally.plus(len(ids), answered)
            elapsed_s = time.perf_counter() - start_s
            rate = f"{tally.num_tokens / elapsed_s:,.0f} tok/s"
            click.echo(f"regenerate: {tally.num_done:,} of {num_left:,}, {rate}", err=True)
    except torch.OutOfMemoryError as error:
        raise ToolError(
            "a batch does not fit the device's memory",
            offered=f"--batch-size {batch_size}",
            next_command=f"--batch-size {max(1, batch_size // 2)}: the answers written so far are kept",
        ) from error
    finally:
        click.echo("\n".join(tally.lines(work.path)))


@dataclass(frozen=True, kw_only=True)
class Tally:
    """What one run has done."""

    num_done: int = 0
    num_written: int = 0
    num_answers: int = 0
    num_cut: int = 0
    num_empty: int = 0
    num_tokens: int = 0

    def plus(self, num_done: int, answered: Sequence[Regenerated]) -> Tally:
        """With one more batch."""
        return Tally(
            num_done=self.num_done + num_done,
            num_written=self.num_written + len(answered),
            num_answers=self.num_answers + sum(c.num_answers for c in answered),
            num_cut=self.num_cut + sum(c.num_cut for c in answered),
            num_empty=self.num_empty + sum(c.num_empty for c in answered),
            num_tokens=self.num_tokens + sum(c.num_tokens for c in answered),
        )

    def lines(self, path: Path) -> list[str]:
        """For the user; nothing is left out silently."""
        return [
            f"{self.num_written:,} conversations added to {path}: {self.num_tokens:,} tokens",
            f"  cut at --max-new-tokens  {self.num_cut:,} answers of {self.num_answers:,}",
            f"  empty                    {self.num_empty:,} answers",
            f"  left out                 {self.num_done - self.num_written:,} conversations that begin too long",
        ]
