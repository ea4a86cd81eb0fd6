"""Triton's routes for the repository index and the models' statistics."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from lmi_core.calls.answer import json_answer
from lmi_core.errors import LmiError, ModelNotReady
from lmi_core.handler import Answer, Call
from lmi_core.metrics.request_statistics import Durations
from lmi_core.payloads.payload import read_payload
from lmi_core.served_model import ManagedModel, ServedModels
from lmi_handlers.triton.generate import version_of
from lmi_handlers.triton.metadata import asked_model


class IndexPayload(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [{"ready": True}]})

    ready: bool = Field(False, description="List only models that accept requests now.")


async def repository_index(call: Call, dispatcher: ServedModels) -> Answer:
    payload = read_payload(call.body, IndexPayload) if call.body.strip() else IndexPayload()
    return json_answer(await index(dispatcher, ready_only=payload.ready))


async def index(dispatcher: ServedModels, *, ready_only: bool) -> list[dict[str, str]]:
    """Return the models with Triton's names of their states."""
    found = [await _indexed(model) for model in every_version(dispatcher)]
    return [each for each in found if each["state"] == "READY" or not ready_only]


def every_version(dispatcher: ServedModels) -> list[ManagedModel]:
    """Return every served version of every model."""
    return [version for name in dispatcher.models for version in dispatcher.versions(name)]


async def _indexed(model: ManagedModel) -> dict[str, str]:
    state, reason = "READY", ""
    try:
        await model.health()
    except ModelNotReady as error:
        state, reason = "LOADING", error.message
    except LmiError as error:
        state, reason = "UNAVAILABLE", error.message
    return {"name": model.name, "version": version_of(model), "state": state, "reason": reason}


async def all_statistics(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"model_stats": [statistics(model) for model in every_version(dispatcher)]})


async def model_statistics(call: Call, dispatcher: ServedModels) -> Answer:
    return json_answer({"model_stats": [statistics(asked_model(call, dispatcher))]})


def statistics(model: ManagedModel) -> dict[str, Any]:
    """Return the model's statistics by Triton's names; unmeasured ones have a count of 0.

    Each prompt counts as an execution, because rolling batches are not executed one by one.
    """
    found = model.statistics
    measured = {"success": found.succeeded, "fail": found.failed}
    unmeasured = dict.fromkeys(("queue", "compute_input", "compute_infer", "compute_output"), Durations())
    cached = dict.fromkeys(("cache_hit", "cache_miss"), Durations())
    return {
        "name": model.name,
        "version": version_of(model),
        "last_inference": found.last_call,
        "inference_count": found.num_prompts,
        "execution_count": found.num_prompts,
        "inference_stats": {
            name: {"count": each.count, "ns": each.nanoseconds}
            for name, each in (measured | unmeasured | cached).items()
        },
        "batch_stats": [],
    }
