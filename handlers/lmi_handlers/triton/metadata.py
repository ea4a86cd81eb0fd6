"""Triton's routes for health, metadata, the repository index and statistics."""

from importlib.metadata import version
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError, ModelNotFound, ModelNotReady
from lmi_core.generation.tensors import TensorBackend, TensorSpecification, TensorType
from lmi_core.handler import Answer, Call
from lmi_core.metrics.model_metrics import Durations
from lmi_core.payloads.payload import read_payload
from lmi_core.served_model import ManagedModel, ServedModel, ServedModels
from lmi_handlers.triton.generate import version_of
from lmi_handlers.triton.infer import TEXT_OUTPUTS, text_inputs
from lmi_handlers.triton.payload import NAMES

EXTENSIONS = ["binary_tensor_data", "generate", "model_configuration", "parameters", "statistics"]
CONFIGURATION_TYPES: dict[TensorType, str] = {"BYTES": "TYPE_STRING"}  # other types only gain the prefix TYPE_


def check_version(call: Call, model: ServedModel) -> None:
    """Raise ModelNotFound if the path names an unknown version of the model."""
    given = call.path_parameters.get("version")
    if given not in (version_of(model), None):
        raise _unknown_version(model, given)


def find_version(name: str, given: str | None, dispatcher: ServedModels) -> ManagedModel:
    """Return a version of a model, by default the default version. Raise ModelNotFound if it does not exist."""
    default, *others = dispatcher.versions(name)
    for model in (default, *others):
        if given in (version_of(model), None):
            return model
    raise _unknown_version(default, given)


def _unknown_version(model: ServedModel, given: str | None) -> ModelNotFound:
    return ModelNotFound(f"model `{model.name}` has no version {given}")


async def server_metadata(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer(server_description())


def server_description() -> dict[str, Any]:
    return {"name": "lmi-handlers", "version": version("lmi-handlers"), "extensions": EXTENSIONS}


async def live(call: Call, dispatcher: ServedModels) -> Answer:
    return Answer(200, "application/json", b"")


async def ready(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer 200 if all models accept requests. Raise ModelNotReady or BackendUnhealthy otherwise."""
    await dispatcher.health()
    return Answer(200, "application/json", b"")


async def model_ready(call: Call, dispatcher: ServedModels) -> Answer:
    """Answer 200 if the model accepts requests. Raise ModelNotFound, ModelNotReady or BackendUnhealthy otherwise."""
    await path_model(call, dispatcher).health()
    return Answer(200, "application/json", b"")


async def model_metadata(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer(model_description(path_model(call, dispatcher), dispatcher))


def model_description(model: ManagedModel, dispatcher: ServedModels) -> dict[str, Any]:
    """Return the protocol's description of a model."""
    inputs, outputs = _tensors(model)
    return {
        "name": model.name,
        "versions": [version_of(each) for each in dispatcher.versions(model.name)],
        "platform": model.runtime_name,
        "inputs": [_describe(each) for each in inputs],
        "outputs": [_describe(each) for each in outputs],
    }


async def model_configuration(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer(configuration(path_model(call, dispatcher)))


def configuration(model: ManagedModel) -> dict[str, Any]:
    """Return a Triton model configuration of the model."""
    inputs, outputs = _tensors(model)
    return {
        "name": model.name,
        "platform": "",
        "backend": model.runtime_name,
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": 0,
        "input": [_configure(each) | {"optional": each.optional} for each in inputs],
        "output": [_configure(each) for each in outputs],
        "model_transaction_policy": {"decoupled": bool(outputs)},
    }


def path_model(call: Call, dispatcher: ServedModels) -> ManagedModel:
    """Return the model in the path. Raise ModelNotFound for an unknown model or version."""
    return find_version(call.path_parameters["model"], call.path_parameters.get("version"), dispatcher)


def _tensors(model: ManagedModel) -> tuple[tuple[TensorSpecification, ...], tuple[TensorSpecification, ...]]:
    """Return the model's input and output tensors; both are empty for a model function."""
    if not model.generates:
        return (), ()
    backend = model.backend
    if isinstance(backend, TensorBackend):
        return backend.tensor_inputs, backend.tensor_outputs
    fields = backend.parameters_type.model_fields
    return text_inputs(lambda name: NAMES.get(name, name) in fields), TEXT_OUTPUTS


def _describe(tensor: TensorSpecification) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.dtype, "shape": tensor.shape}


def _configure(tensor: TensorSpecification) -> dict[str, Any]:
    data_type = CONFIGURATION_TYPES.get(tensor.dtype, f"TYPE_{tensor.dtype}")
    return {"name": tensor.name, "data_type": data_type, "dims": tensor.shape}


class IndexPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ready": True}]})

    ready: bool = Field(False, description="List only models that accept requests now.")


async def repository_index(call: Call, dispatcher: ServedModels) -> Answer:
    payload = read_payload(call.body, IndexPayload) if call.body.strip() else IndexPayload()
    return json_answer(await index(dispatcher, ready_only=payload.ready))


async def index(dispatcher: ServedModels, *, ready_only: bool) -> list[dict[str, str]]:
    """Return the models with Triton's names of their states."""
    found: list[dict[str, str]] = []
    for model in every_version(dispatcher):
        state, reason = "READY", ""
        try:
            await model.health()
        except ModelNotReady as error:
            state, reason = "LOADING", error.message
        except LmiError as error:
            state, reason = "UNAVAILABLE", error.message
        if state == "READY" or not ready_only:
            found.append({"name": model.name, "version": version_of(model), "state": state, "reason": reason})
    return found


def every_version(dispatcher: ServedModels) -> list[ManagedModel]:
    """Return every served version of every model."""
    return [version for name in dispatcher.models for version in dispatcher.versions(name)]


async def all_statistics(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"model_stats": [statistics(model) for model in every_version(dispatcher)]})


async def model_statistics(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"model_stats": [statistics(path_model(call, dispatcher))]})


def statistics(model: ManagedModel) -> dict[str, Any]:
    """Return the model's statistics by Triton's names; unmeasured ones have a count of 0.

    Each prompt counts as an execution, because rolling batches are not executed one by one.
    """
    found = model.statistics
    measured = {"success": found.succeeded, "fail": found.failed}
    others = ("queue", "compute_input", "compute_infer", "compute_output", "cache_hit", "cache_miss")
    return {
        "name": model.name,
        "version": version_of(model),
        "last_inference": found.last_call,
        "inference_count": found.num_prompts,
        "execution_count": found.num_prompts,
        "inference_stats": {
            name: {"count": each.count, "ns": each.nanoseconds}
            for name, each in (measured | dict.fromkeys(others, Durations())).items()
        },
        "batch_stats": [],
    }
