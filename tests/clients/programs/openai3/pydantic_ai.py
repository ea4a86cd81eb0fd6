"""Pydantic AI, whose agents call tools and give structured outputs."""

from typing import Any

from huggingface_hub import AsyncInferenceClient
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.huggingface import HuggingFaceModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.huggingface import HuggingFaceProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.clients.programs.cases import case, equal, fault, hello, saying
from tests.clients.programs.paint import PAINT, Paint
from tests.clients.programs.values import (
    ANSWER,
    ANSWER_TOKENS,
    CHAT_TOKENS,
    HELLO,
    QUESTION,
    SAYING,
    THINK_QUESTION,
    THOUGHT,
    WEATHER_ANSWER,
    WEATHER_QUESTION,
    weather,
)

PACKAGE = "pydantic-ai-slim"

GREEDY: Any = {"temperature": 0.0, "max_tokens": 200}


def chat_model(url: str = "", name: str = HELLO) -> Any:
    return OpenAIChatModel(name, provider=OpenAIProvider(base_url=f"{url or hello()}/v1", api_key="any"))


def responses_model(url: str = "", name: str = HELLO) -> Any:
    return OpenAIResponsesModel(name, provider=OpenAIProvider(base_url=f"{url or hello()}/v1", api_key="any"))


def anthropic_model(url: str = "", name: str = HELLO) -> Any:
    return AnthropicModel(name, provider=AnthropicProvider(base_url=url or hello(), api_key="any"))


def huggingface_model(url: str = "", name: str = HELLO) -> Any:
    client = AsyncInferenceClient(base_url=url or hello(), api_key="any")
    return HuggingFaceModel(name, provider=HuggingFaceProvider(hf_client=client, api_key="any"))


async def answers(model: Any) -> None:
    found = await Agent(model, model_settings=GREEDY).run(QUESTION)
    usage = found.usage
    equal((found.output, usage.input_tokens, usage.output_tokens), (ANSWER, CHAT_TOKENS, ANSWER_TOKENS))


async def streams(model: Any) -> None:
    async with Agent(model, model_settings=GREEDY).run_stream(QUESTION) as found:
        texts = [text async for text in found.stream_text(delta=True, debounce_by=None)]
        usage = found.usage
    equal(("".join(texts), usage.output_tokens), (ANSWER, ANSWER_TOKENS))
    equal(len(texts) > 2, True)


async def tools(model: Any) -> None:
    found = await Agent(model, tools=[weather]).run(WEATHER_QUESTION)
    equal((found.output, found.usage.requests, found.usage.tool_calls), (WEATHER_ANSWER, 2, 1))


async def outputs(model: Any, kind: Any) -> None:
    agent = Agent(model, output_type=kind(Paint), model_settings=GREEDY)
    equal((await agent.run(QUESTION)).output, PAINT)


async def thoughts(model: Any) -> None:
    found = await Agent(model).run(THINK_QUESTION)
    parts = {part.part_kind: part.content for part in found.all_messages()[-1].parts}
    equal(parts, {"thinking": THOUGHT, "text": ANSWER})


@case("OpenAI chats", "answers")
async def chat() -> None:
    await answers(chat_model())


@case("OpenAI chats", "streams")
async def chat_stream() -> None:
    await streams(chat_model())


@case("OpenAI chats", "tool calls and their results")
async def chat_tools() -> None:
    await tools(chat_model(saying(), SAYING))


@case("OpenAI chats", "structured outputs")
async def chat_outputs() -> None:
    await outputs(chat_model(), NativeOutput)
    await outputs(chat_model(), ToolOutput)


@case("OpenAI chats", "reasoning")
async def chat_thoughts() -> None:
    await thoughts(chat_model(saying(), SAYING))


@case("OpenAI chats (Hugging Face's provider)", "answers")
async def huggingface() -> None:
    await answers(huggingface_model())


@fault(
    "OpenAI chats (Hugging Face's provider)",
    "Streams are not counted, as their usage is not asked for.",
    'Give `model_settings={"extra_body": {"stream_options": {"include_usage": True}}}`.',
)
async def huggingface_stream() -> None:
    agent = Agent(huggingface_model(), model_settings=GREEDY)
    for settings, counted in (({}, 0), ({"extra_body": {"stream_options": {"include_usage": True}}}, ANSWER_TOKENS)):
        asked: Any = settings
        async with agent.run_stream(QUESTION, model_settings=asked) as found:
            equal((await found.get_output(), found.usage.output_tokens), (ANSWER, counted))


@case("OpenAI chats (Hugging Face's provider)", "tool calls and their results")
async def huggingface_tools() -> None:
    await tools(huggingface_model(saying(), SAYING))


@case("OpenAI Responses", "answers")
async def responses() -> None:
    await answers(responses_model())


@case("OpenAI Responses", "streams")
async def responses_stream() -> None:
    await streams(responses_model())


@case("OpenAI Responses", "tool calls and their results")
async def responses_tools() -> None:
    await tools(responses_model(saying(), SAYING))


@case("OpenAI Responses", "structured outputs")
async def responses_outputs() -> None:
    await outputs(responses_model(), NativeOutput)
    await outputs(responses_model(), ToolOutput)


@case("Anthropic Messages", "answers")
async def anthropic() -> None:
    await answers(anthropic_model())


@case("Anthropic Messages", "streams")
async def anthropic_stream() -> None:
    await streams(anthropic_model())


@case("Anthropic Messages", "tool calls and their results")
async def anthropic_tools() -> None:
    await tools(anthropic_model(saying(), SAYING))


@case("Anthropic Messages", "structured outputs")
async def anthropic_outputs() -> None:
    await outputs(anthropic_model(), ToolOutput)


@case("Anthropic Messages", "reasoning")
async def anthropic_thoughts() -> None:
    await thoughts(anthropic_model(saying(), SAYING))
