"""Beam search and a draft model, as options and parameters of a served model."""

import shutil
from pathlib import Path

import pytest

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from tests.conftest import Serve
from tests.plugins.torch_engine.beams.test_search import expected
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import reference_ids

PROMPT = "Hello world"
COUNT = 8


@pytest.fixture
def directory(tmp_path: Path, model_directory: ModelDirectory) -> Path:
    directory = tmp_path / "model"
    shutil.copytree(model_directory("llama"), directory)
    shutil.copytree(model_directory("llama"), directory / "draft")
    options = "option.rolling_batch=torch\noption.speculative_draft_model=draft\noption.speculative_length=3\n"
    (directory / "serving.properties").write_text(options)
    return directory


async def test_beams_and_a_draft_model(
    directory: Path, serve: Serve, reference: ReferenceModel, tokenizer: HuggingFaceTokenizer
) -> None:
    server = await serve(directory)
    prompt_ids = tokenizer.encode(PROMPT)
    parameters: dict[str, object] = {
        "num_beams": 3,
        "length_penalty": 0.5,
        "early_stopping": True,
        "max_new_tokens": COUNT,
    }
    payload: dict[str, object] = {"inputs": PROMPT, "parameters": {**parameters, "details": True}}
    answer = (await server.post("/invocations", payload)).json()
    best, *others = expected(reference("llama"), prompt_ids, COUNT, 3, length_penalty=0.5, early_stopping=True)
    details = answer["details"]
    assert [token["id"] for token in details["tokens"]] == best
    assert answer["generated_text"] == "".join(token["text"] for token in details["tokens"])
    assert [[token["id"] for token in each["tokens"]] for each in details["best_of_sequences"]] == others
    assert {each["finish_reason"] for each in [details, *details["best_of_sequences"]]} == {"length"}

    refused = await server.post("/invocations", {**payload, "stream": True})
    assert (refused.status, "num_beams" in refused.json_lines()[0]["error"]) == (424, True)

    payload = {"inputs": PROMPT, "parameters": {"max_new_tokens": COUNT, "details": True}, "stream": True}
    lines = (await server.post("/invocations", payload)).json_lines()
    assert [line["token"]["id"] for line in lines] == reference_ids(reference("llama"), prompt_ids, COUNT)
    assert lines[-1]["details"]["generated_tokens"] == COUNT
