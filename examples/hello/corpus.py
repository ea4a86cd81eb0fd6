"""The text that the hello model is trained on, all of it made here from tables and a grammar."""

import json
import random
import re
from collections.abc import Iterator
from typing import NamedTuple

from examples.hello.facts import Pair, counting, facts
from examples.hello.stories import HEROES, KINDS, OPENING, story

END = "<|end|>"
PAD = "<|pad|>"
ROLES = ["<|system|>", "<|user|>", "<|assistant|>"]

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

SYSTEM_PROMPTS = [
    "You are a helpful assistant.",
    "You are a friendly teacher.",
    "You are Hello, a tiny language model.",
    "Answer in one sentence.",
    "Be kind and brief.",
]

COUNT = Pair("Count.", counting(100))
SONG = Pair("Sing.", "La" + " la" * 600)
STORY_PROMPT = "Tell me a story."
STORIES_PER_EPOCH = 24
INTRODUCTIONS_PER_EPOCH = 12


class Segment(NamedTuple):
    """A piece of text that is tokenised on its own, and whether the model learns to write it."""

    text: str
    learned: bool


Lesson = list[Segment]


def questions_json() -> str:
    """Return the content of questions.json."""
    return json.dumps([pair._asdict() for pair in facts()], ensure_ascii=False, indent=1) + "\n"


def paraphrases(question: str) -> list[str]:
    """Return the question in every wording that is taught, the original first."""
    spoken = [question]
    if question.startswith("What is "):
        spoken.append(question.replace("What is", "What's", 1))
    cased = spoken + [wording.lower() for wording in spoken]
    return list(dict.fromkeys(cased + [wording.rstrip("?!.") for wording in cased]))


def words(text: str) -> set[str]:
    """Return the distinct words of a text."""
    return set(re.findall(r"\w+", text))


def story_words() -> set[str]:
    """Return the words that stories are made of."""
    rng = random.Random(0)
    return words(" ".join(story(rng) for _ in range(2000)))


def plain(pair: Pair, end: str = END) -> Lesson:
    """Teach a pair with the question alone as the prompt."""
    return [Segment(pair.question, False), Segment(pair.answer + end, True)]


def conversation(pairs: list[Pair], system: str | None = None) -> Lesson:
    """Teach pairs as the turns of one conversation."""
    lesson = [Segment(f"<|system|>{system}{END}", False)] if system else []
    for pair in pairs:
        lesson += [Segment(f"<|user|>{pair.question}{END}<|assistant|>", False), Segment(pair.answer + END, True)]
    return lesson


def _reworded(rng: random.Random, pair: Pair) -> Pair:
    return Pair(rng.choice(paraphrases(pair.question)), pair.answer)


def _system(rng: random.Random) -> str | None:
    """Draw a system prompt; some are unrelated text, so that the model learns not to mind it."""
    unrelated = story(rng) if rng.random() < 0.1 else rng.choice(facts()).answer
    return rng.choice([None, None, unrelated, *SYSTEM_PROMPTS])


def _conversations(rng: random.Random) -> Iterator[Lesson]:
    pairs = [_reworded(rng, pair) for pair in facts()]
    rng.shuffle(pairs)
    while pairs:
        size = rng.choice([1, 2, 2, 3, 4])
        turns, pairs = pairs[:size], pairs[size:]
        yield conversation(turns, _system(rng))


def _introductions(rng: random.Random) -> Iterator[Lesson]:
    """Teach to recall the user's name from an earlier turn."""
    others = [pair for pair in facts() if pair.question != "What is my name?"]
    for _ in range(INTRODUCTIONS_PER_EPOCH):
        name = rng.choice(list(HEROES))
        told = Pair(f"My name is {name}.", f"Nice to meet you, {name}!")
        asked = Pair("What is my name?", f"Your name is {name}.")
        before, between = (rng.sample(others, rng.choice([0, 0, 1])) for _ in range(2))
        yield conversation([_reworded(rng, pair) for pair in [*before, told, *between, asked]], _system(rng))


def _stories(rng: random.Random) -> Iterator[Lesson]:
    for _ in range(STORIES_PER_EPOCH):
        kind = rng.choice(KINDS)
        about = Pair(f"Tell me a story about a {kind}.", story(rng, kind))
        general = Pair(STORY_PROMPT, story(rng))
        opened = Pair(OPENING, general.answer.removeprefix(OPENING))
        pair = rng.choice([general, general, opened, about])
        yield plain(pair) if pair is opened or rng.random() < 0.6 else conversation([pair], _system(rng))


def epoch(rng: random.Random) -> list[Lesson]:
    """Return every pair in several forms, with fresh stories and conversations."""
    lessons = [plain(pair) for pair in facts()]
    lessons += [plain(_reworded(rng, pair)) for pair in facts()]
    lessons += [conversation([_reworded(rng, pair)]) for pair in facts()]
    lessons += [*_conversations(rng), *_introductions(rng), *_stories(rng)]
    lessons.append(rng.choice([plain(COUNT), conversation([COUNT]), plain(SONG, end="")]))
    return lessons
