"""How requests come and go: the manager's callbacks, in order, and its end."""

import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.trtllm.gpt_manager import GptManager, Tensors
from lmi_plugins.trtllm.requests.inference_request import InferenceRequest
from lmi_plugins.trtllm.requests.limits import RequestLimits
from tests.plugins.torch_engine.conftest import ModelDirectory, ReferenceModel
from tests.plugins.torch_engine.tiny_models import CONTEXT, VOCABULARY, reference_ids
from tests.plugins.trtllm.asking import PROMPT, Asker

LONG = CONTEXT - len(PROMPT)


def test_a_whole_answer_is_that_of_transformers(asker: Asker, reference: ReferenceModel) -> None:
    tensors = asker.ask(count=20)
    assert set(tensors) == {"output_ids", "sequence_length"}
    assert tensors["output_ids"].dtype == tensors["sequence_length"].dtype == "int32"
    assert tensors["output_ids"].tolist() == [reference_ids(reference("llama"), PROMPT, 20)]
    assert tensors["sequence_length"].tolist() == [20]


def test_a_stream_has_one_token_in_each_response(asker: Asker) -> None:
    responses = asker.stream(count=20)
    assert [response["output_ids"].shape for response in responses] == [(1, 1)] * 20
    assert [response["sequence_length"].tolist() for response in responses] == [[1]] * 20
    assert [response["output_ids"].item() for response in responses] == asker.ids(count=20)


def test_requests_join_and_leave_while_others_generate(model_directory: ModelDirectory) -> None:
    with Asker(model_directory("llama"), max_batch_size=2) as asker:
        alone = [asker.ids([place, 9], 10) for place in range(3)]
        asker.hold()
        requests = [asker.submit([place, 9], 10) for place in range(2)]
        late = asker.submit([2, 9], 10)
        asker.release()
        answers = [asker.received(request)[-1].tensors["output_ids"][0].tolist() for request in (*requests, late)]
        assert answers == alone
        busy = [each for each in asker.statistics_so_far() if each["Scheduled Requests"] == 2]
        assert len(busy) == 10
        assert max(each["Active Request Count"] for each in asker.statistics) == 2
        assert set(asker.asked_for) == {1, 2}  # never for more than there is room for, and not at all without any


def test_a_request_is_stopped(asker: Asker) -> None:
    request = asker.submit(count=LONG, streaming=[True])
    asker.received(request, count=1)
    asker.stop(request)
    *before, last = asker.received(request)
    assert len(before) < LONG
    assert (last.is_final, last.error) == (True, "")
    assert last.tensors["output_ids"].shape == (1, 0)
    assert last.tensors["sequence_length"].tolist() == [0]


def test_a_whole_answer_that_is_stopped_has_what_was_generated(asker: Asker) -> None:
    """Another request tells how far it is."""
    whole = asker.ids(count=LONG)
    asker.hold()
    stopped = asker.submit(count=LONG)
    other = asker.submit(count=3)
    asker.release()
    asker.received(other)
    asker.stop(stopped)
    (response,) = asker.received(stopped)
    (ids,) = response.tensors["output_ids"].tolist()
    assert 3 <= len(ids) == response.tensors["sequence_length"].item() < LONG
    assert ids == whole[: len(ids)]


def test_unknown_ids_are_not_stopped(asker: Asker) -> None:
    asker.stop(10**9)
    assert len(asker.ids(count=3)) == 3


def test_an_id_that_runs_is_refused_and_can_be_used_again(asker: Asker) -> None:
    def request() -> InferenceRequest:
        return InferenceRequest(2**64 - 1, {"input_ids": [PROMPT], "request_output_len": [[8]]})

    asker.hold()
    first = asker.hand_over(request())
    asker.hand_over(request())
    asker.release()
    refusal, answer = asker.received(first, count=2)
    assert (refusal.is_final, answer.is_final) == (True, True)
    assert refusal.error == f"`request_id` {2**64 - 1} is the id of a request that is still running"
    assert answer.tensors["sequence_length"].item() == 8
    asker.hand_over(request())
    assert asker.received(first, count=3)[2].tensors["sequence_length"].item() == 8


def test_statistics(asker: Asker) -> None:
    before = len(asker.statistics_so_far())
    asker.ids(list(range(40)), 3)
    first, second, third = asker.statistics_so_far()[before:]
    assert time.strptime(first.pop("Timestamp"), "%m-%d-%Y %H:%M:%S")
    assert first == {
        "Iteration Counter": second["Iteration Counter"] - 1,
        "Active Request Count": 1,
        "Max Request Count": 32,
        "Max KV cache blocks": first["Max KV cache blocks"],
        "Free KV cache blocks": first["Max KV cache blocks"] - 3,
        "Used KV cache blocks": 3,
        "Tokens per KV cache block": 16,
        "Scheduled Requests": 1,
        "Context Requests": 1,
        "Generation Requests": 0,
        "Total Context Tokens": 40,
    }
    assert (second["Context Requests"], second["Generation Requests"], second["Total Context Tokens"]) == (0, 1, 0)
    assert third["Used KV cache blocks"] == 0


def test_limits(model_directory: ModelDirectory) -> None:
    limits = RequestLimits(max_input_len=10, max_output_len=5, max_num_tokens=8, max_beam_width=2, max_draft_len=1)
    with Asker(model_directory("llama"), limits) as asker:
        assert len(asker.ids([1] * 8, 5)) == 5
        assert asker.error([1] * 11) == "`input_ids` must have at most 10 tokens (max_input_len). Given: 11"
        assert asker.error([1] * 9, 5) == "`input_ids` must have at most 8 tokens (max_num_tokens). Given: 9"
        assert asker.error([1], 6) == "`request_output_len` must be at most 5 (max_output_len). Given: 6"
        assert asker.error([1], 5, beam_width=[3]) == "`beam_width` must be at most 2 (max_beam_width). Given: 3"
        assert asker.error([1], 5, draft_input_ids=[2, 3]) == (
            "`draft_input_ids` must have at most 1 tokens (max_draft_len). Given: 2"
        )


def test_the_context_is_a_limit(asker: Asker) -> None:
    assert len(asker.ids([1] * 100, 28)) == 28
    assert asker.error([1] * 100, 29) == (
        "`request_output_len` must be at most 28 after a prompt of 100 tokens (the model's context is 128). Given: 29"
    )


class Recorder:
    """Callbacks that keep what they get."""

    def __init__(self, *requests: InferenceRequest) -> None:
        self.requests = list(requests)
        self.responses: list[tuple[int, bool, str]] = []
        self.called = threading.Event()

    def get(self, most: int) -> Iterable[InferenceRequest]:
        taken, self.requests = self.requests[:most], self.requests[most:]
        return taken

    def send(self, request_id: int, tensors: Tensors, is_final: bool, error: str) -> None:
        self.responses.append((request_id, is_final, error))
        self.called.set()


def request(request_id: int, streaming: bool = True) -> InferenceRequest:
    tensors = {"input_ids": [PROMPT], "request_output_len": [[LONG]], "streaming": [streaming]}
    return InferenceRequest(request_id, tensors)


def test_shutdown_fails_what_is_in_flight_and_leaves_no_thread(model_directory: ModelDirectory) -> None:
    threads = set(threading.enumerate())
    recorder = Recorder(request(1), request(2))
    manager = GptManager(str(model_directory("llama")), recorder.get, recorder.send)
    assert recorder.called.wait(60)
    manager.shutdown()
    assert set(threading.enumerate()) == threads
    assert set(recorder.responses[-2:]) == {
        (number, True, "the request was lost: the manager was shut down") for number in (1, 2)
    }
    manager.shutdown()  # again, which changes nothing


def test_a_callback_may_shut_the_manager_down(model_directory: ModelDirectory) -> None:
    recorder = Recorder(request(1))

    def send(request_id: int, tensors: Tensors, is_final: bool, error: str) -> None:
        recorder.send(request_id, tensors, is_final, error)
        manager.shutdown()

    loaded = threading.Event()

    def get(most: int) -> Iterable[InferenceRequest]:
        loaded.wait()
        return recorder.get(most)

    manager = GptManager(model_directory("llama"), get, send)
    loaded.set()
    manager.join()
    assert recorder.responses == [(1, False, ""), (1, True, "the request was lost: the manager was shut down")]


def test_a_callback_that_raises_ends_the_manager(model_directory: ModelDirectory) -> None:
    recorder = Recorder(request(1))

    def poll() -> set[int]:
        raise OSError("no signal")

    manager = GptManager(EngineOptions(str(model_directory("llama"))), recorder.get, recorder.send, poll)
    with pytest.raises(OSError, match="no signal"):
        manager.join()
    assert recorder.responses == [(1, False, ""), (1, True, "the request was lost: the manager ended: no signal")]
    manager.shutdown()


def test_a_directory_that_cannot_be_loaded(tmp_path: Path) -> None:
    recorder = Recorder()
    with pytest.raises(ConfigurationError, match="there is no tokenizer"):
        GptManager(tmp_path, recorder.get, recorder.send)


@pytest.mark.parametrize("architecture", ["trocr"])
def test_a_model_without_blocks(architecture: str, model_directory: ModelDirectory, reference: ReferenceModel) -> None:
    """A model without a paged cache refuses the tensors that need one, by name, and supports all others."""
    with Asker(model_directory(architecture)) as asker:
        assert asker.ids() == reference_ids(reference(architecture), PROMPT, 6)
        assert asker.ask(return_context_logits=[True])["context_logits"].shape == (1, 3, VOCABULARY)
        assert asker.error(beam_width=[2]).startswith("`beam_width` must be 1 with this model, which runs each")
        assert asker.error(draft_input_ids=[3]).startswith("`draft_input_ids` is not supported by this model")
