import pytest

from lmi_core.errors import ConfigurationError
from lmi_plugins.backends.scripted import Script
from tests.conftest import ModelDirectory, Serve
from tests.handlers.openai.chats import MESSAGES, PATH, serve_with


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        (
            "option.reasoning_parser=deepseek_r2\n",
            r"option.reasoning_parser must be a known reasoning format. Did you mean `deepseek_r1`\? Known: "
            r"cohere_command3, .*step3p5. Given: deepseek_r2$",
        ),
        ("option.enable_reasoning=true\n", "option.enable_reasoning requires option.reasoning_parser"),
    ],
)
async def test_wrong_configuration(serve: Serve, model_dir: ModelDirectory, properties: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        await serve_with(serve, model_dir, properties)


@pytest.mark.parametrize(
    ("properties", "apart"),
    [
        ("option.reasoning_parser=deepseek-r1\n", True),
        ("option.reasoning_parser=deepseek_r1\noption.enable_reasoning=false\n", False),
        ("option.enable_reasoning=false\n", False),
    ],
)
async def test_when_reasoning_is_told_apart(
    serve: Serve, model_dir: ModelDirectory, properties: str, apart: bool
) -> None:
    server = await serve_with(serve, model_dir, properties)
    server.scripted.enqueue(Script("So</think>Yes"))
    found = (await server.post(PATH, {"messages": MESSAGES})).json()["choices"][0]["message"]
    assert (found["content"], found.get("reasoning_content")) == (("Yes", "So") if apart else ("So</think>Yes", None))


async def test_format_that_no_guide_can_follow(serve: Serve, model_dir: ModelDirectory) -> None:
    """A guided answer is the final message at once."""
    server = await serve_with(serve, model_dir, "option.reasoning_parser=gpt-oss\n")
    server.scripted.enqueue(Script("{}"))
    answer = await server.post(PATH, {"messages": MESSAGES, "response_format": {"type": "json_object"}})
    assert server.scripted.history[-1].prompt.endswith("assistant:<|channel|>final<|message|>")
    assert answer.json()["choices"][0]["message"]["content"] == "{}"
