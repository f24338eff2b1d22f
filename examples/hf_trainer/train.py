"""A small transformers `Trainer` on the CPU: a random GPT-2, synthetic text. It trains until it is stopped."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator

import torch
from torch.utils.data import IterableDataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments

VOCABULARY = 2048
LENGTH = 256
BATCH = 4


class SyntheticText(IterableDataset):
    """Documents of random tokens, without end; words are sorted beside each, in the place of slow preprocessing."""

    def __init__(self, slow_words: int) -> None:
        """*slow_words* is the number of words that are split and sorted for each document."""
        self.slow_words = slow_words

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """One document at a time."""
        generator = torch.Generator().manual_seed(0)
        words = " ".join(f"word{number}" for number in range(self.slow_words))
        while True:
            sorted(words.split(), key=lambda word: word[::-1])
            tokens_T = torch.randint(VOCABULARY, (LENGTH,), generator=generator)
            yield {"input_ids": tokens_T, "labels": tokens_T}


class PrintSpeed(TrainerCallback):
    """Prints tok/s since the last line; the Trainer's own `train_tokens_per_second` is a mean since its start."""

    def __init__(self) -> None:
        """Nothing is measured yet."""
        self.last = (time.perf_counter(), 0)

    def on_log(self, args, state, control, **kwargs) -> None:  # noqa: ARG002 (transformers' signature)
        """Called every `logging_steps`."""
        now_s, num_tokens = time.perf_counter(), state.num_input_tokens_seen
        last_s, last_tokens = self.last
        self.last = (now_s, num_tokens)
        print(f"step {state.global_step} speed: {(num_tokens - last_tokens) / (now_s - last_s):.1f} tok/s", flush=True)


def main() -> None:
    """Train without end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attn", default="eager", choices=["eager", "sdpa"])
    parser.add_argument("--slow-words", type=int, default=0)
    parser.add_argument("--checkpointing", action="store_true")
    options = parser.parse_args()
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=LENGTH,
        n_embd=128,
        n_layer=4,
        n_head=4,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=options.attn,
    )
    model = GPT2LMHeadModel(config)
    if options.checkpointing:
        # transformers 5.24 deprecates the old name; 5.17 does not know the new one.
        getattr(model, "activation_checkpointing_enable", model.gradient_checkpointing_enable)()
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=10**9,
            per_device_train_batch_size=BATCH,
            include_num_input_tokens_seen=True,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        Trainer(
            model=model,
            args=arguments,
            train_dataset=SyntheticText(options.slow_words),
            callbacks=[PrintSpeed()],
        ).train()


if __name__ == "__main__":
    main()
