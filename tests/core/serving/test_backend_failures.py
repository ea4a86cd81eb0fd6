"""What a backend's code does otherwise than its interface asks is a sentence, at start-up or in the answer."""

import inspect
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lmi_core.backend import Backend
from lmi_core.errors import BackendUnhealthy, ConfigurationError, InvalidParameter
from lmi_core.generation.output import GenerationStep, Token
from lmi_core.hookspecs import hookimpl
from lmi_core.texts.word_tokenizer import WordTokenizer
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import ModelDirectory, RunningServer, Serve
from tests.documented_answers import AnswerChecks

PROPERTIES = {"serving.properties": "option.rolling_batch=odd\n"}
GOOD = Token(0, "one", -0.5)
Items = Callable[[], AsyncIterator[Any]]


class OddBackend(ScriptedBackend):
    """A backend that yields what the test says."""

    name = "odd"
    items: Items

    def generate(self, request: Any) -> Any:
        return self.items()


class Plugin:
    def __init__(self, backend: type[Backend[Any]]) -> None:
        self.backend = backend

    @hookimpl
    def lmi_register_backends(self, register: Callable[[type[Backend[Any]]], None]) -> None:
        register(self.backend)


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir(PROPERTIES), plugins=[Plugin(OddBackend)])


def yielding(*items: object) -> Items:
    async def generate() -> AsyncIterator[Any]:
        for item in items:
            yield item

    return generate


async def answers(server: RunningServer, items: Items, **parameters: object) -> tuple[int, str, str]:
    """Return the status and the error of a whole answer, and the error at the end of a stream."""
    assert isinstance(server.model.backend, OddBackend)
    server.model.backend.items = items
    payload = {"inputs": "hello", "parameters": parameters}
    whole = await server.post("/invocations", payload)
    stream = await server.post("/invocations", payload | {"stream": True})
    last = stream.json_lines()[-1] if stream.status == 200 else stream.json()
    return whole.status, whole.json()["error"], last["error"]


ENDS = "`generate` must yield a finish reason with the last step of each sequence. Given: none for the sequence 0"
RAISED = "the odd backend (OddBackend) raised AttributeError: 'str' object has no attribute 'finish_reason'"


@pytest.mark.parametrize("items", [[], [GenerationStep([])], [GenerationStep([GOOD])]])
async def test_sequences_that_do_not_end(server: RunningServer, items: list[object]) -> None:
    status, whole, stream = await answers(server, yielding(*items))
    assert status == 500
    assert (whole, stream) == (f"the odd backend (OddBackend): {ENDS}",) * 2


async def test_items_that_are_no_steps(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    _, whole, stream = await answers(server, yielding(GenerationStep([GOOD]), "one"))
    assert (whole, stream) == (RAISED, RAISED)
    assert all(record.exc_info for record in caplog.records if "(OddBackend) raised" in record.getMessage())


async def test_step_of_a_later_token_that_a_formatter_cannot_read(
    server: RunningServer, answer_checks: AnswerChecks
) -> None:
    items = yielding(GenerationStep([GOOD]), GenerationStep([Token(0, None)]), GenerationStep([], "length"))  # type: ignore[arg-type]
    _, whole, stream = await answers(server, items, details=True)
    for answer, name in ((whole, "Json"), (stream, "JsonLines")):
        raised = "raised TypeError: sequence item 1: expected str instance, NoneType found"
        assert answer.startswith(f"the output formatter {name}Formatter {raised}")
    assert len(answer_checks.take()) == 1  # the stream's event of the token without a text


async def test_several_prompts(server: RunningServer) -> None:
    assert isinstance(server.model.backend, OddBackend)
    server.model.backend.items = yielding()
    answer = await server.post("/v1/completions", {"prompt": ["one", "two"]})
    assert answer.status == 500
    assert answer.json()["error"]["message"] == f"the odd backend (OddBackend): {ENDS}"


@pytest.mark.parametrize(("items", "given"), [(lambda: iter(()), "tuple_iterator"), (lambda: None, "NoneType")])
async def test_what_is_no_stream(server: RunningServer, items: Any, given: str) -> None:
    for message in (await answers(server, items))[1:]:
        assert message.startswith(f"the odd backend (OddBackend) raised AttributeError: '{given}' object has no attr")


async def test_exceptions(server: RunningServer, caplog: pytest.LogCaptureFixture) -> None:
    async def generate() -> AsyncIterator[GenerationStep]:
        yield GenerationStep([GOOD])
        raise KeyError("weights")

    message = "the odd backend (OddBackend) raised KeyError: 'weights'"
    assert await answers(server, generate) == (500, message, message)
    raised = [record for record in caplog.records if "(OddBackend) raised" in record.getMessage()]
    assert all(record.exc_info for record in raised)
    assert len(raised) == 2


async def test_errors_are_the_author_s_own(server: RunningServer) -> None:
    async def generate() -> AsyncIterator[GenerationStep]:
        yield GenerationStep([])
        raise InvalidParameter("`mood` must be good. Given: 'bad'")

    assert (await answers(server, generate))[:2] == (424, "`mood` must be good. Given: 'bad'")


class Unset(ScriptedBackend):
    name = "odd"

    async def start(self) -> None:
        vars(self).pop("tokenizer", None)
        vars(self).pop("max_length", None)


class Broken(ScriptedBackend):
    name = "odd"

    async def start(self) -> None:
        raise KeyError("weights")


async def test_incomplete_start(serve: Serve, model_dir: ModelDirectory) -> None:
    with pytest.raises(ConfigurationError) as failure:
        await serve(model_dir(PROPERTIES), plugins=[Plugin(Unset)])
    assert failure.value.message == ("the odd backend (Unset): `start` must set `self.tokenizer` and `self.max_length`")


async def test_start_that_raises(serve: Serve, model_dir: ModelDirectory) -> None:
    with pytest.raises(ConfigurationError) as failure:
        await serve(model_dir(PROPERTIES), plugins=[Plugin(Broken)])
    assert failure.value.message == (
        "model model: the odd backend (Broken) did not start: KeyError: 'weights' "
        f"(tests/core/serving/test_backend_failures.py, line {inspect.getsourcelines(Broken.start)[1] + 1})"
    )


async def test_health_that_raises(server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def health() -> None:
        raise KeyError("pulse")

    monkeypatch.setattr(server.model.backend, "health", health)
    with pytest.raises(BackendUnhealthy, match=r"^the odd backend \(OddBackend\) raised KeyError: 'pulse'$"):
        await server.model.health()
    assert (await server.get("/ping")).status == 503


class OddVectors(ScriptedBackend):
    name = "odd"
    vectors: tuple[object, ...]

    async def embed(self, requests: Any) -> Any:
        for vector in self.vectors:
            yield vector


FOUR = b"\0" * 16


@pytest.mark.parametrize(
    ("vectors", "fault"),
    [
        ([(1, FOUR)], "`embed` must yield one vector for each request. Given: a second one for the index 1"),
        ([(0, FOUR), (0, FOUR)], "`embed` must yield one vector for each request. Given: a second one for the index 0"),
        ([(-1, FOUR)], "`embed` must yield one vector for each request. Given: a second one for the index -1"),
        ([], "`embed` must yield one vector for each request. Given: none for the index 0"),
        ([7], "raised TypeError: cannot unpack non-iterable int object"),
    ],
)
async def test_vectors(serve: Serve, model_dir: ModelDirectory, vectors: list[object], fault: str) -> None:
    files = {"serving.properties": PROPERTIES["serving.properties"] + "option.task=text-embedding\n"}
    server = await serve(model_dir(files), plugins=[Plugin(OddVectors)])
    assert isinstance(server.model.backend, OddVectors)
    server.model.backend.vectors = tuple(vectors)
    answer = await server.post("/v1/embeddings", {"input": "one"})
    assert answer.status == 500
    assert fault in answer.json()["error"]["message"]
    assert answer.json()["error"]["message"].startswith("the odd backend (OddVectors)")


async def test_a_tokenizer_of_words_will_do(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir(PROPERTIES), plugins=[Plugin(OddBackend)])
    assert isinstance(server.model.backend.tokenizer, WordTokenizer)
