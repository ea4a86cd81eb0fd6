"""Ollama's routes that list and describe models, and those that change them, which is not supported."""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import orjson
from pydantic import BaseModel, ConfigDict, Field

from lmi_core.calls.access import Access
from lmi_core.calls.answer import json_answer
from lmi_core.errors import InvalidPayload, LmiError, ModelNotFound
from lmi_core.handler import Answer, AnswerForm, Call, Route, inquiry
from lmi_core.host.devices import CPU, visible_gpus
from lmi_core.host.pauses import with_pauses
from lmi_core.payloads.tolerant_payload import TolerantPayload, take_known
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_core.serving.capabilities import Capabilities, chat_template, known_capabilities
from lmi_core.serving_runtime import ServingRuntime
from lmi_handlers.answers.openai import ServerVersion
from lmi_handlers.ollama.answers import GREETING, LINES, PULLED, REFUSED, OllamaProcesses, OllamaShown, OllamaTags
from lmi_handlers.ollama.files import ModelFiles, human_number, read_files
from lmi_handlers.ollama.formatters import format_time
from lmi_handlers.ollama.names import served_name, with_tag

API_VERSION = "0.12.11"  # the version of Ollama's API that this server implements; clients use it to detect features
NEVER = "9999-12-31T23:59:59Z"  # the time at which a model is unloaded
DIRECTORIES = "models are served from the directories given to `lmi serve`"
FORBIDDEN = 403
AT_ONCE = 100  # models, described in a few milliseconds before requests get a turn
# From names in a GGUF file to the corresponding members of config.json.
CONFIGURATION_NAMES: Mapping[str, str] = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "vocab_size": "vocab_size",
}

# Clients ask for both repeatedly.
_files_of: WeakKeyDictionary[ServingRuntime[Any], ModelFiles] = WeakKeyDictionary()
_capabilities_of: WeakKeyDictionary[ServingRuntime[Any], Capabilities] = WeakKeyDictionary()


class NamedModel(TolerantPayload):
    """A request about one model, by either name of the field."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "model"}]})

    model: str | None = Field(None, description="A model of `GET /api/tags`.")
    name: str | None = Field(None, description="The older name of `model`.")

    @property
    def required_name(self) -> str:
        """The model's name. Raise InvalidPayload without one."""
        name = self.model or self.name
        if not name:
            raise InvalidPayload("`model` is required")
        return name


class ShowRequest(NamedModel):
    verbose: bool | None = Field(None, description="Ignored: tensors are not listed.")


async def root(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer the request with which Ollama's clients check for a server."""
    return Answer(200, "text/plain; charset=utf-8", b"Ollama is running")


async def show_version(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"version": API_VERSION})


async def tags(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with every name of every model, and the adapters that can be named instead."""
    listed = [await _tag(model, name) async for model, name in with_pauses(_all(dispatcher), AT_ONCE)]
    return json_answer({"models": listed})


async def running(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the models that accept requests now; they stay loaded while the server runs."""
    found: list[dict[str, Any]] = []
    gpus = visible_gpus()
    async for model, name in with_pauses(_all(dispatcher), AT_ONCE):
        try:
            await model.health()
        except LmiError:
            continue
        listed = await _describe(model, name)
        del listed["modified_at"]
        length = model.backend.max_length if model.generates else 0
        in_vram = listed["size"] if gpus and CPU not in model.server.devices else 0
        found.append(listed | {"expires_at": NEVER, "size_vram": in_vram, "context_length": length})
    return json_answer({"models": found})


async def show(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer with the facts about one model. Raise ModelNotFound if it is not served."""
    payload, ignored = take_known(call.json_object(), ShowRequest, strict=False)
    name = served_name(payload.required_name, dispatcher)
    model = dispatcher.find_with_adapters(name)
    await model.health()
    files = await _files(model)
    template = chat_template(model) if model.generates else None
    known = known_capabilities(model)
    content: dict[str, Any] = {
        "modelfile": f"# Served from a model directory\nFROM {with_tag(name)}\n",
        "template": template or "",
        "details": _details(model, name, files),
        "model_info": _information(model, files),
        "capabilities": [] if known is None else _capability_names(known),
        "modified_at": format_time(_modified(model, files)),
    }
    return json_answer(content, ignored=ignored)


def _all(dispatcher: ServedModels) -> list[tuple[ManagedModel, str]]:
    models = dispatcher.models.values()
    return [(model, name) for model in models for name in (*model.names, *model.adapter_names)]


async def _describe(model: ManagedModel, name: str) -> dict[str, Any]:
    own = files = await _files(model)
    if name not in model.names:
        folder, own = model.adapters.folders.get(name), ModelFiles()
        if isinstance(folder, Path) and folder.is_dir():
            own = await asyncio.to_thread(read_files, folder)
    return {
        "name": with_tag(name),
        "model": with_tag(name),
        "modified_at": format_time(_modified(model, own)),
        "size": own.size,
        "digest": own.digest or hashlib.sha256(f"{model.name}\0{model.fingerprint}".encode()).hexdigest(),
        "details": _details(model, name, files),
    }


async def _tag(model: ManagedModel, name: str) -> dict[str, Any]:
    """Return the list's entry, with the capabilities and sizes that only a loaded model has."""
    listed = await _describe(model, name)
    known = _capabilities_of.get(model.runtime) or known_capabilities(model)
    if known is None:
        return listed
    _capabilities_of[model.runtime] = known
    width = (await _files(model)).text_configuration.get("hidden_size")
    details = {"context_length": model.backend.max_length, "embedding_length": width}
    listed["details"] |= {member: value for member, value in details.items() if isinstance(value, int)}
    return listed | {"capabilities": _capability_names(known)}


async def _files(model: ManagedModel) -> ModelFiles:
    """Return the facts about a model from its files, which are read once for each runtime that loads them."""
    runtime = model.runtime
    known = _files_of.get(runtime)
    if known is None:
        folder = model.files
        if folder is None:
            return ModelFiles()
        known = _files_of[runtime] = await asyncio.to_thread(read_files, folder)
    return known


def _modified(model: ManagedModel, files: ModelFiles) -> float:
    return min(files.modified, time.time()) if files.modified is not None else float(model.created)


def _details(model: ManagedModel, name: str, files: ModelFiles) -> dict[str, Any]:
    family = files.architecture
    count = files.num_parameters
    return {
        "parent_model": "" if name in model.names else with_tag(model.names[0]),
        "format": files.format,
        "family": family,
        "families": [family] if family else [],
        "parameter_size": human_number(count) if count is not None else "",
        "quantization_level": files.quantization,
    }


def _information(model: ManagedModel, files: ModelFiles) -> dict[str, Any]:
    """Return the known members of a GGUF file's header."""
    family = files.architecture or model.runtime_name
    information: dict[str, Any] = {"general.architecture": family}
    if files.num_parameters is not None:
        information["general.parameter_count"] = files.num_parameters
    if model.generates:
        information[f"{family}.context_length"] = model.backend.max_length
    given = files.text_configuration
    return information | {
        f"{family}.{name}": given[ours]
        for name, ours in CONFIGURATION_NAMES.items()
        if isinstance(given.get(ours), int)
    }


def _capability_names(known: Capabilities) -> list[str]:
    """Return Ollama's names of capabilities."""
    can = {
        "completion": known.completion,
        "tools": known.tools,
        "insert": known.insert,
        "vision": known.images > 0,
        "embedding": known.embeddings,
        "thinking": known.reasoning,
    }
    return [name for name, holds in can.items() if holds]


class CopyRequest(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"source": "model", "destination": "other"}]})

    source: str | None = Field(None, description="The model to copy.")
    destination: str | None = Field(None, description="The name of the copy.")


class PullRequest(NamedModel):
    stream: bool | None = Field(None, description="Return a line for each step. Default: true.")
    insecure: bool | None = Field(None, description="Ignored: nothing is downloaded.")


async def pull(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer that a served model exists, for clients that pull first. Raise ModelNotFound for others."""
    payload, ignored = take_known(call.json_object(), PullRequest, strict=False)
    try:
        served_name(payload.required_name, dispatcher)
    except ModelNotFound as error:
        raise ModelNotFound(f"{error.message}: this server does not download models; {DIRECTORIES}") from None
    if payload.stream is False:
        return json_answer({"status": "success"}, ignored=ignored)
    lines = [orjson.dumps({"status": status}) + b"\n" for status in ("pulling manifest", "success")]
    return Answer(200, LINES, b"".join(lines), ignored)


def _refusing(path: str, method: str, what: str, *payloads: type[BaseModel]) -> Route:
    async def refuse(call: Call, dispatcher: ServedModels) -> Answer:
        return json_answer({"error": f"this server {what}: {DIRECTORIES}"}, FORBIDDEN)

    return Route(path, method, refuse, "Refused", payloads, guarded=False, access=Access.CLIENTS, answers=REFUSED)


ROUTES = (
    Route(
        "/", "GET", root, "Tell Ollama's clients that a server is running", access=Access.EVERYBODY, answers=GREETING
    ),
    Route("/api/version", "GET", show_version, "The version of Ollama's API", answers=(AnswerForm(ServerVersion),)),
    Route("/api/tags", "GET", tags, "The models that are served", answers=(AnswerForm(OllamaTags),)),
    Route("/api/ps", "GET", running, "The models that are loaded", answers=(AnswerForm(OllamaProcesses),)),
    inquiry("/api/show", show, "The details of a model", (ShowRequest,), AnswerForm(OllamaShown)),
    # Not protected, because they change nothing
    inquiry("/api/pull", pull, "Succeeds for a model that is served", (PullRequest,), *PULLED),
    _refusing("/api/push", "POST", "uploads no models", NamedModel),
    _refusing("/api/create", "POST", "creates no models", NamedModel),
    _refusing("/api/copy", "POST", "copies no models", CopyRequest),
    _refusing("/api/delete", "DELETE", "deletes no models"),
)
