"""Log likelihoods of texts in the hello model, computed with transformers alone."""

from typing import Any

import torch
from transformers import AutoTokenizer

from tests.clients.programs.values import CONTINUATIONS, HELLO_FOLDER, QUESTION, TEXTS


def log_likelihoods(model: Any) -> dict[str, list[Any]]:
    """Return those of continuations, each with whether it is greedy, and of texts by themselves."""
    tokenizer: Any = AutoTokenizer.from_pretrained(HELLO_FOLDER)
    context = tokenizer.encode(QUESTION, add_special_tokens=False)
    whole = [tokenizer.encode(QUESTION + text, add_special_tokens=False) for text in CONTINUATIONS]
    texts = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    return {
        "continuations": [_score(model, context, ids[len(context) :]) for ids in whole],
        "texts": [_score(model, [tokenizer.eos_token_id], ids)[0] for ids in texts],
    }


def _score(model: Any, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    with torch.inference_mode():
        logits = model(torch.tensor([context + continuation])).logits[0, len(context) - 1 : -1]
    log_probs = logits.float().log_softmax(-1)
    greedy = log_probs.argmax(-1).tolist() == continuation
    return sum(log_probs[index, token_id].item() for index, token_id in enumerate(continuation)), greedy
