"""Tool calls whose markers are special tokens, which the texts of answers lack."""

from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import AutoTokenizer

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_core.texts.token_writer import TokenWriter
from tests.conftest import RunningServer, Serve
from tests.plugins.torch_engine.tiny_models import VOCABULARY, save_model, save_tokenizer

CALL = 'weather[ARGS]{"city": "Paris"}'  # one token, so that the model can be made to write it
ADDED = [
    AddedToken("<|thinking|>", special=True),
    AddedToken("[TOOL_CALLS]", special=True),
    AddedToken(CALL, special=False),
]
TEMPLATE = "{% if tools %}Tools! {% endif %}{{ messages[0].content }}"
TOOLS = [{"type": "function", "function": {"name": "weather"}}]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("served") / "model"
    save_tokenizer(directory, VOCABULARY - len(ADDED))
    save_model(directory, "llama", 1)
    tokenizer: Any = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens(ADDED)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(directory)
    properties = "option.rolling_batch=torch\noption.tool_call_parser=mistral\n"
    (directory / "serving.properties").write_text(properties, encoding="utf-8")
    return directory


@pytest.fixture(scope="module")
def tokenizer(directory: Path) -> HuggingFaceTokenizer:
    return HuggingFaceTokenizer.load(str(directory))


@pytest.fixture(scope="module")
def ids(tokenizer: HuggingFaceTokenizer) -> list[int]:
    """Return the ids of the added tokens and of the end-of-sequence token."""
    contents = [*(token.content for token in ADDED), "</s>"]
    pretrained: Any = tokenizer.pretrained  # typed for one text and for several at once
    return [int(pretrained.convert_tokens_to_ids(content)) for content in contents]


async def ask(server: RunningServer, ids: list[int], **fields: Any) -> dict[str, Any]:
    """Each of the tokens once, in this order."""
    bias = {str(token_id): 100 - 20 * place for place, token_id in enumerate(ids)}
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "temperature": 0,
        "max_tokens": 6,
        "logit_bias": bias,
        "no_repeat_ngram_size": 1,
        **fields,
    }
    answer = await server.post("/v1/chat/completions", body)
    assert answer.status == 200, answer.body
    choice: dict[str, Any] = answer.json()["choices"][0]
    return choice


async def test_parser_sees_its_markers_and_nobody_the_other_special_tokens(
    serve: Serve, directory: Path, ids: list[int]
) -> None:
    server = await serve(directory)
    choice = await ask(server, ids, tools=TOOLS)
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert [call["function"] for call in choice["message"]["tool_calls"]] == [
        {"name": "weather", "arguments": '{"city": "Paris"}'}
    ]
    without = await ask(server, ids)
    assert (without["message"]["content"], without["finish_reason"]) == (CALL, "stop")
    alone = await ask(server, [ids[1], ids[0], ids[3]], tools=TOOLS)
    assert (alone["message"]["content"], alone["finish_reason"]) == ("", "stop")


async def test_special_tokens_that_the_client_asks_for(serve: Serve, directory: Path, ids: list[int]) -> None:
    server = await serve(directory)
    choice = await ask(server, ids, tools=TOOLS, skip_special_tokens=False)
    assert choice["message"]["content"] == "<|thinking|>"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    without = await ask(server, ids, skip_special_tokens=False, spaces_between_special_tokens=False)
    assert without["message"]["content"] == f"<|thinking|>[TOOL_CALLS]{CALL}"


def written(tokenizer: HuggingFaceTokenizer, ids: list[int], **options: Any) -> str:
    stream = TokenWriter(tokenizer, frozenset([1])).sequence([], **options)
    return "".join(token.text for token_id in ids for token in stream.push(token_id))


@pytest.mark.parametrize(
    ("markers", "options", "text"),
    [
        ((), {}, CALL),
        (("[TOOL_CALLS]",), {}, f"[TOOL_CALLS]{CALL}"),
        (("<|thinking|>[TOOL_CALLS]",), {}, f"<|thinking|>[TOOL_CALLS]{CALL}"),
        (("</s>",), {}, CALL),
        (("</s>",), {"show_end": True}, f"{CALL}</s>"),
        (("[TOOL_CALLS]",), {"skip_special_tokens": False}, f"<|thinking|> [TOOL_CALLS]{CALL}"),
    ],
)
def test_special_tokens_that_are_a_part_of_a_marker_are_written(
    tokenizer: HuggingFaceTokenizer, ids: list[int], markers: tuple[str, ...], options: dict[str, Any], text: str
) -> None:
    assert written(tokenizer, ids, markers=markers, **options) == text


def test_special_tokens_without_a_name_are_special_too(tokenizer: HuggingFaceTokenizer, ids: list[int]) -> None:
    assert tokenizer.special_ids == {0, 1, ids[0], ids[1]}
