"""Formatters of model.py that call LMI's own, and other names that published files import."""

from typing import Any

import orjson
import pytest

from djl_python.chat_completions.chat_properties import Message
from djl_python.huggingface import StopWord
from djl_python.utils import InputFormatConfigs, ParsedInput
from tests.conftest import SCRIPTED, ModelDirectory, Serve

SCRIPT = """
from djl_python.output_formatter import TextGenerationOutput, {form}, output_formatter

@output_formatter
def mine(request_output: TextGenerationOutput) -> str:
    return {form}(request_output).replace("Deep", "DEEP")
"""
DETAILS = {"details": True, "max_new_tokens": 2}


@pytest.mark.parametrize("properties", ["", "option.tgi_compat=true\n"])
@pytest.mark.parametrize("parameters", [{"max_new_tokens": 2}, DETAILS, DETAILS | {"decoder_input_details": True}])
async def test_lmis_own_answers(
    serve: Serve, model_dir: ModelDirectory, properties: str, parameters: dict[str, Any]
) -> None:
    files = {"serving.properties": SCRIPTED + properties}
    plain = await serve(model_dir(files, "plain"))
    own = await serve(model_dir({**files, "model.py": SCRIPT.format(form="_json_output_formatter")}, "own"))
    body = {"inputs": "What is Deep?", "parameters": {"details": False} | parameters}
    expected, found = [(await server.post("/invocations", body)).body for server in (plain, own)]
    wanted, got = orjson.loads(expected.replace(b'"Deep', b'"DEEP')), orjson.loads(found)
    if properties:
        (wanted,), (got,) = wanted, got
    assert got["generated_text"] == wanted["generated_text"] == "DEEP Learning"
    assert got.get("details", {}).get("generated_tokens") == wanted.get("details", {}).get("generated_tokens")
    assert ("prefill" in got.get("details", {})) == ("decoder_input_details" in parameters)


@pytest.mark.parametrize("properties", ["", "option.tgi_compat=true\n"])
@pytest.mark.parametrize("parameters", [{}, {"details": True, "top_n_tokens": 1, "decoder_input_details": True}])
async def test_lmis_own_answer_has_the_other_sequences(
    serve: Serve, model_dir: ModelDirectory, properties: str, parameters: dict[str, Any]
) -> None:
    script = SCRIPT.format(form="_json_output_formatter")
    server = await serve(model_dir({"serving.properties": SCRIPTED + properties, "model.py": script}))
    body = {"inputs": "What?", "parameters": {"n": 2, "max_new_tokens": 1, **parameters}}
    answer = (await server.post("/invocations", body)).json()
    details = (answer[0] if properties else answer)["details"]
    (other,) = details.pop("best_of_sequences")
    assert set(other) == set(details) - {"inputs"} | {"generated_text"}
    assert (other["generated_text"], details["inputs"]) == ("DEEP", "What?")
    assert other["tokens"][0]["logprob" if properties else "log_prob"] == -0.5


async def test_lmis_own_lines(serve: Serve, model_dir: ModelDirectory) -> None:
    script = SCRIPT.format(form="_jsonlines_output_formatter")
    server = await serve(model_dir({"serving.properties": SCRIPTED, "model.py": script}))
    body = {"inputs": "What?", "parameters": DETAILS, "stream": True}
    first, last = (await server.post("/invocations", body)).json_lines()
    assert first["token"]["text"] == "DEEP"
    assert last["generated_text"] == "DEEP Learning"
    assert last["details"] == {"finish_reason": "length", "generated_tokens": 2, "inputs": "What?"}


def test_other_names() -> None:
    class Letters:
        def decode(self, ids: list[int]) -> str:
            return "".join(map(chr, ids))

    criterion = StopWord(Letters(), "end")
    assert criterion([[*map(ord, "the end")]], None)
    assert not criterion([[*map(ord, "end of it")]], None)
    assert Message(role="user", content="Hi").model_dump() == {"role": "user", "content": "Hi"}
    assert InputFormatConfigs(is_rolling_batch=True).tokenizer is None
    assert ParsedInput().errors == {}
