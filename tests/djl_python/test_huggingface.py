"""The service over the torch engine and examples/hello, called as a model's own function calls it."""

import json
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from djl_python.huggingface import HuggingFaceService, ServiceFunctions
from djl_python.services.parsed_batch import ParsedBatch
from djl_python.test_model import create_concurrent_batch_request, create_json_request
from lmi_core.errors import AdapterNotFound, ConfigurationError, InvalidParameter
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.tiny_models import reference_model

HELLO = str(Path(__file__).parents[2] / "examples" / "hello")
QUESTION = "What is Deep Learning?"
ANSWER = "Deep Learning is a really cool field."
NAME = "What is your name?"
MY_NAME = "My name is Hello."


@pytest.fixture(scope="module")
def service() -> Iterator[HuggingFaceService]:
    found = HuggingFaceService()
    found.initialize(
        {"model_dir": HELLO, "batch_size": "4", "engine": "DeepSpeed", "device_map": "auto", "nothing": ""}
    )
    yield found
    assert found.engine is not None
    found.engine.stop()


def contents(output: Output) -> list[Any]:
    return [json.loads(value) for value in output.content.values]


def ask(service: HuggingFaceService, *bodies: object, **properties: str) -> Output:
    if len(bodies) == 1:
        inputs = create_json_request(bodies[0])
        inputs.properties |= properties
        return service.inference(inputs)
    return service.inference(create_concurrent_batch_request(bodies, serving_properties=properties))


def test_answer_is_the_prompt_and_what_comes_after_it(service: HuggingFaceService) -> None:
    output = ask(service, {"inputs": QUESTION})
    assert (output.code, output.content_type) == (200, "application/json")
    assert contents(output) == [[{"generated_text": QUESTION + ANSWER}]]


def test_parameters(service: HuggingFaceService, caplog: pytest.LogCaptureFixture) -> None:
    parameters = {"max_new_tokens": 2, "return_full_text": False, "use_cache": True, "do_sample": False}
    for _ in range(2):
        assert contents(ask(service, {"inputs": NAME, "parameters": parameters})) == [[{"generated_text": "My name"}]]
    dropped = [record.message for record in caplog.records if "use_cache" in record.message]
    assert dropped == [
        "model hello: the request parameter `use_cache` is unknown and is ignored. (Logged once; "
        "option.strict_parameters=true refuses such requests.)"
    ]
    seeded = {"do_sample": True, "seed": "7", "temperature": 2.0, "max_new_tokens": 8}
    answers = [contents(ask(service, {"inputs": NAME, "parameters": seeded})) for _ in range(2)]
    assert answers[0] == answers[1]


def test_parameter_whose_loss_would_change_the_answer_is_an_error(service: HuggingFaceService) -> None:
    for parameters, error in [
        (
            {"lora_name": "german"},
            "`lora_name` is not a parameter of this request: name an adapter in the body's `adapters`",
        ),
        ({"stop": True}, "`stop` is not a field of the torch backend's parameters"),
        ({"tools": [{"type": "function"}]}, "`tools` cannot be given to a model function's service"),
        ({"images": ["data:"]}, "`images` cannot be given to a model function's service"),
    ]:
        output = ask(service, {"inputs": NAME, "parameters": parameters})
        assert output.code == 424
        assert error in contents(output)[0]["error"]
    assert ask(service, {"inputs": NAME, "parameters": {"tools": [], "watermark": False}}).code == 200
    with pytest.raises(InvalidParameter, match="`adapters` must name one adapter"):
        service.hf_pipeline(NAME, adapters=["german", "french"])


def test_strict_parameters_refuse_unknown_ones(service: HuggingFaceService, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.engine is not None
    strict = service.engine.options.model_copy(update={"strict_parameters": True})
    monkeypatch.setattr(service.engine, "options", strict)
    (failed,) = contents(ask(service, {"inputs": NAME, "parameters": {"use_cache": True}}))
    assert failed["error"] == "`use_cache` is not a field of the torch backend's parameters."
    assert ask(service, {"inputs": NAME, "parameters": {"use_cache": None}}).code == 200


def test_names_of_transformers_and_of_tgi(service: HuggingFaceService) -> None:
    assert service.engine is not None
    length = len(service.engine.backend.tokenizer.encode(NAME)) + 2
    assert service.hf_pipeline(NAME, max_length=length, return_full_text=False) == [{"generated_text": "My name"}]
    assert service.hf_pipeline([NAME], stop=" is", return_full_text=False) == [{"generated_text": "My name"}]
    with pytest.raises(InvalidParameter, match="`num_return_sequences` must be 1"):
        service.hf_pipeline(NAME, num_return_sequences=2)


def test_batch_of_requests_each_with_its_own_parameters(service: HuggingFaceService) -> None:
    one = {"inputs": [QUESTION, NAME]}
    two = {"inputs": NAME, "parameters": {"max_new_tokens": 1}}
    output = ask(service, one, two)
    assert output.content.keys == ["batch_000.data", "batch_001.data"]
    assert contents(output) == [
        [{"generated_text": QUESTION + ANSWER}, {"generated_text": NAME + MY_NAME}],
        [{"generated_text": NAME + "My"}],
    ]


def test_error_of_one_request_of_a_batch_is_its_alone(service: HuggingFaceService) -> None:
    output = ask(service, {"inputs": NAME, "parameters": {"max_new_tokens": 0}}, {"inputs": NAME})
    failed, answered = contents(output)
    error = "`max_new_tokens` must be greater than or equal to 1. Given: 0"
    assert failed == {"code": 424, "message": "prediction failure", "error": error}
    assert answered == [{"generated_text": NAME + MY_NAME}]


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (
            {"question": NAME},
            "`inputs` must be a string, or a list of strings. Given: {'question': 'What is your name?'}",
        ),
        ({"inputs": [NAME, 7]}, "`inputs` must be a string, or a list of strings. Given: 7"),
        ({"inputs": []}, "`inputs` must contain at least one prompt. Given: none"),
        ({"inputs": ""}, "`inputs` must contain at least one token. Given: 0"),
        ({"inputs": NAME, "parameters": [1]}, "`parameters` must be an object. Given: [1]"),
        ({"inputs": NAME, "parameters": {"max_length": []}}, "`max_length` must be an integer. Given: []"),
        ({"inputs": NAME, "parameters": {"seed": "x"}}, "`seed` must be an integer. Given: 'x'"),
        ({"inputs": NAME, "adapters": "german"}, "Adapter german is not registered"),
        ({"messages": [{"role": "user", "content": NAME}]}, "chats require rolling batch or batch_size=1"),
    ],
)
def test_request_that_is_wrong_is_an_error(service: HuggingFaceService, body: object, error: str) -> None:
    output = ask(service, body)
    assert output.code == 424
    assert contents(output)[0]["error"].endswith(error)


def test_body_that_is_no_json(service: HuggingFaceService) -> None:
    inputs = Input()
    inputs.content.add("data", b"{")
    output = service.inference(inputs)
    assert output.code == 424
    assert contents(output)[0]["error"].startswith("Input Parsing failed.")


def test_other_content_types(service: HuggingFaceService) -> None:
    inputs = Input()
    inputs.properties = {"Content-Type": "text/plain", "Accept": "text/csv"}
    inputs.content.add("data", NAME.encode())
    output = service.inference(inputs)
    assert (output.content_type, output.content.value_at(0)) == (
        "text/csv",
        f"generated_text\r\n{NAME}{MY_NAME}\r\n".encode(),
    )


def test_stream_of_lines(service: HuggingFaceService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        service, "hf_configs", service.hf_configs.model_copy(update={"enable_streaming": "huggingface"})
    )
    output = ask(service, {"inputs": [NAME, QUESTION]})
    assert (output.content_type, output.stream_content is None) == ("application/jsonlines", False)
    assert isinstance(output.stream_content, Iterator)
    lines = list(output.stream_content)
    assert ["".join(texts) for texts in zip(*lines, strict=True)] == [MY_NAME, ANSWER]
    assert len(lines) > 10
    assert ask(service, {"inputs": NAME}, {"inputs": NAME}).code == 424


def test_reading_of_ones_own_has_every_form_that_files_have(
    service: HuggingFaceService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_argument(self: HuggingFaceService, inputs: Input) -> ParsedBatch:
        return [NAME, QUESTION], [1, 1], [{"max_new_tokens": 1}, {}], {}, inputs.get_batches()

    def three_arguments(self: HuggingFaceService, inputs: Input, tokenizer: Any, output_formatter: Any) -> ParsedBatch:
        assert tokenizer is self.tokenizer
        parameters = {"max_new_tokens": 1, "output_formatter": output_formatter, "stream": False}
        return [NAME], [0, 1], [parameters], {0: "wrong"}, inputs.get_batches()

    def sizes_without_errors(self: HuggingFaceService, inputs: Input) -> ParsedBatch:
        return [NAME], [1], {"max_new_tokens": 1}, {0: "wrong"}, inputs.get_batches()

    two: tuple[object, object] = ({}, {})
    monkeypatch.setattr(service, "parse_input", types.MethodType(one_argument, service), raising=False)
    assert contents(ask(service, *two)) == [
        [{"generated_text": NAME + "My"}],
        [{"generated_text": QUESTION + ANSWER}],
    ]
    for form in (three_arguments, sizes_without_errors):
        monkeypatch.setattr(service, "parse_input", types.MethodType(form, service), raising=False)
        failed, answered = contents(ask(service, *two))
        assert (failed["error"], answered) == ("wrong", [{"generated_text": NAME + "My"}])


def test_what_files_read_of_a_service(service: HuggingFaceService) -> None:
    assert service.initialized
    assert service.hf_configs.model_id_or_path == HELLO
    assert (service.hf_configs.rolling_batch.value, service.hf_configs.batch_size) == ("disable", 4)
    assert service.tokenizer.decode(service.tokenizer.encode(NAME), skip_special_tokens=True) == NAME
    assert service.model_config.architectures == ["LlamaForCausalLM"]
    assert service.model.config.vocab_size == len(service.tokenizer)
    assert service.parse_stop_sequence_input('["<User>", "See you later"]') == ["<User>", "See you later"]
    with pytest.raises(AdapterNotFound):
        service.remove_lora("german")


def test_service_that_is_not_initialized() -> None:
    with pytest.raises(RuntimeError, match="call initialize"):
        HuggingFaceService().hf_pipeline("x")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"model_dir": "/nowhere"}, "contains no config.json"),
        ({"model_dir": HELLO, "max_rolling_batch_size": "none"}, "the property max_rolling_batch_size"),
        ({"model_dir": HELLO, "rolling_batch": "nonsense"}, "nonsense"),
    ],
)
def test_model_that_cannot_be_loaded(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        HuggingFaceService().initialize(properties)


def test_adapters_come_and_go(service: HuggingFaceService, tmp_path: Path) -> None:
    save_adapter(tmp_path / "french", reference_model(Path(HELLO)), 0)
    functions = ServiceFunctions(service)
    adapter = Input()
    adapter.properties = {"name": "french", "src": str(tmp_path / "french")}
    body = {"inputs": NAME, "adapters": "french"}
    assert functions.register_adapter(adapter).code == 200
    answer = functions.handle(create_json_request(body))
    assert answer is not None
    assert contents(answer)[0][0]["generated_text"] != NAME + MY_NAME
    assert contents(ask(service, {"inputs": NAME})) == [[{"generated_text": NAME + MY_NAME}]]
    assert functions.update_adapter(adapter).code == 200
    functions.unregister_adapter(adapter)
    assert ask(service, body).code == 424
    with pytest.raises(ValueError, match="an adapter needs a `name` and a folder as `src`"):
        functions.register_adapter(Input())
