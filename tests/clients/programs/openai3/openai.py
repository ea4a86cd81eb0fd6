"""OpenAI's client."""

import json
from typing import Any

from openai import AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

from tests.clients.programs.cases import adapted, case, equal, hello, raising, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ADAPTER,
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    CITY,
    FIRST_TOKENS,
    HELLO,
    MESSAGES,
    PROMPT_TOKENS,
    QUESTION,
    SAYING,
    THINK_MESSAGES,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_MESSAGES,
    WEATHER_RESULT,
    WEATHER_TOOL,
)

PACKAGE = "openai"


def client(url: str = "") -> OpenAI:
    return OpenAI(base_url=f"{url or hello()}/v1", api_key="any", max_retries=0)


@case("OpenAI chats", "answers")
def chat() -> None:
    answer = client().chat.completions.create(model=HELLO, messages=MESSAGES, temperature=0)
    equal(answer.choices[0].message.content, ANSWER)
    equal(answer.choices[0].finish_reason, "stop")
    assert answer.usage is not None
    equal((answer.usage.prompt_tokens, answer.usage.completion_tokens), (CHAT_TOKENS, ANSWER_TOKENS))


@case("OpenAI chats", "streams")
def chat_stream() -> None:
    stream = client().chat.completions.create(
        model=HELLO, messages=MESSAGES, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)
    equal("".join(chunk.choices[0].delta.content or "" for chunk in chunks), ANSWER)
    equal(chunks[-1].choices[0].finish_reason, "stop")
    assert last.usage is not None
    equal((last.choices, last.usage.completion_tokens), ([], ANSWER_TOKENS))


@case("OpenAI chats", "asyncio")
async def chat_asyncio() -> None:
    async with AsyncOpenAI(base_url=f"{hello()}/v1", api_key="any", max_retries=0) as asynchronous:
        answer = await asynchronous.chat.completions.create(model=HELLO, messages=MESSAGES, temperature=0)
        async with asynchronous.chat.completions.stream(model=HELLO, messages=MESSAGES, temperature=0) as stream:
            together = await stream.get_final_completion()
    equal([each.choices[0].message.content for each in (answer, together)], [ANSWER, ANSWER])


@case("OpenAI chats", "log probabilities")
def log_probabilities() -> None:
    answer = client().chat.completions.create(
        model=HELLO, messages=MESSAGES, temperature=0, logprobs=True, top_logprobs=2
    )
    assert answer.choices[0].logprobs is not None
    tokens = answer.choices[0].logprobs.content or []
    equal([token.token for token in tokens[:4]], FIRST_TOKENS)
    equal(len(tokens), ANSWER_TOKENS)
    for token in tokens:
        equal((token.top_logprobs[0].logprob, len(token.top_logprobs)), (token.logprob, 2))


@case("OpenAI chats", "structured outputs")
def parsed() -> None:
    answer = client().chat.completions.parse(
        model=HELLO, messages=MESSAGES, temperature=0, response_format=Paint, max_tokens=200
    )
    equal(answer.choices[0].message.parsed, PAINT)


@case("OpenAI chats", "tool calls and their results")
def tools() -> None:
    messages = list(WEATHER_MESSAGES)
    answer = client(saying()).chat.completions.create(model=SAYING, messages=messages, tools=[_tool()])
    equal(answer.choices[0].finish_reason, "tool_calls")
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    equal((call.function.name, json.loads(call.function.arguments)), ("weather", CITY))
    messages += [answer.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": WEATHER_RESULT}]
    last = client(saying()).chat.completions.create(model=SAYING, messages=messages, tools=[_tool()])
    equal((last.choices[0].message.content, last.choices[0].finish_reason), (WEATHER_ANSWER, "stop"))


@case("OpenAI chats", "streamed tool calls")
def tool_stream() -> None:
    with client(saying()).chat.completions.stream(model=SAYING, messages=WEATHER_MESSAGES, tools=[_tool()]) as stream:
        done = [event for event in stream if event.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion()
    equal([json.loads(event.arguments) for event in done], [CITY])
    equal(final.choices[0].finish_reason, "tool_calls")


@case("OpenAI chats", "reasoning")
def reasoning() -> None:
    answer = client(saying()).chat.completions.create(model=SAYING, messages=THINK_MESSAGES)
    message: Any = answer.choices[0].message
    equal((message.content, message.reasoning_content), (ANSWER, THOUGHT))
    assert answer.usage is not None
    assert answer.usage.completion_tokens_details is not None
    equal(answer.usage.completion_tokens_details.reasoning_tokens, 6)


@case("OpenAI chats", "errors")
def errors() -> None:
    for changed, kind, said in (
        ({"temperature": -1}, BadRequestError, "temperature"),
        ({"max_tokens": 100_000}, BadRequestError, "maximum context length is 2048 tokens"),
        ({"model": "gpt-none"}, NotFoundError, "gpt-none"),
    ):
        arguments: Any = {"model": HELLO, "messages": MESSAGES, **changed}
        with raising(kind, said):
            client().chat.completions.create(**arguments)


@case("OpenAI completions", "answers")
def completion() -> None:
    answer = client().completions.create(model=HELLO, prompt=QUESTION, temperature=0, max_tokens=64)
    equal((answer.choices[0].text, answer.choices[0].finish_reason), (ANSWER, "stop"))
    assert answer.usage is not None
    equal((answer.usage.prompt_tokens, answer.usage.completion_tokens), (PROMPT_TOKENS, ANSWER_TOKENS))


@case("OpenAI completions", "streams")
def completion_stream() -> None:
    stream = client().completions.create(model=HELLO, prompt=QUESTION, temperature=0, max_tokens=64, stream=True)
    chunks = [chunk.choices[0] for chunk in stream]
    equal(("".join(chunk.text for chunk in chunks), chunks[-1].finish_reason), (ANSWER, "stop"))


@case("OpenAI completions", "echo with log probabilities")
def echo() -> None:
    answer = client().completions.create(
        model=HELLO, prompt=QUESTION, temperature=0, max_tokens=1, echo=True, logprobs=1
    )
    log_probs = answer.choices[0].logprobs
    assert log_probs is not None
    equal("".join(log_probs.tokens or []), QUESTION + FIRST_TOKENS[0])
    equal([log_prob is None for log_prob in log_probs.token_logprobs or []], [True] + [False] * PROMPT_TOKENS)


@case("OpenAI completions", "adapters")
def adapter() -> None:
    answer = client().completions.create(model=ADAPTER, prompt=QUESTION, temperature=0, max_tokens=8)
    equal(answer.choices[0].text, adapted())


@case("OpenAI models", "list")
def models() -> None:
    equal([model.id for model in client().models.list()], [HELLO, "gpt-hello", ADAPTER])
    equal(client().models.retrieve(HELLO).id, HELLO)


@case("OpenAI Responses", "answers")
def response() -> None:
    answer = client().responses.create(model=HELLO, input=QUESTION, temperature=0)
    equal((answer.output_text, answer.status), (ANSWER, "completed"))
    assert answer.usage is not None
    equal((answer.usage.input_tokens, answer.usage.output_tokens), (CHAT_TOKENS, ANSWER_TOKENS))


@case("OpenAI Responses", "streams")
def response_stream() -> None:
    with client().responses.stream(model=HELLO, input=QUESTION, temperature=0) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    equal((text, final.output_text), (ANSWER, ANSWER))


@case("OpenAI Responses", "structured outputs")
def response_parsed() -> None:
    answer = client().responses.parse(
        model=HELLO, input=QUESTION, temperature=0, text_format=Paint, max_output_tokens=200
    )
    equal(answer.output_parsed, PAINT)


@case("OpenAI Responses", "tool calls and their results")
def response_tools() -> None:
    function: Any = {"type": "function", "strict": False} | WEATHER_TOOL["function"]
    first = client(saying()).responses.create(model=SAYING, input=WEATHER_MESSAGES, tools=[function])
    (call,) = [item for item in first.output if item.type == "function_call"]
    equal((call.name, json.loads(call.arguments)), ("weather", CITY))
    result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": WEATHER_RESULT}]
    last = client(saying()).responses.create(
        model=SAYING, previous_response_id=first.id, input=result, tools=[function]
    )
    equal(last.output_text, WEATHER_ANSWER)


@case("OpenAI embeddings", "vectors")
def embeddings() -> None:
    answer = client().embeddings.create(model=HELLO, input=[QUESTION, ANSWER, QUESTION])
    vectors = [item.embedding for item in answer.data]
    equal([len(vector) for vector in vectors], [len(vectors[0])] * 3)
    equal((vectors[0] == vectors[2], vectors[0] == vectors[1]), (True, False))
    equal(round(sum(number * number for number in vectors[0]), 3), 1.0)


def _tool() -> Any:
    return WEATHER_TOOL
