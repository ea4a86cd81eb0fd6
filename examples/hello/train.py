"""Train the hello model from scratch and save it once it answers everything correctly."""

import argparse
import math
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.insert(0, str(Path(__file__).parents[2]))  # to run as a script

from examples.hello.corpus import Lesson, epoch, questions_json
from examples.hello.exam import failures, smallest_margin
from examples.hello.tokens import train_tokenizer

MAX_LENGTH = 2048
EPOCHS = 140
TOKENS_PER_BATCH = 1536
LEARNING_RATE = 3e-3
WARMUP = 0.05
IGNORED = -100
DEMO = Path(__file__).parents[2] / "handlers" / "lmi_handlers" / "cli" / "hello"
TIED = "lm_head.weight"  # shares the weights of the embeddings

Example = tuple[list[int], list[int]]
Batch = tuple[torch.Tensor, torch.Tensor]


def build_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return an untrained plain Llama of about 1.3 million parameters."""
    special = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=MAX_LENGTH,
        tie_word_embeddings=True,
        bos_token_id=None,
        **special,
        dtype="float32",
    )
    new_model: Callable[[LlamaConfig], LlamaForCausalLM] = LlamaForCausalLM  # untyped in some releases
    model = new_model(config)
    model.generation_config = GenerationConfig.from_dict(special)
    return model


class Encoder:
    """Turns lessons into ids and labels."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self.pad = tokenizer.pad_token_id
        self.encode = lru_cache(maxsize=20_000)(lambda text: tokenizer(text, add_special_tokens=False)["input_ids"])

    def example(self, lesson: Lesson) -> Example:
        """Return the ids of a lesson and its labels, which leave out what is not learned."""
        ids: list[int] = []
        labels: list[int] = []
        for segment in lesson:
            piece = self.encode(segment.text)
            ids += piece
            labels += piece if segment.learned else [IGNORED] * len(piece)
        return ids, labels

    def batch(self, examples: list[Example]) -> Batch:
        """Pad examples on the right; causal attention makes a mask needless."""
        width = max(len(ids) for ids, _ in examples)
        ids = [ids + [self.pad] * (width - len(ids)) for ids, _ in examples]
        labels = [labels + [IGNORED] * (width - len(labels)) for _, labels in examples]
        return torch.tensor(ids), torch.tensor(labels)

    def batches(self, lessons: list[Lesson]) -> Iterator[Batch]:
        """Group lessons of like length, within a budget of tokens."""
        group: list[Example] = []
        for example in sorted((self.example(lesson) for lesson in lessons), key=lambda example: len(example[0])):
            if group and len(example[0]) * (len(group) + 1) > TOKENS_PER_BATCH:
                yield self.batch(group)
                group = []
            group.append(example)
        yield self.batch(group)


def rate(progress: float) -> float:
    """Return the learning rate at a fraction of the training: a short warm-up, then a cosine."""
    warm = min(1.0, progress / WARMUP)
    return LEARNING_RATE * warm * 0.5 * (1 + math.cos(math.pi * progress))


def train(model: LlamaForCausalLM, encoder: Encoder, rng: random.Random) -> None:
    """Train the model in place, printing the mean loss now and then."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.05)
    model.train()
    for number in range(EPOCHS):
        batches = list(encoder.batches(epoch(rng)))
        rng.shuffle(batches)
        total = 0.0
        for step, (ids, labels) in enumerate(batches):
            for group in optimizer.param_groups:
                group["lr"] = rate((number + step / len(batches)) / EPOCHS)
            loss = model(input_ids=ids, labels=labels).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        if number % 10 == 9:
            print(f"epoch {number + 1}: loss {total / len(batches):.4f}", flush=True)


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model, its tokenizer and its questions."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "questions.json").write_text(questions_json(), encoding="utf-8")


def package(model: LlamaForCausalLM, folder: Path) -> None:
    """Copy the model from its folder to the model of `lmi demo`, with half the bytes for each weight."""
    for file in [*folder.glob("*.jinja"), *folder.glob("*config.json"), folder / "tokenizer.json"]:
        shutil.copy(file, DEMO)
    weights = {name: weight.half() for name, weight in model.state_dict().items() if name != TIED}
    save_file(weights, DEMO / "model.safetensors", metadata={"format": "pt"})


def main() -> int:
    """Train, examine and save; the exit status is 1 where an answer is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    torch.manual_seed(arguments.seed)
    torch.use_deterministic_algorithms(True)

    started = time.monotonic()
    tokenizer = train_tokenizer(arguments.seed, MAX_LENGTH)
    model = build_model(tokenizer)
    train(model, Encoder(tokenizer), random.Random(arguments.seed))
    print(f"trained in {time.monotonic() - started:.0f} s")

    model.train(False)
    wrong = failures(model, tokenizer)
    print(*wrong, f"{len(wrong)} wrong", f"smallest margin {smallest_margin(model, tokenizer):.2f}", sep="\n")
    save(model, tokenizer, arguments.output)
    if arguments.output == Path(__file__).parent:
        package(model, arguments.output)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
