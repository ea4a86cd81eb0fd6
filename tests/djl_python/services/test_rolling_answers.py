"""A service with rolling batch over the scripted backend: a piece of each answer for each call."""

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from djl_python.huggingface import HuggingFaceService
from djl_python.output_formatter import TextGenerationOutput
from djl_python.tensorrt_llm import TRTLLMService
from djl_python.test_model import TestHandler, create_concurrent_batch_request, decode_encoded_output_binary
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output

WORDS = ["Deep", " Learning", " is", " a", " really", " cool", " field."]
TEXT = "".join(WORDS)
SCRIPTED = {"rolling_batch": "scripted"}
STREAM = {"inputs": "Why?", "stream": True}

Start = Callable[..., HuggingFaceService]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[HuggingFaceService] = []

    def initialized(**properties: str) -> HuggingFaceService:
        service = HuggingFaceService()
        service.initialize({**SCRIPTED, **properties})
        started.append(service)
        return service

    yield initialized
    for service in started:
        assert service.engine is not None
        service.engine.stop()


def call(service: HuggingFaceService, *bodies: object) -> tuple[Output, list[dict[str, str]]]:
    output = service.inference(create_concurrent_batch_request(bodies))
    return output, [decode_encoded_output_binary(value) for value in output.content.values]


def to_the_end(service: HuggingFaceService, body: object) -> str:
    text, last = "", False
    while not last:
        _, (fields,) = call(service, body)
        text += fields["data"]
        last = fields["last"] == "True"
    return text


def test_whole_answers_and_streams_of_one_batch(start: Start) -> None:
    service = start()
    service.tokenizer = SimpleNamespace(encode=str.split, apply_chat_template=lambda messages, **_: str(messages))
    module = ModuleType("handler")
    vars(module)["handle"] = service.inference
    handler = TestHandler(module)
    whole, stream, failed, chat = handler.inference_rolling_batch(
        [
            {"inputs": "Why?", "parameters": {"details": True}},
            STREAM,
            {"inputs": "Why?", "parameters": {"top_p": 7}},
            {"messages": [{"role": "user", "content": "Why?"}], "max_tokens": 3},
        ]
    ).values()
    assert json.loads(whole)["generated_text"] == TEXT
    assert json.loads(whole)["details"]["finish_reason"] == "eos_token"
    lines = [json.loads(line) for line in stream.splitlines()]
    assert [line["token"]["text"] for line in lines] == WORDS
    assert lines[-1]["generated_text"] == TEXT
    assert json.loads(failed) == {"error": "`top_p` must be less than or equal to 1. Given: 7"}
    assert json.loads(chat)["choices"][0]["message"]["content"] == "Deep Learning is"


def test_requests_join_and_leave_while_others_generate(start: Start) -> None:
    service = start(scripted_delay="0.01")
    _, (first,) = call(service, STREAM)
    assert first["last"] == "False"
    texts, seen = [first["data"], ""], 0
    bodies: list[object] = [{"inputs": ""}, STREAM]
    live = [0, 1]
    while live:
        output, chunks = call(service, *bodies)
        assert len(chunks) == len(live)
        assert output.properties["batch_0_Content-Type"] == "application/jsonlines"
        for place, fields in zip(list(live), chunks, strict=True):
            texts[place] += fields["data"]
            if fields["last"] == "True":
                live.remove(place)
                seen += 1
        bodies = [{"inputs": ""}] * len(live)
    assert seen == 2
    for text in texts:
        assert json.loads(text.splitlines()[-1])["generated_text"] == TEXT
    assert service.rolling_batch is not None
    assert service.rolling_batch.active == []


def test_error_of_a_request_comes_with_its_last_chunk(start: Start) -> None:
    service = start(scripted_delay="1")
    output, (wrong, several, good) = call(service, {"question": 1}, {"inputs": ["a", "b"]}, STREAM)
    assert (wrong["last"], wrong["code"], wrong["data"]) == ("True", "424", "")
    assert "must be a JSON object with the field `inputs`" in wrong["error"]
    assert several["error"] == "with rolling batch `inputs` must be one prompt. Given: 2"
    assert "error" not in good
    assert output.properties["batch_0_Content-Type"] == "application/json"
    assert service.rolling_batch is not None
    assert len(service.rolling_batch.active) == 1


def test_reset_forgets_what_is_unfinished(start: Start) -> None:
    service = start(scripted_delay="10")
    assert service.rolling_batch is not None
    call(service, STREAM)
    assert len(service.rolling_batch.active) == 1
    inputs = create_concurrent_batch_request([{"question": 1}])
    inputs.properties["reset_rollingbatch"] = "true"
    assert decode_encoded_output_binary(service.inference(inputs).content.value_at(0))["last"] == "True"
    assert service.rolling_batch.active == []


@pytest.mark.parametrize(
    ("properties", "body", "kind", "beginning"),
    [
        ({"tgi_compat": "true"}, {"inputs": "Why?"}, "application/json", '[{"generated_text"'),
        ({"tgi_compat": "true"}, STREAM, "text/event-stream", 'data: {"index":1,"token"'),
        ({"output_formatter": "sse"}, {"inputs": "Why?"}, "text/event-stream", 'data: {"token"'),
        ({"enable_streaming": "true"}, {"inputs": "Why?"}, "application/jsonlines", '{"token"'),
        ({}, {"inputs": "Why?", "parameters": {"output_formatter": "none"}}, "text/plain", "Deep Learning"),
    ],
)
def test_form_of_the_answer(start: Start, properties: dict[str, str], body: object, kind: str, beginning: str) -> None:
    service = start(**properties)
    output, (fields,) = call(service, body)
    assert output.properties["batch_0_Content-Type"].startswith(kind)
    text = fields["data"] + (to_the_end(service, {"inputs": ""}) if fields["last"] != "True" else "")
    assert text.startswith(beginning)


def test_output_formatter_of_ones_own(start: Start) -> None:
    def custom_output_formatter(request_output: TextGenerationOutput) -> str:
        token, *_ = request_output.sequences[request_output.best_sequence_index].get_next_token()
        assert token is not None
        return f"[{token.text}:{request_output.input.parameters['stream']}]"

    def parse(inputs: Input, tokenizer: Any = None, output_formatter: Any = None) -> Any:
        parameters = {"output_formatter": custom_output_formatter, "stream": True, "max_new_tokens": 2}
        return ["Why?"], [1], [parameters], {}, inputs.get_batches()

    service = start()
    vars(service)["parse_input"] = parse
    assert to_the_end(service, {}) == "[Deep:True][ Learning:True]"


def test_handler_of_sagemakers_template(monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = Path(__file__).parents[2] / "model_scripts"
    monkeypatch.chdir(scripts)
    monkeypatch.setattr(sys, "path", [*sys.path])
    handler = TestHandler("model.py", str(scripts / "sagemaker_template"))
    handler.serving_properties |= SCRIPTED
    assert handler.inference(Input()).code == 204
    assert json.loads(handler.inference_rolling_batch([{"inputs": "Why?"}])[0]) == {"generated_text": TEXT}


@pytest.mark.parametrize(
    ("given", "taken"), [({}, "trtllm"), ({"rolling_batch": "auto"}, "trtllm"), (SCRIPTED, "scripted")]
)
def test_service_of_tensorrt_llm_takes_its_backend(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], taken: str
) -> None:
    taken_in: list[Any] = []
    monkeypatch.setattr(HuggingFaceService, "initialize", lambda self, properties: taken_in.append(properties))
    TRTLLMService().initialize(given)
    assert taken_in == [{"rolling_batch": taken}]


OWN_FORMATTERS = """\
from djl_python.huggingface import HuggingFaceService
from djl_python.input_parser import input_formatter
from djl_python.output_formatter import TextGenerationOutput, output_formatter
from djl_python.request_io import TextInput

service = HuggingFaceService()


@input_formatter
def read(input_item, **kwargs):
    body = input_item.get_as_json()
    return TextInput(input_text=body["q"], parameters={"max_new_tokens": 2})


@output_formatter
def write(request_output: TextGenerationOutput) -> str:
    token, _, _ = request_output.sequences[request_output.best_sequence_index].get_next_token()
    return token.text.upper() + "."


def handle(inputs):
    if not service.initialized:
        service.initialize(inputs.get_properties())
    return None if inputs.is_empty() else service.inference(inputs)
"""


def test_formatters_beside_a_handle_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_formatters_model.py").write_text(OWN_FORMATTERS)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("own_formatters_model")
    handler = TestHandler(module, str(tmp_path))
    handler.serving_properties |= SCRIPTED
    assert handler.inference_rolling_batch([{"q": "Why?"}]) == {0: "DEEP. LEARNING."}
