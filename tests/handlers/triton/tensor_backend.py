"""A backend for tensors without a model, which answers with the prompt backwards."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, cast

import numpy

from lmi_core.backend import Backend
from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.generation.tensors import Tensor, TensorBackend, TensorSpecification
from lmi_core.hookspecs import hookimpl
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import ModelDirectory, RunningServer, Serve

PROPERTIES = "option.rolling_batch=backwards\n"
FAILING_TOKEN = 13


class BackwardsBackend(ScriptedBackend, TensorBackend):
    """A backend that yields the prompt backwards, never ends with `hold`, and fails at `FAILING_TOKEN`."""

    name = "backwards"
    auto_priority = 1000
    tensor_inputs = (
        TensorSpecification("request_output_len", "INT32", (1, 1)),
        TensorSpecification("input_ids", "INT32", (1, -1)),
        TensorSpecification("streaming", "BOOL", (1,), optional=True),
        TensorSpecification("bad_words_list", "INT32", (1, 2, -1), optional=True),
        TensorSpecification("draft_logits", "FP32", (-1, -1), optional=True),
        TensorSpecification("random_seed", "UINT64", (1,), optional=True),
        TensorSpecification("prompt_embedding_table", "FP16", (1, -1), optional=True),
        TensorSpecification("lora_weights", "BF16", (-1,), optional=True),
        TensorSpecification("note", "BYTES", (-1,), optional=True),
        TensorSpecification("hold", "BOOL", (1,), optional=True),
    )
    tensor_outputs = (
        TensorSpecification("output_ids", "INT32", (-1, -1)),
        TensorSpecification("cum_log_probs", "FP32", (1, -1)),
        TensorSpecification("note", "BYTES", (-1,)),
    )

    def __init__(self, setup: Any) -> None:
        super().__init__(setup)
        self.inferred: list[tuple[int, dict[str, Tensor]]] = []
        self.holding: asyncio.Queue[int] = asyncio.Queue()  # ids of held requests
        self.closed = asyncio.Event()

    async def infer(self, request_id: int, inputs: Mapping[str, Tensor]) -> AsyncGenerator[Mapping[str, Tensor], None]:
        self.inferred.append((request_id, dict(inputs)))
        if "input_ids" not in inputs:
            raise InvalidParameter("`input_ids` is required")
        most = int(inputs["request_output_len"].array()[0, 0])
        ids = inputs["input_ids"].array()[0, ::-1][:most].tolist()
        try:
            for part in [[token] for token in ids] if _true(inputs, "streaming") else [ids]:
                if FAILING_TOKEN in part:
                    raise GenerationFailed("the engine fell over")
                yield _response(part, inputs)
            if _true(inputs, "hold"):
                self.holding.put_nowait(request_id)
                await asyncio.Event().wait()
        finally:
            self.closed.set()


class BackwardsPlugin:
    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(BackwardsBackend)


async def serve_backwards(serve: Serve, model_dir: ModelDirectory, properties: str = "") -> RunningServer:
    return await serve(model_dir({"serving.properties": PROPERTIES + properties}), plugins=[BackwardsPlugin()])


def backwards(server: RunningServer) -> BackwardsBackend:
    return cast(BackwardsBackend, server.model.backend)


def _true(inputs: Mapping[str, Tensor], name: str) -> bool:
    return name in inputs and bool(inputs[name].array()[0])


def _response(ids: list[int], inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    response = {
        "output_ids": Tensor.from_array(numpy.array([ids], "int32")),
        "cum_log_probs": Tensor.from_array(numpy.array([[-0.5 * len(ids)]], "float32")),
    }
    return response | ({"note": inputs["note"]} if "note" in inputs else {})
