"""Tasks that the trained model must solve, run with transformers' own generate."""

import random
from collections.abc import Iterator
from typing import Any, cast

import torch
from transformers import LlamaForCausalLM, PreTrainedTokenizerBase

from examples.hello.corpus import COUNT, END, PAD, STORY_PROMPT, SYSTEM_PROMPTS, paraphrases, story_words, words
from examples.hello.facts import Pair, facts
from examples.hello.stories import HEROES, OPENING

BATCH = 256
Message = dict[str, str]


def user(content: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": content}


def chats(pair: Pair, earlier: Pair) -> list[list[Message]]:
    """Return the pair's question alone, after a system prompt and after an earlier turn."""
    question = user(pair.question)
    turn = [user(earlier.question), {"role": "assistant", "content": earlier.answer}]
    return [[question], [{"role": "system", "content": SYSTEM_PROMPTS[0]}, question], [*turn, question]]


def render(tokenizer: PreTrainedTokenizerBase, messages: list[Message]) -> str:
    """Return the prompt that the chat template makes of a conversation."""
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))


def replies(
    model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase, prompts: list[str], limit: int = 80
) -> list[str]:
    """Return the greedy continuation of each prompt; one that stopped by itself ends with END."""
    generator = cast(Any, model)  # the declared type of generate leaves Llama out
    texts: list[str] = []
    for start in range(0, len(prompts), BATCH):
        batch = tokenizer(prompts[start : start + BATCH], return_tensors="pt", padding=True)
        output = generator.generate(**batch, max_new_tokens=limit, do_sample=False)
        texts += tokenizer.batch_decode(output[:, batch["input_ids"].shape[1] :])
    return [text.replace(PAD, "") for text in texts]


def cases(tokenizer: PreTrainedTokenizerBase) -> Iterator[tuple[str, str]]:
    """Return prompts and the replies they must get, over all questions, wordings and chat forms."""
    pairs = facts()
    earlier = random.Random(0).sample(pairs, len(pairs))
    for pair, other in zip(pairs, earlier, strict=True):
        prompts = paraphrases(pair.question) + [render(tokenizer, chat) for chat in chats(pair, other)]
        yield from ((prompt, pair.answer + END) for prompt in prompts)


def faults_of_story(text: str) -> list[str]:
    """Return what is wrong with a generated story."""
    used = words(text.removesuffix(END))
    unknown = used - story_words()
    faults = [f"unknown word {word}" for word in sorted(unknown)]
    if not text.endswith(END):
        faults.append("no end")
    if len(used & HEROES.keys()) != 2:
        faults.append("not two names")
    if text.count(".") < 6:
        faults.append("fewer than six sentences")
    return faults


def failures(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return one line for everything that the model gets wrong."""
    prompts, expected = zip(*cases(tokenizer), strict=True)
    answers = zip(prompts, expected, replies(model, tokenizer, list(prompts)), strict=True)
    faults = [f"{prompt!r}: {got!r} instead of {right!r}" for prompt, right, got in answers if got != right]
    for prompt in [STORY_PROMPT, OPENING, render(tokenizer, [user(STORY_PROMPT)])]:
        [text] = replies(model, tokenizer, [prompt], limit=400)
        faults += [f"{prompt!r}: {fault}: {text!r}" for fault in faults_of_story(text)]
    if replies(model, tokenizer, [COUNT.question], limit=700) != [COUNT.answer + END]:
        faults.append("does not count to one hundred")
    return faults


def smallest_margin(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerBase) -> float:
    """Return the smallest distance between the two best logits over all right replies."""
    smallest = float("inf")
    for prompt, reply in cases(tokenizer):
        head, tail = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt, reply))
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([head + tail])).logits[0, len(head) - 1 : -1]
        best = logits.topk(2).values
        smallest = min(smallest, float((best[:, 0] - best[:, 1]).min()))
    return smallest
