"""vLLM's routes that load and unload adapters, which its operators for Kubernetes call."""

from typing import ClassVar, Literal

from pydantic import ConfigDict, Field

from lmi_core.errors import AdapterExists, InvalidAdapter, InvalidPayload
from lmi_core.handler import Answer, AnswerForm, Call, Generation, Route
from lmi_core.model_adapters import ModelAdapters
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel, ServedModels
from lmi_handlers.base.adapter_names import NewName
from lmi_handlers.base.openai_handler import OpenAiHandler, asked_model
from lmi_handlers.base.plain_handler import operator_route
from lmi_handlers.fields.openai_tolerance import take_fields


class LoadAdapter(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"lora_name": "french", "lora_path": "adapters/french"}]})

    model: str | None = Field(None, description="The name of the model; required if several are served.")
    lora_name: NewName = Field(description="The name of the adapter in requests.")
    lora_path: str = Field(min_length=1, description="Its folder or archive, as `src` of `POST /adapters`.")
    load_inplace: bool | None = Field(None, description="Replace a loaded adapter of this name. Default: false.")
    is_3d_lora_weight: Literal[False] | None = Field(None, description="Only false: others are not supported.")


class UnloadAdapter(TolerantPayload):
    model_config = ConfigDict(json_schema_extra={"examples": [{"lora_name": "french"}]})

    model: str | None = Field(None, description="The name of the model; required if several are served.")
    lora_name: str = Field(min_length=1, description="The name of the adapter.")
    lora_int_id: int | None = Field(None, description="Ignored: the name alone decides.")


async def load_adapter(call: Call, served: ServedModels) -> Answer:
    adapter, ignored = take_fields(call.json_object(), LoadAdapter, strict=False)
    name, model = adapter.lora_name, asked_model(call, served, adapter.model)
    with served.admit(model):
        await served.wake(model)
        if name in model.names:
            raise InvalidAdapter("`lora_name` must not be a name of the model itself")
        try:
            await _load(model.adapters, adapter)
        except InvalidAdapter as error:
            raise InvalidAdapter(error.message.replace("`src`", "`lora_path`", 1)) from error
    return _success(f"LoRA adapter '{name}' added successfully.", ignored)


async def _load(adapters: ModelAdapters, adapter: LoadAdapter) -> None:
    try:
        await adapters.add(adapter.lora_name, adapter.lora_path)
    except AdapterExists:
        if not adapter.load_inplace:
            raise AdapterExists(  # clients of vLLM look for "already been loaded"
                f"the adapter `{adapter.lora_name}` has already been loaded: unload it, or replace it with "
                "`load_inplace`"
            ) from None
        await adapters.replace(adapter.lora_name, adapter.lora_path)


async def unload_adapter(call: Call, served: ServedModels) -> Answer:
    adapter, ignored = take_fields(call.json_object(), UnloadAdapter, strict=False)
    model = asked_model(call, served, adapter.model)
    with served.admit(model):
        await served.wake(model)
        await model.adapters.remove(adapter.lora_name)
    return _success(f"LoRA adapter '{adapter.lora_name}' removed successfully.", ignored)


def _success(what: str, ignored: tuple[str, ...]) -> Answer:
    return Answer(200, "text/plain", f"Success: {what}".encode(), ignored)


DONE = (AnswerForm(None, "text/plain"),)


class VllmAdaptersHandler(OpenAiHandler):
    name: ClassVar[str] = "vllm_adapters"
    summary: ClassVar[str] = "vLLM's routes that manage adapters"
    routes: ClassVar[tuple[Route, ...]] = (
        operator_route("/v1/load_lora_adapter", "POST", load_adapter, "Load an adapter", DONE, LoadAdapter),
        operator_route("/v1/unload_lora_adapter", "POST", unload_adapter, "Unload an adapter", DONE, UnloadAdapter),
    )

    def parse(self, call: Call, model: ServedModel) -> Generation:
        raise InvalidPayload(f"{call.path} does not generate text")
