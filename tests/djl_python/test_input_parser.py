import json
from types import SimpleNamespace
from typing import Any

import pytest

from djl_python.chat_completions.chat_properties import ChatProperties
from djl_python.chat_completions.chat_utils import is_chat_completions_request, parse_chat_completions_request
from djl_python.input_parser import format_input, parse_input_with_formatter
from djl_python.properties_manager.hf_properties import HuggingFaceProperties
from djl_python.properties_manager.properties import (
    RollingBatchEnum,
    StreamingEnum,
    is_rolling_batch_enabled,
    is_streaming_enabled,
)
from djl_python.request_io import TextInput
from djl_python.test_model import create_concurrent_batch_request, create_json_request
from djl_python.utils import IdCounter, is_beam_search, is_best_of, wait_till_generation_finished
from lmi_core.script.djl_names.inputs import Input

MESSAGES = [{"role": "user", "content": "Why?"}]
CHAT = {"messages": MESSAGES, "max_tokens": 7, "stop": "x", "logprobs": True, "top_logprobs": 2, "user": "me"}


class Templated:
    def apply_chat_template(self, messages: Any, tokenize: bool, add_generation_prompt: bool) -> str:
        assert (tokenize, add_generation_prompt) == (False, True)
        return "".join(f"<{each['role']}>{each['content']}" for each in messages)


def configs(**properties: Any) -> HuggingFaceProperties:
    return HuggingFaceProperties.model_validate(properties)


def test_lmis_schema() -> None:
    item = create_json_request({"inputs": "Why?", "parameters": {"top_k": 3}, "stream": True})
    rolling = format_input(item, is_rolling_batch=True)
    assert (rolling.input_text, rolling.parameters) == ("Why?", {"top_k": 3, "stream": True})
    dynamic = format_input(item)
    assert (dynamic.input_text, dynamic.parameters) == ("Why?", {"top_k": 3})


def test_batch_with_what_cannot_be_read() -> None:
    batch = create_concurrent_batch_request([{"inputs": "a"}, {"input": "b"}, {"inputs": "c"}])
    parsed = parse_input_with_formatter(batch, configs=configs(rolling_batch="auto", tgi_compat=True))
    assert [request.input_text for request in parsed.requests] == ["a", "c"]
    assert [request.id for request in parsed.requests] == [0, 2]
    assert parsed.requests[0].request_input.tgi_compat
    assert list(parsed.errors) == [1]
    assert parsed.errors[1].startswith("Input Parsing failed. Ensure that the request payload is valid. ")


def test_input_formatter_of_ones_own() -> None:
    def read(item: Input, **kwargs: Any) -> TextInput:
        return TextInput(input_text=item.get_as_json()["q"], parameters={"max_new_tokens": 1})

    batch = create_concurrent_batch_request([{"q": "a"}, {}])
    parsed = parse_input_with_formatter(batch, configs=configs(input_formatter=read, output_formatter="sse"))
    (request,) = parsed.requests
    assert request.parameters == {"max_new_tokens": 1, "output_formatter": "sse"}
    assert parsed.errors[1].endswith("Invalid Request Property: 'q'")


def test_seed_of_the_server_and_adapters() -> None:
    item = create_json_request({"inputs": "a", "adapters": ["x"]})
    item.content.add("seed", b"7")
    parsed = parse_input_with_formatter(item, configs=configs(), adapter_registry={"x": None})
    (request,) = parsed.requests
    assert (request.parameters["seed"], request.adapter) == ("7", ["x"])
    item.properties["adapter"] = "y"
    parsed = parse_input_with_formatter(item, configs=configs(), adapter_registry={"x": None})
    assert parsed.errors[0].endswith("Adapter y is not registered")


@pytest.mark.parametrize("place", ["adapter", "the query"])
def test_adapter_beside_the_body(place: str) -> None:
    def parse(body: dict[str, Any], name: str = "x") -> Any:
        item = create_json_request({"inputs": "a"} | body)
        if place == "the query":
            item.content.add("adapter", name.encode())
        else:
            item.properties[place] = name
        return parse_input_with_formatter(item, configs=configs(), adapter_registry={"x": None, "y": None})

    assert parse({}).requests[0].adapter == "x"
    assert parse({"adapters": ["x"]}).requests[0].adapter == ["x"]
    assert parse({}, "z").errors[0].endswith("Adapter z is not registered")
    assert parse({"adapters": "y"}).errors[0].endswith("one request names different adapters: 'y', 'x'")
    assert parse({"adapters": ""}).errors[0].endswith("one request names different adapters: '', 'x'")
    assert parse({"adapters": "y"}, "").requests[0].adapter == "y"


def test_headers_that_name_different_adapters() -> None:
    item = create_json_request({"inputs": "a"})
    item.properties["adapter"] = "x;y"  # what the server makes of them
    parsed = parse_input_with_formatter(item, configs=configs(), adapter_registry={"x": None, "y": None})
    assert parsed.errors[0].endswith("one request names different adapters: 'x', 'y'")


def test_tokens_of_a_request() -> None:
    (request,) = parse_input_with_formatter(create_json_request({"inputs": "a"}), configs=configs()).requests
    request.set_next_token("one")
    request.set_next_token("two", last_token=True, finish_reason="length")
    tokens = request.request_output.sequences[0].tokens
    assert [(token.text, token.request_id) for token in tokens] == [("one", request.id), ("two", request.id)]
    assert (request.is_last_token(), request.request_output.finished) == (True, True)


def test_chat() -> None:
    assert is_chat_completions_request(CHAT)
    assert not is_chat_completions_request({"inputs": "x"})
    prompt, parameters = parse_chat_completions_request({**CHAT, "stream": True}, True, Templated())
    assert prompt == "<user>Why?"
    expected = {"max_new_tokens": 7, "stop_sequences": ["x"], "logprobs": 2, "do_sample": True, "stream": True}
    assert parameters.items() >= {**expected, "details": True, "output_formatter": "jsonlines_chat"}.items()
    assert not parameters.keys() & {"messages", "user", "n", "model"}
    _, greedy = parse_chat_completions_request({"messages": MESSAGES, "temperature": 0}, True, Templated())
    assert (greedy["do_sample"], greedy["output_formatter"]) == (False, "json_chat")
    assert "logprobs" not in greedy


def test_chat_that_cannot_be_read() -> None:
    with pytest.raises(AttributeError, match="the tokenizer SimpleNamespace has no chat template"):
        parse_chat_completions_request(dict(CHAT), True, SimpleNamespace())
    with pytest.raises(ValueError, match="chats require rolling batch"):
        parse_chat_completions_request(dict(CHAT), False, Templated(), configs=configs(batch_size=4))
    with pytest.raises(ValueError, match="each message must have a `role` and a `content`"):
        ChatProperties(messages=[{"role": "user"}])
    with pytest.raises(ValueError, match="temperature"):
        ChatProperties(messages=MESSAGES, temperature=7)


def test_properties() -> None:
    found = configs(model_dir="/m", rolling_batch="LMI-Dist", enable_streaming="huggingface", own="x", batch_size="4")
    assert (found.model_id_or_path, found.batch_size, found.rolling_batch.value) == ("/m", 4, "lmi-dist")
    choices: list[str] = [RollingBatchEnum.lmidist, StreamingEnum.huggingface]
    assert [found.rolling_batch, found.enable_streaming] == choices
    assert json.loads(json.dumps(found.model_extra)) == {"own": "x"}
    assert (is_rolling_batch_enabled(found.rolling_batch), is_streaming_enabled(found.enable_streaming)) == (True, True)
    assert (is_rolling_batch_enabled(configs().rolling_batch), is_streaming_enabled(None)) == (False, False)


def test_helpers() -> None:
    counter = IdCounter()
    assert [counter.next_id(), counter.next_id(), counter.get_id()] == [0, 1, 2]
    counter.reset()
    assert counter.get_id() == 0
    assert (is_best_of({"best_of": 2}), is_best_of({}), is_beam_search({"num_beams": 3})) == (True, False, True)
    assert not wait_till_generation_finished({"n": 1})
