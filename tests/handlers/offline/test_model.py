"""`lmi.load`: a model without a server, in plain programs, in notebooks and in asynchronous ones."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import lmi
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.conftest import SCRIPTED, ModelDirectory

HELLO = Path(__file__).parents[3] / "examples" / "hello"
QUESTION = "What is Deep Learning?"
ANSWER = "Deep Learning is a really cool field."
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}

FRENCH = """
import lmi

@lmi.input_formatter
def ask(body):
    return body | {"inputs": "French: " + body["inputs"]}
"""
WITHOUT_AN_END = f"""
import lmi, psutil
model = lmi.load({str(HELLO)!r})
print(*(child.pid for child in psutil.Process().children(recursive=True)))
print(model.generate({QUESTION!r}))
"""


@pytest.fixture(scope="module")
def hello() -> Iterator[lmi.LoadedModel]:
    with lmi.load(HELLO) as model:
        yield model


def test_unknown_options(model_dir: ModelDirectory) -> None:
    with pytest.raises(lmi.ConfigurationError) as raised:
        lmi.load(model_dir({"serving.properties": SCRIPTED}), scripted_txt="Hi")
    message = "options of lmi.load: option.scripted_txt is not a known key; did you mean option.scripted_text?"
    assert raised.value.message == message


def test_text(hello: lmi.LoadedModel) -> None:
    completion = hello.generate(QUESTION, max_new_tokens=100)
    assert (str(completion), completion.finish_reason) == (ANSWER, "eos_token")
    assert completion.usage == (6, len(completion.tokens))
    assert completion.tokens[0].log_prob is not None
    assert hello.generate(QUESTION, max_new_tokens=2).finish_reason == "length"
    assert hello.generate(QUESTION, return_full_text=True).text == QUESTION + ANSWER


def test_several_sequences(hello: lmi.LoadedModel) -> None:
    completion = hello.generate(QUESTION, n=2, do_sample=True, seed=1)
    assert len(completion.sequences) == 2
    assert completion.text in [sequence.text for sequence in completion.sequences]
    assert repr(completion.sequences[0]).startswith(f"GeneratedSequence(text={completion.sequences[0].text!r}, ")


def test_list(hello: lmi.LoadedModel) -> None:
    completions = hello.generate([QUESTION, "Who are you?"], max_new_tokens=1)
    assert [completion.text for completion in completions] == ["D", "I"]
    assert hello.generate([]) == []


@pytest.mark.parametrize("prompt", [None, 3, {"inputs": QUESTION}, [QUESTION, None], b"x"])
def test_prompts_that_are_not_text(hello: lmi.LoadedModel, prompt: Any) -> None:
    with pytest.raises(lmi.InvalidPayload, match="the prompt must be a string, or a list of strings"):
        hello.generate(prompt)


@pytest.mark.parametrize(
    ("last", "adapters", "message"),
    [
        ("", ["", ""], r"^prompt\[1\]: `inputs` must have at least 1 character"),
        ("y", ["", "french"], r"^prompt\[1\]: there is no adapter `french`"),
    ],
)
def test_all_prompts_of_a_list_are_validated_first(
    model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, last: str, adapters: list[str], message: str
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(ScriptedBackend, "generate", lambda _, request: begun.append(request))
    with lmi.load(model_dir({"serving.properties": SCRIPTED})) as model:
        with pytest.raises(lmi.LmiError, match=message):
            model.generate(["x", last], adapters=adapters)
        assert begun == []


def test_adapter_for_each_prompt(model_dir: ModelDirectory) -> None:
    with lmi.load(model_dir({"serving.properties": SCRIPTED, "adapters/french/model.py": FRENCH})) as model:
        shown = {"return_full_text": True, "max_new_tokens": 1}
        each = model.generate(["one ", "two "], adapters=["french", ""], **shown)
        assert [str(completion) for completion in each] == ["French: one Deep", "two Deep"]
        both = model.generate(["one ", "two "], adapters=["french"], **shown)
        assert [str(completion) for completion in both] == ["French: one Deep", "French: two Deep"]
        message = r"`adapters` must name one adapter, or one for each of the prompts \(2\). Given: 3"
        with pytest.raises(lmi.InvalidPayload, match=message):
            model.generate(["one", "two"], adapters=["french", "", ""])


def test_list_of_more_prompts_than_places(model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\n"})
    with lmi.load(directory, scripted_text="one") as model:
        assert [str(each) for each in model.generate(["x"] * 100)] == ["one"] * 100


def test_plugins_directory_as_text(model_dir: ModelDirectory) -> None:
    plugins = HELLO.parent / "own_dialect" / "plugins"
    directory = model_dir({"serving.properties": SCRIPTED})
    for folder in (plugins, str(plugins)):
        with lmi.load(directory, folder, scripted_text="one") as model:
            assert str(model.generate("x")) == "one"


def test_stream(hello: lmi.LoadedModel) -> None:
    pieces = list(hello.stream(QUESTION))
    assert "".join(map(str, pieces)) == ANSWER
    assert len(pieces) > 5
    assert [piece.finish_reason for piece in pieces if piece.finish_reason] == ["eos_token"]


def test_stream_that_is_left(hello: lmi.LoadedModel) -> None:
    stream = hello.stream("Tell me", max_new_tokens=2000, ignore_eos_token=True)
    next(stream)
    stream.close()
    assert hello.generate(QUESTION).text == ANSWER


def test_chat(hello: lmi.LoadedModel) -> None:
    reply = hello.chat(QUESTION)
    assert (reply.text, reply.finish_reason, reply.reasoning, list(reply.tool_calls)) == (ANSWER, "stop", None, [])
    assert reply.message == {"role": "assistant", "content": ANSWER}
    assert reply.usage.generated_tokens > 5
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    assert "".join(hello.stream_chat(messages)) == ANSWER
    messages += [reply.message, messages[0]]
    assert hello.chat(messages).text == ANSWER


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"temperature": -1}, lmi.InvalidParameter, "`temperature` must be greater than or equal to 0. Given: -1"),
        ({"temprature": 1}, lmi.InvalidParameter, "`temprature` is not a field"),
        ({"max_new_tokens": 10**6}, lmi.ContextLengthExceeded, "`max_new_tokens` must be at most"),
        ({"adapters": "french"}, lmi.AdapterNotFound, "there is no adapter `french`"),
        ({"stop_sequences": {1}}, lmi.InvalidPayload, "the request cannot be written as JSON"),
    ],
)
def test_wrong_parameters(
    hello: lmi.LoadedModel, parameters: dict[str, object], error: type[lmi.LmiError], message: str
) -> None:
    with pytest.raises(error, match=message):
        hello.generate(QUESTION, **parameters)
    with pytest.raises(error, match=message):
        hello.generate([QUESTION, QUESTION], **parameters)
    with pytest.raises(error, match=message):
        next(hello.stream(QUESTION, **parameters))


def test_wrong_chats(hello: lmi.LoadedModel) -> None:
    with pytest.raises(lmi.InvalidPayload, match="unknown fields of a chat: `tools_`, `temprature`"):
        hello.chat(QUESTION, tools_=[], temprature=1)
    with pytest.raises(
        lmi.InvalidPayload, match=r"unknown fields of a chat: `max_tokenz`\. Did you mean `max_tokens`\?"
    ):
        hello.chat(QUESTION, max_tokenz=3)
    with pytest.raises(lmi.InvalidPayload, match="`messages"):
        hello.chat([{"role": "", "content": "x"}])
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}
    with pytest.raises(lmi.InvalidParameter, match=r"^`response_format\.json_schema\.schema` cannot be used: Unsupp"):
        hello.chat(QUESTION, response_format=schema)
    wrong: Any = None
    with pytest.raises(lmi.InvalidPayload, match="`messages` must be a valid list"):
        hello.chat(wrong)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"n": 3}, "`n` must be 1 in `{}`, which returns one answer. Given: 3"),
        ({"logprobs": True}, "`logprobs` must be omitted in `{}`"),
        ({"return_token_ids": True}, "`return_token_ids` must be omitted in `{}`"),
        ({"stream_options": {"include_usage": True}}, "`stream_options`"),
        ({"model": "nonexistent"}, "model `nonexistent` is not served. Served: hello"),
    ],
)
def test_results_that_a_chat_cannot_return(hello: lmi.LoadedModel, fields: dict[str, object], message: str) -> None:
    with pytest.raises(lmi.LmiError, match=message.format("chat")):
        hello.chat(QUESTION, **fields)
    with pytest.raises(lmi.LmiError, match=message.format("stream_chat")):
        next(hello.stream_chat(QUESTION, **fields))


def test_neutral_fields_of_a_chat(hello: lmi.LoadedModel) -> None:
    fields = {"n": 1, "logprobs": False, "stream": False, "stream_options": None, "model": "hello"}
    assert hello.chat(QUESTION, **fields).text == ANSWER


def test_stream_as_an_argument(hello: lmi.LoadedModel) -> None:
    with pytest.raises(lmi.InvalidPayload, match="the method `stream_chat` yields the text in pieces"):
        hello.chat(QUESTION, stream=True)
    with pytest.raises(lmi.InvalidPayload, match="the method `stream` yields the text in pieces"):
        hello.generate(QUESTION, stream=True)


def test_tools_in_a_stream(model_dir: ModelDirectory) -> None:
    properties = {"serving.properties": SCRIPTED + "option.tool_call_parser=hermes\n"}
    with lmi.load(model_dir(properties), scripted_text="Hi") as model:
        with pytest.raises(lmi.InvalidPayload, match="`tools` must be omitted in `stream_chat`"):
            next(model.stream_chat("x", tools=[TOOL]))
        assert list(model.stream_chat("x", tools=[TOOL], tool_choice="none")) == ["Hi"]


async def test_in_a_notebook_whose_event_loop_runs(hello: lmi.LoadedModel) -> None:
    assert hello.generate(QUESTION).text == ANSWER
    assert "".join(map(str, hello.stream(QUESTION))) == ANSWER


async def test_not_started_and_closed(model_dir: ModelDirectory) -> None:
    model = lmi.AsyncModel(model_dir({"serving.properties": SCRIPTED}))
    with pytest.raises(lmi.ModelNotReady, match="the model is not started: use `async with`, or await `start`"):
        await model.generate("x")
    async with model:
        assert str(await model.generate("x")) == ANSWER
    with pytest.raises(lmi.ModelNotReady, match="the model is closed"):
        await model.generate("x")


async def test_asynchronous(model_dir: ModelDirectory) -> None:
    async with lmi.AsyncModel(model_dir({"serving.properties": SCRIPTED}), scripted_text="one two") as model:
        assert model.name == "model"
        both = await asyncio.gather(model.generate("x"), model.chat("x"))
        assert [str(each) for each in both] == ["one two", "one two"]
        assert [str(piece) async for piece in model.stream("x")] == ["one", " two"]
        assert [text async for text in model.stream_chat("x")] == ["one", " two"]


async def test_prompts_of_a_list_load_an_idle_model(model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    create, start = ScriptedBackend.__init__, ScriptedBackend.start

    def create_unloaded(backend: ScriptedBackend, setup: Any) -> None:
        create(backend, setup)
        del backend.max_length  # as of engines

    async def load(backend: ScriptedBackend) -> None:
        await start(backend)
        backend.max_length = 100

    monkeypatch.setattr(ScriptedBackend, "__init__", create_unloaded)
    monkeypatch.setattr(ScriptedBackend, "start", load)
    async with lmi.AsyncModel(model_dir({"serving.properties": SCRIPTED}), scripted_text="one") as model:
        registry = model._dispatcher.registry
        assert await registry.make_idle(registry.find_registered(model.name))
        assert [str(each) for each in await model.generate(["x", "y"])] == ["one", "one"]


def test_ctrl_c_ends_the_request_and_leaves_the_model(model_dir: ModelDirectory) -> None:
    with lmi.load(model_dir({"serving.properties": SCRIPTED}), scripted_delay=0.05) as model:
        stream = model.stream("x")
        next(stream)  # generates by now

        def generate_until_interrupted() -> None:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
            list(model.generate(["x"] * 1000, max_new_tokens=5))

        with pytest.raises(KeyboardInterrupt):
            generate_until_interrupted()
        assert model.generate("x").text == ANSWER


def test_the_end_of_the_program_ends_the_engine() -> None:
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", WITHOUT_AN_END], capture_output=True, text=True, timeout=110
    )
    started, answer = child.stdout.splitlines()
    assert (answer, child.stderr, child.returncode) == (ANSWER, "", 0)
    assert not any(psutil.pid_exists(int(each)) for each in started.split())


def test_closed_model(model_dir: ModelDirectory) -> None:
    model = lmi.load(model_dir({"serving.properties": SCRIPTED}))
    assert repr(model) == "<LoadedModel model>"
    model.close()
    model.close()
    assert repr(model) == "<LoadedModel model, closed>"
    with pytest.raises(lmi.ModelNotReady, match="the model is closed"):
        model.generate("x")
    with pytest.raises(lmi.ModelNotReady, match="the model is closed"):
        next(model.stream("x"))


def test_closed_while_a_stream_is_open(model_dir: ModelDirectory, caplog: pytest.LogCaptureFixture) -> None:
    model = lmi.load(model_dir({"serving.properties": SCRIPTED}), scripted_delay=60)
    text, chat = model.stream("x"), model.stream_chat("x")
    assert [str(next(text)), next(chat)] == ["Deep", "Deep"]
    model.close()
    with pytest.raises(lmi.ModelNotReady, match="the model is closed"):
        next(text)
    assert list(text) == []
    chat.close()
    assert caplog.messages == []


async def test_cancelled_request_leaves_no_task(model_dir: ModelDirectory) -> None:
    async with lmi.AsyncModel(model_dir({"serving.properties": SCRIPTED}), scripted_delay=60) as model:
        before = asyncio.all_tasks()
        stream = model.stream("x")
        assert str(await anext(stream)) == "Deep"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 0.01)  # the next piece takes a minute
        await stream.aclose()
        assert asyncio.all_tasks() == before


def test_what_cannot_be_loaded(model_dir: ModelDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(lmi.ConfigurationError, match=r"does not exist: give .*\(org/name\)$"):
        lmi.load(tmp_path / "none")
    directory = model_dir({"serving.properties": SCRIPTED})
    with pytest.raises(lmi.ConfigurationError, match="scripted_delay"):
        lmi.load(directory, scripted_delay=-1)
    with pytest.raises(
        lmi.ConfigurationError, match=r"^options of lmi\.load: an option needs .* Given: option\.dtype=$"
    ):
        lmi.load(directory, dtype="")
    monkeypatch.chdir(directory.parent)
    with pytest.raises(lmi.ConfigurationError, match=f"start in a folder that has no subfolder {directory.name}$"):
        lmi.load(f"{directory.name}/helo")


def test_embeddings(model_dir: ModelDirectory) -> None:
    with pytest.raises(lmi.ConfigurationError, match="model model generates no text: use `lmi serve`"):
        lmi.load(model_dir({"serving.properties": SCRIPTED}), task="text-embedding")


def test_model_function(model_dir: ModelDirectory) -> None:
    code = "from djl_python import Output\n\ndef handle(inputs):\n    return Output().add('mine')\n"
    with pytest.raises(lmi.ConfigurationError, match=r"its model function answers requests.* use `lmi serve`"):
        lmi.load(model_dir({"model.py": code}))
