"""Requests and results of lm-eval: the log likelihoods of texts, compared with transformers.

The requests are those of `local-completions`, and so is the way in which answers are read (lm-eval 0.4).
"""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from tests.conftest import RunningServer
from tests.module_server import module_server
from tests.plugins.torch_engine.tiny_models import reference_model

HELLO = Path(__file__).parents[2] / "examples" / "hello"
MODEL = "served"
QUESTION = [{"role": "user", "content": "What is Deep Learning?"}]
ANSWER = "Deep Learning is a really cool field."
CONTINUATIONS = [ANSWER, "Deep Learning is a really warm field.", "No", "Deep Learning", " Zyxw!"]
CLOSE = 1e-3

LogLikelihood = tuple[float, bool]  # of a continuation, and whether greedy decoding would write it

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return AutoTokenizer.from_pretrained(HELLO)


@pytest.fixture(scope="module")
def context(tokenizer: Any) -> list[int]:
    text = tokenizer.apply_chat_template(QUESTION, tokenize=False, add_generation_prompt=True)
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False)
    return ids


@pytest.fixture(scope="module")
def continuations(tokenizer: Any) -> list[list[int]]:
    return [tokenizer.encode(text, add_special_tokens=False) for text in CONTINUATIONS]


server = module_server(f"option.model_id={HELLO}\noption.rolling_batch=torch\n", MODEL)


@pytest.fixture(scope="module")
def reference(context: list[int], continuations: list[list[int]]) -> list[LogLikelihood]:
    model = reference_model(HELLO)
    return [_log_likelihood(model, context, continuation) for continuation in continuations]


def _log_likelihood(model: Any, context: list[int], continuation: list[int]) -> LogLikelihood:
    with torch.inference_mode():
        logits = model(torch.tensor([context + continuation])).logits[0, len(context) - 1 : -1]
    log_probs = logits.float().log_softmax(-1)
    greedy = log_probs.argmax(-1).tolist() == continuation
    return sum(log_probs[place, token_id].item() for place, token_id in enumerate(continuation)), greedy


async def ask(server: RunningServer, prompts: list[list[int]], max_tokens: int) -> Any:
    request = {
        "model": MODEL,
        "prompt": prompts,
        "temperature": 0,
        "max_tokens": max_tokens,
        "logprobs": 1,
        "seed": 1234,
        "echo": True,
    }
    answer = await server.post("/v1/completions", request, headers={"Authorization": "Bearer "})
    assert answer.status == 200, answer.body
    assert answer.headers.get("X-Lmi-Ignored-Parameters") is None
    return answer.json()


def read(answer: Any, context: int, generated: int) -> list[LogLikelihood]:
    """Read the log likelihoods as lm-eval does, which cuts off what is generated."""
    found = []
    for choice in sorted(answer["choices"], key=lambda each: int(each["index"])):
        log_probs = choice["logprobs"]
        end = len(log_probs["token_logprobs"]) - generated
        likelihoods = log_probs["token_logprobs"][context:end]
        likeliest = [max(places.values()) for places in log_probs["top_logprobs"][context:end]]
        found.append((sum(likelihoods), likelihoods == likeliest))
    return found


@pytest.mark.parametrize("generated", [0, 1])
@pytest.mark.parametrize("batch", [1, len(CONTINUATIONS)])
async def test_log_likelihoods(
    server: RunningServer,
    context: list[int],
    continuations: list[list[int]],
    reference: list[LogLikelihood],
    generated: int,
    batch: int,
) -> None:
    prompts = [context + continuation for continuation in continuations]
    found: list[LogLikelihood] = []
    for start in range(0, len(prompts), batch):
        answer = await ask(server, prompts[start : start + batch], generated)
        lengths = [len(choice["logprobs"]["token_logprobs"]) for choice in answer["choices"]]
        assert lengths == [len(prompt) + generated for prompt in prompts[start : start + batch]]
        found += read(answer, len(context), generated)
    assert [greedy for _, greedy in found] == [greedy for _, greedy in reference] == [True, False, False, True, False]
    for (likelihood, _), (expected, _) in zip(found, reference, strict=True):
        assert likelihood == pytest.approx(expected, abs=CLOSE)


async def test_tokens(server: RunningServer, tokenizer: Any, context: list[int]) -> None:
    of_chat = (await server.post("/tokenize", {"messages": QUESTION, "return_token_strs": True})).json()
    assert (of_chat["tokens"], of_chat["count"]) == (context, len(context))
    assert of_chat["token_strs"] == tokenizer.convert_ids_to_tokens(context)
    text = (await server.post("/detokenize", {"tokens": context})).json()["prompt"]
    assert text == tokenizer.decode(context) != tokenizer.decode(context, skip_special_tokens=True)
    assert (await server.post("/v2/decode", {"tokens": context})).json()["prompt"] == tokenizer.decode(
        context, skip_special_tokens=True
    )
    for special in (True, False):
        body = {"prompt": text, "add_special_tokens": special}
        ids = tokenizer.encode(text, add_special_tokens=special)
        assert (await server.post("/tokenize", body)).json()["tokens"] == ids
