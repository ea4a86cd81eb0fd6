"""Triton's clients, unmodified, with TensorRT-LLM's tensors on a real model."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

import aiohttp
import numpy
import pytest
import pytest_asyncio
from transformers import AutoTokenizer, PreTrainedTokenizerBase
from tritonclient import grpc
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from lmi_plugins.trtllm.requests.tensor_table import BY_NAME, INPUTS, OUTPUTS
from tests.lmi_process import clients_of

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTIONS = [pair["question"] for pair in json.loads((EXAMPLES / "hello" / "questions.json").read_text())[::15]]
QUESTION = "What is Deep Learning?"
END_ID = 1
TYPES = {"INT32": "int32", "UINT64": "uint64", "FP32": "float32", "FP16": "float16", "BOOL": "bool"}
RETURN_ALL = {"return_log_probs": [True], "return_context_logits": [True], "return_generation_logits": [True]}

pytestmark = pytest.mark.asyncio(loop_scope="module")

T = TypeVar("T")


@dataclass(frozen=True)
class Trtllm:
    http: aiohttp.ClientSession
    grpc_address: str
    tokenizer: PreTrainedTokenizerBase

    async def ask(self, use: Callable[[InferenceServerClient], T]) -> T:
        """The client blocks, and belongs to one thread."""
        address = str(self.http._base_url).removeprefix("http://").rstrip("/")

        def run() -> T:
            with InferenceServerClient(address, concurrency=8) as client:
                return use(client)

        return await asyncio.to_thread(run)

    async def infer(self, **tensors: Any) -> dict[str, "numpy.ndarray[Any, Any]"]:
        result = await self.ask(lambda client: client.infer("trtllm", self.inputs(QUESTION, tensors)))
        names = [output["name"] for output in result.get_response()["outputs"]]
        return {name: result.as_numpy(name) for name in names}

    async def ids(self, **tensors: Any) -> list[int]:
        found: list[int] = (await self.infer(**tensors))["output_ids"][0].tolist()
        return found

    async def refusal(self, **tensors: Any) -> str:
        with pytest.raises(InferenceServerException) as raised:
            await self.infer(**tensors)
        return f"{raised.value.status()}: {raised.value.message()}"

    async def stream(self, *requests: Mapping[str, Any], empty: bool = False) -> dict[str, list[Any]]:
        """Return the (result, error) pairs of a stream of gRPC's client, by the ids "0", "1", ... of its requests."""

        def run() -> dict[str, list[Any]]:
            found: dict[str, list[Any]] = {str(place): [] for place in range(len(requests))}
            with grpc.InferenceServerClient(self.grpc_address) as client:
                client.start_stream(lambda result, error: found[result.get_response().id].append((result, error)))
                for place, tensors in enumerate(requests):
                    inputs = [_input(name, values, grpc.InferInput) for name, values in tensors.items()]
                    client.async_stream_infer(
                        "trtllm", inputs, request_id=str(place), enable_empty_final_response=empty
                    )
                client.stop_stream()  # which waits for the responses
            return found

        return await asyncio.to_thread(run)

    async def text(self, question: str) -> str:
        """Return the text of an answer in LMI's schema."""
        body = {"inputs": question, "parameters": {"max_new_tokens": 40}}
        async with self.http.post("/invocations", json=body) as response:
            return str((await response.json())["generated_text"])

    def inputs(self, question: str, tensors: Mapping[str, Any] = MappingProxyType({})) -> list[InferInput]:
        return [_input(name, values) for name, values in (self.prompt(question) | dict(tensors)).items()]

    def prompt(self, question: str) -> dict[str, Any]:
        return {"input_ids": [self.tokenizer.encode(question)], "request_output_len": [[40]], "end_id": [END_ID]}

    def decode(self, ids: list[int]) -> str:
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


def _input(name: str, values: Any, kind: Any = InferInput) -> Any:
    array = values if isinstance(values, numpy.ndarray) else numpy.array(values, TYPES[BY_NAME[name].dtype])
    found = kind(name, array.shape, next(key for key, kind in TYPES.items() if kind == array.dtype.name))
    found.set_data_from_numpy(array)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trtllm() -> AsyncIterator[Trtllm]:
    async with clients_of(EXAMPLES / "trtllm", "--grpc-port", 0) as (client, grpc_address):
        yield Trtllm(client, grpc_address, AutoTokenizer.from_pretrained(EXAMPLES / "hello"))


async def test_metadata(trtllm: Trtllm) -> None:
    found = await trtllm.ask(lambda client: client.get_model_metadata("trtllm"))
    for key, tensors in (("inputs", INPUTS), ("outputs", OUTPUTS)):
        expected = [{"name": each.name, "datatype": each.dtype, "shape": [*each.shape]} for each in tensors]
        assert found[key] == expected


async def test_the_text_of_lmi_s_schema(trtllm: Trtllm) -> None:
    assert trtllm.decode(await trtllm.ids()) == await trtllm.text(QUESTION) == "Deep Learning is a really cool field."


async def test_many_at_once(trtllm: Trtllm) -> None:
    def use(client: InferenceServerClient) -> list[str]:
        pending = [client.async_infer("trtllm", trtllm.inputs(question)) for question in QUESTIONS]
        return [trtllm.decode(request.get_result().as_numpy("output_ids")[0].tolist()) for request in pending]

    assert len(QUESTIONS) > 8
    assert await trtllm.ask(use) == [await trtllm.text(question) for question in QUESTIONS]


async def test_log_probs_and_logits(trtllm: Trtllm) -> None:
    found = await trtllm.infer(**RETURN_ALL)
    ids, length = found["output_ids"][0], len(trtllm.tokenizer.encode(QUESTION))
    vocabulary = found["context_logits"].shape[2]
    assert {name: tensor.shape for name, tensor in found.items()} == {
        "output_ids": (1, len(ids)),
        "sequence_length": (1,),
        "output_log_probs": (1, 1, len(ids)),
        "cum_log_probs": (1, 1),
        "context_logits": (1, length, vocabulary),
        "generation_logits": (1, 1, len(ids), vocabulary),
    }
    logits = found["generation_logits"][0, 0]
    numpy.testing.assert_array_equal(logits.argmax(-1), ids)
    shifted = logits - logits.max(-1, keepdims=True)
    log_probs = shifted.max(-1) - numpy.log(numpy.exp(shifted).sum(-1))
    numpy.testing.assert_allclose(found["output_log_probs"][0, 0], log_probs, atol=1e-4)
    numpy.testing.assert_allclose(found["cum_log_probs"][0, 0], log_probs.sum(), atol=1e-4)
    assert found["context_logits"][0, -1].argmax() == ids[0]


async def test_requested_outputs(trtllm: Trtllm) -> None:
    outputs = [InferRequestedOutput("sequence_length"), InferRequestedOutput("output_ids", binary_data=False)]
    inputs = trtllm.inputs(QUESTION, RETURN_ALL)
    result = await trtllm.ask(lambda client: client.infer("trtllm", inputs, outputs=outputs))
    assert [each["name"] for each in result.get_response()["outputs"]] == ["sequence_length", "output_ids"]
    assert result.as_numpy("output_ids").shape == (1, result.as_numpy("sequence_length")[0])


async def test_words_and_bias(trtllm: Trtllm) -> None:
    ids = await trtllm.ids()
    stop = [[ids[1:4], [3, -1, -1]]]
    assert await trtllm.ids(stop_words_list=stop) == ids[:4]
    assert ids[0] not in await trtllm.ids(bad_words_list=[[[ids[0]], [1]]])
    vocabulary = (await trtllm.infer(return_context_logits=[True]))["context_logits"].shape[2]
    bias = numpy.zeros((1, vocabulary), "float32")
    bias[0, 77] = 1000
    assert await trtllm.ids(embedding_bias=bias, request_output_len=[[3]]) == [77, 77, 77]


async def test_draft(trtllm: Trtllm) -> None:
    ids = await trtllm.ids()
    assert await trtllm.ids(draft_input_ids=ids[:5]) == ids
    assert await trtllm.ids(draft_input_ids=[*ids[:2], 77]) == ids


async def test_beams(trtllm: Trtllm) -> None:
    found = await trtllm.infer(beam_width=[3], return_log_probs=[True])
    assert found["output_ids"].shape[0] == 3
    assert found["cum_log_probs"].shape == (1, 3)
    assert trtllm.decode(found["output_ids"][0].tolist()) == "Deep Learning is a really cool field."


async def test_lora(trtllm: Trtllm) -> None:
    configuration = json.loads((EXAMPLES / "hello" / "config.json").read_text())
    hidden, layers, mlp_out = configuration["hidden_size"], configuration["num_hidden_layers"], 6
    weights = numpy.random.default_rng(7).normal(size=(layers, configuration["intermediate_size"] + hidden))
    config = [[mlp_out, layer, 1] for layer in range(layers)]
    adapter = {"lora_task_id": [2**64 - 1], "lora_weights": weights.astype("float32"), "lora_config": config}
    base = await trtllm.ids()
    adapted = await trtllm.ids(**adapter)
    assert adapted != base
    assert await trtllm.ids(lora_task_id=[2**64 - 1]) == adapted
    assert await trtllm.ids() == base


async def test_a_stream_has_the_same_tokens(trtllm: Trtllm) -> None:
    prompt = {"input_ids": trtllm.tokenizer.encode(QUESTION), "request_output_len": 40, "end_id": END_ID}
    body = prompt | {"streaming": True, "return_log_probs": True}
    async with trtllm.http.post("/v2/models/trtllm/generate_stream", json=body) as response:
        events = [json.loads(event.removeprefix(b"data: ")) for event in (await response.read()).split(b"\n\n")[:-1]]
    assert [event["output_ids"] for event in events] == await trtllm.ids()
    assert {event["sequence_length"] for event in events} == {1}
    whole = await trtllm.infer(return_log_probs=[True])
    numpy.testing.assert_allclose(
        [event["output_log_probs"] for event in events], whole["output_log_probs"][0, 0], 1e-4
    )
    numpy.testing.assert_allclose(events[-1]["cum_log_probs"], whole["cum_log_probs"][0, 0], 1e-4)


def _is_final(result: Any) -> bool:
    return bool(result.get_response().parameters["triton_final_response"].bool_param)


@pytest.mark.parametrize("empty", [False, True])
async def test_decoupled_streams(trtllm: Trtllm, empty: bool) -> None:
    """Over gRPC, all questions on one stream: each has a response for each token, and knows its last one."""
    asked = [trtllm.prompt(question) | {"streaming": [True], "return_log_probs": [True]} for question in QUESTIONS]
    found = await trtllm.stream(*asked, empty=empty)
    for place, question in enumerate(QUESTIONS):
        results = [result for result, error in found[str(place)] if error is None]
        assert [_is_final(result) for result in results] == [False] * (len(results) - 1) + [True]
        ids = [result.as_numpy("output_ids")[0, 0] for result in results]
        assert trtllm.decode(ids) == await trtllm.text(question)
        assert all(result.as_numpy("output_log_probs").shape == (1, 1, 1) for result in results)


async def test_one_response_over_grpc(trtllm: Trtllm) -> None:
    def run() -> Any:
        with grpc.InferenceServerClient(trtllm.grpc_address) as client:
            inputs = [_input(name, values, grpc.InferInput) for name, values in trtllm.prompt(QUESTION).items()]
            return client.infer("trtllm", inputs).as_numpy("output_ids")[0].tolist()

    assert await asyncio.to_thread(run) == await trtllm.ids()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"request_output_len": [[2000]]},
            "400: `request_output_len` must be at most 1024 (max_output_len). Given: 2000",
        ),
        ({"input_ids": [[7] * 1025]}, "400: `input_ids` must have at most 1024 tokens (max_input_len). Given: 1025"),
        (
            {"input_ids": numpy.array([[0.5]], "float32")},
            "400: `input_ids` must be INT32 of shape [1, any]. Given: FP32",
        ),
        ({"beam_width": [[[1]]]}, "400: `beam_width` must be INT32 of shape [1]. Given: INT32 of shape [1, 1, 1]"),
        ({"temperature": [-1]}, "400: `temperature` must be at least 0 and at most 100. Given: -1"),
        ({"lora_task_id": [7]}, "400: `lora_task_id` must be cached, or be given with `lora_weights`"),
        ({"streaming": [True]}, "400: `streaming` must be false on this route: use generate_stream for streams."),
    ],
)
async def test_errors(trtllm: Trtllm, tensors: dict[str, Any], message: str) -> None:
    assert (await trtllm.refusal(**tensors)).startswith(message)


async def test_a_stream_that_is_aborted(trtllm: Trtllm) -> None:
    body = {"input_ids": trtllm.tokenizer.encode("Sing."), "request_output_len": 1000, "streaming": True}
    stream = trtllm.http.post("/v2/models/trtllm/generate_stream", json=body, headers={"x-request-id": "song"})
    async with stream as response:
        await response.content.readline()
        async with trtllm.http.post("/v1/abort_request", json={"request_id": "song"}) as aborted:
            assert aborted.status == 200
        *_, last = (await response.read()).strip().split(b"\n\n")
    assert json.loads(last.removeprefix(b"data: ")) == {"error": "the request was aborted"}
    assert trtllm.decode(await trtllm.ids()) == "Deep Learning is a really cool field."


async def test_the_documented_request_of_tensorrt_llm_s_ensemble(trtllm: Trtllm) -> None:
    body = {"text_input": QUESTION, "max_tokens": 40, "bad_words": "", "stop_words": "", "pad_id": 2, "end_id": END_ID}
    async with trtllm.http.post("/v2/models/trtllm/generate", json=body) as response:
        assert (await response.json())["text_output"] == QUESTION + "Deep Learning is a really cool field."
    (is_id,) = trtllm.tokenizer.encode(" is", add_special_tokens=False)
    asked = body | {"end_id": is_id, "return_finish_reason": True}
    async with trtllm.http.post("/v2/models/trtllm/generate", json=asked) as response:
        found = await response.json()
    assert (found["text_output"], found["finish_reason"]) == (QUESTION + "Deep Learning", "stop")
