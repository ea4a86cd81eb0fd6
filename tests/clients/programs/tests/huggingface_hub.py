"""Hugging Face's inference client."""

import json
from typing import Any

from httpx2 import StreamClosed
from huggingface_hub import AsyncInferenceClient, InferenceClient
from huggingface_hub.errors import ValidationError

from tests.clients.programs.cases import adapted, case, equal, fault, hello, raising, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ADAPTER,
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    FIRST_TEXT,
    FIRST_TOKENS,
    MESSAGES,
    PROMPT_TOKENS,
    QUESTION,
    THINK_MESSAGES,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_MESSAGES,
    WEATHER_RESULT,
    WEATHER_TOOL,
)

PACKAGE = "huggingface_hub"


def client(url: str = "") -> Any:
    return InferenceClient(base_url=url or hello(), token="any")


@case("TGI", "answers")
def generate() -> None:
    found = client().text_generation(QUESTION, max_new_tokens=64, details=True, decoder_input_details=True)
    equal((found.generated_text, found.details.finish_reason), (ANSWER, "eos_token"))
    equal((found.details.generated_tokens, len(found.details.prefill)), (ANSWER_TOKENS, PROMPT_TOKENS))
    equal([token.text for token in found.details.tokens][:4], FIRST_TOKENS)


@case("TGI", "streams")
def generate_stream() -> None:
    asked = client()
    equal("".join(asked.text_generation(QUESTION, max_new_tokens=64, stream=True)), ANSWER)
    *_, last = asked.text_generation(QUESTION, max_new_tokens=4, stream=True, details=True)
    equal((last.generated_text, last.details.finish_reason), (FIRST_TEXT, "length"))


@case("TGI", "grammars")
def grammar() -> None:
    schema = {"type": "json", "value": Paint.model_json_schema()}
    found = client().text_generation(QUESTION, max_new_tokens=200, grammar=schema)
    equal(Paint.model_validate_json(found), PAINT)


@case("TGI", "adapters")
def adapter() -> None:
    equal(client().text_generation(QUESTION, max_new_tokens=8, adapter_id=ADAPTER), adapted())


@case("TGI", "asyncio")
async def generate_asyncio() -> None:
    async with AsyncInferenceClient(base_url=hello(), token="any") as asynchronous:
        equal(await asynchronous.text_generation(QUESTION, max_new_tokens=64), ANSWER)
        stream = await asynchronous.text_generation(QUESTION, max_new_tokens=64, stream=True)
        equal("".join([text async for text in stream]), ANSWER)


@case("TGI", "errors")
def errors() -> None:
    with raising(ValidationError, "at most 2047 tokens"):
        client().text_generation("word " * 3000, max_new_tokens=4)


@case("OpenAI chats", "answers")
def chat() -> None:
    answer = client().chat_completion(MESSAGES, temperature=0, max_tokens=64)
    equal((answer.choices[0].message.content, answer.choices[0].finish_reason), (ANSWER, "stop"))
    equal((answer.usage.prompt_tokens, answer.usage.completion_tokens), (CHAT_TOKENS, ANSWER_TOKENS))


@case("OpenAI chats", "streams")
def chat_stream() -> None:
    asked = client()
    chunks = asked.chat_completion(MESSAGES, temperature=0, max_tokens=64, stream=True)
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), ANSWER)


@fault(
    "OpenAI chats",
    "A stream ends with `StreamClosed` once its `InferenceClient` is gone, as in `InferenceClient(...).chat_completion"
    "(..., stream=True)`.",
    "Keep the client in a variable until the stream is read.",
)
def forgotten() -> None:
    chunks = client().chat_completion(MESSAGES, stream=True)
    try:
        list(chunks)
    except StreamClosed:
        return
    raise AssertionError("the stream goes on without its client")


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    answer = client(saying()).chat_completion(WEATHER_MESSAGES, tools=[WEATHER_TOOL])
    (call,) = answer.choices[0].message.tool_calls
    equal((call.function.name, json.loads(call.function.arguments)), ("weather", CITY))
    result = {"role": "tool", "tool_call_id": call.id, "content": WEATHER_RESULT}
    messages = [*WEATHER_MESSAGES, answer.choices[0].message, result]
    last = client(saying()).chat_completion(messages, tools=[WEATHER_TOOL])
    equal(last.choices[0].message.content, WEATHER_ANSWER)


@case("OpenAI chats", "structured outputs")
def structured() -> None:
    schema = {"name": "Paint", "schema": Paint.model_json_schema(), "strict": True}
    for form in ({"type": "json_schema", "json_schema": schema}, {"type": "json", "value": schema["schema"]}):
        answer = client().chat_completion(MESSAGES, temperature=0, max_tokens=200, response_format=form)
        equal(Paint.model_validate_json(answer.choices[0].message.content), PAINT)


@case("OpenAI chats", "reasoning")
def reasoning() -> None:
    message = client(saying()).chat_completion(THINK_MESSAGES).choices[0].message
    equal((message.content, message.reasoning), (ANSWER, THOUGHT))
