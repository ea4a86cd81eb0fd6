"""Adapters of a model directory, chosen by request."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from tests.conftest import RunningServer, Serve
from tests.plugins.torch_engine.adapters.lora_adapters import merged_model, save_adapter
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import reference_ids

COUNT = 8
PROMPT = "Hello world"


@pytest.fixture(scope="module")
def directory(
    tmp_path_factory: pytest.TempPathFactory, model_directory: ModelDirectory, reference: ReferenceModel
) -> Path:
    directory = tmp_path_factory.mktemp("served") / "model"
    shutil.copytree(model_directory("llama"), directory)
    for seed, name in enumerate(("french", "german")):
        save_adapter(directory / "adapters" / name, reference("llama"), seed)
    return directory


@pytest.fixture(scope="module")
def texts(
    directory: Path, reference: ReferenceModel, tokenizer: HuggingFaceTokenizer, model_directory: ModelDirectory
) -> dict[str | None, str]:
    """Return the answers of the merged models."""
    models: dict[str | None, Any] = {None: reference("llama")}
    for name in ("french", "german"):
        models[name] = merged_model(model_directory("llama"), directory / "adapters" / name)
    prompt_ids = tokenizer.encode(PROMPT)
    generated = {name: reference_ids(model, prompt_ids, COUNT) for name, model in models.items()}
    decode: Any = tokenizer.pretrained.decode
    return {name: decode(token_ids, skip_special_tokens=True).rstrip("\ufffd") for name, token_ids in generated.items()}


async def ask(server: RunningServer, headers: Mapping[str, str], **fields: Any) -> Any:
    body = {"inputs": PROMPT, "parameters": {"max_new_tokens": COUNT}, **fields}
    answer = await server.post("/invocations", body, headers=dict(headers))
    return answer.status, answer.json()


async def test_one_for_each_request(serve: Serve, directory: Path, texts: dict[str | None, str]) -> None:
    server = await serve(directory)
    header = "X-Amzn-SageMaker-Adapter-Identifier"
    assert len(set(texts.values())) == 3
    for headers, fields, name in (
        ({}, {}, None),
        ({}, {"adapters": "french"}, "french"),
        ({}, {"adapters": ["german"]}, "german"),
        ({}, {"adapters": ""}, None),
        ({}, {"adapters": None}, None),
        ({header: "german"}, {}, "german"),
        ({header.lower(): "german"}, {"adapters": ["german"]}, "german"),
        ({"X-Amzn-SageMaker-Custom-Attributes": "trace=1;adapter=french"}, {}, "french"),
    ):
        status, answer = await ask(server, headers, **fields)
        assert (status, answer["generated_text"].rstrip("\ufffd")) == (200, texts[name])
    status, answer = await ask(server, {}, adapters="frensh")
    assert status == 424
    assert "there is no adapter `frensh`. Did you mean `french`? Known: french, german" in answer["error"]
    await server.model.backend.unload_adapter("french")
    assert list(server.model.backend.adapters) == ["german"]
    status, answer = await ask(server, {}, adapters="french")
    assert (status, answer["error"].split(",")[0]) == (424, "adapter `french` has weights")
    await server.model.backend.load_adapter("danish", directory / "adapters" / "french")
    assert (await ask(server, {}, adapters="danish"))[1]["generated_text"].rstrip("\ufffd") == texts["french"]


async def test_one_for_each_prompt(serve: Serve, directory: Path, texts: dict[str | None, str]) -> None:
    (directory / "serving.properties").write_text("option.rolling_batch=disable\n")
    server = await serve(directory)
    names = ["german", None, "french", ""]
    status, answers = await ask(server, {}, inputs=[PROMPT] * 4, adapters=names)
    assert status == 200
    generated = [answer["generated_text"].rstrip("\ufffd") for answer in answers]
    assert generated == [texts[name or None] for name in names]
    status, answer = await ask(server, {}, inputs=[PROMPT] * 3, adapters=["german", "french"])
    assert status == 424
    assert "`adapters` must name one adapter, or one for each of the prompts (3). Given: 2" in str(answer)
