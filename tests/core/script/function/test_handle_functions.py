"""model.py files with a model function, in their worker processes, over a real socket."""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy
import psutil
import pytest

from lmi_core.errors import AdapterNotFound, ConfigurationError, FormatterFailed
from lmi_core.script.djl_names.nd_list import from_nd_list, to_nd_list
from lmi_core.script.function.pool import FunctionPool
from lmi_core.script.function.runtime import ModelFunction
from tests.conftest import Answer, LoopClock, ModelDirectory, RunningServer, Serve
from tests.loop_clock import until

SCRIPTS = Path(__file__).parents[3] / "model_scripts"

ServeScript = Callable[..., Awaitable[RunningServer]]


@pytest.fixture
def serve_script(serve: Serve, model_dir: ModelDirectory) -> ServeScript:
    """`await serve_script("echo_handler", "minWorkers=2")` serves a copy of that script's folder."""

    async def start(name: str, properties: str = "") -> RunningServer:
        directory = model_dir({"serving.properties": properties})
        shutil.copytree(SCRIPTS / name, directory, dirs_exist_ok=True)
        return await serve(directory)

    return start


@pytest.fixture
async def echo(serve_script: ServeScript) -> RunningServer:
    return await serve_script("echo_handler", "option.prefix=>\n")


def model_function(server: RunningServer) -> ModelFunction:
    function = server.model.function
    assert function is not None
    return function


async def ask(server: RunningServer, what: str, **more: object) -> Answer:
    return await server.post("/invocations", {"what": what, **more})


async def test_text(echo: RunningServer) -> None:
    answer = await echo.post("/invocations", {"text": "hello"})
    assert (answer.status, answer.content_type, answer.body) == (200, "text/plain; charset=utf-8", b">hello")


async def test_every_route_of_generation_leads_to_it(echo: RunningServer) -> None:
    for path in ("/predictions/model", "/v1/chat/completions"):
        assert (await echo.post(path, {"text": "hello"})).body == b">hello"


async def test_model_is_loaded_in_its_folder_with_its_options(echo: RunningServer) -> None:
    answer = await ask(echo, "loaded")
    directory = str(echo.model.plan.directory.resolve())
    assert answer.content_type == "application/json"
    assert (
        answer.json().items()
        >= {
            "prefix": ">",
            "dir": directory,
            "cwd": directory,
            "shared": "beside model.py",
        }.items()
    )


async def test_content_types(echo: RunningServer) -> None:
    csv = await echo.post("/invocations", data=b"a,b\n1,2\n", headers={"Content-Type": "text/csv"})
    assert csv.json() == [{"a": "1", "b": "2"}]
    binary = await echo.post("/invocations", data=b"\x00\x01\xff", headers={"Content-Type": "application/octet-stream"})
    assert (binary.body, binary.content_type) == (b"\xff\x01\x00", "application/octet-stream")
    assert binary.headers["X-Length"] == "3"
    arrays = to_nd_list([numpy.arange(6, dtype="float32").reshape(2, 3)])
    doubled = await echo.post("/invocations", data=arrays, headers={"Content-Type": "tensor/ndlist"})
    assert doubled.content_type == "tensor/ndlist"
    assert from_nd_list(doubled.body)[0].tolist() == [[0, 2, 4], [6, 8, 10]]


async def test_error_of_the_handler(echo: RunningServer) -> None:
    answer = await ask(echo, "error")
    assert (answer.status, answer.json()) == (418, {"code": 418, "message": "teapot", "error": "no such thing"})


async def test_no_content(echo: RunningServer) -> None:
    answer = await ask(echo, "nothing")
    assert (answer.status, answer.body) == (204, b"")


async def test_finalize(echo: RunningServer) -> None:
    assert (await ask(echo, "finalize")).body == b"done"
    assert (await ask(echo, "finished")).json() == ["yes"]


@pytest.mark.parametrize(
    ("what", "status", "message"),
    [
        ("raise", 424, "handle in model.py raised KeyError: 'colour'"),
        ("exit", 424, "handle in model.py raised SystemExit: 3"),
        ("wrong", 424, "the model function must return an Output. Returned: str"),
        ("memory", 507, "handle in model.py raised MemoryError: too big"),
        (
            "allocation",  # as PyTorch says it on the CPU
            507,
            "handle in model.py raised RuntimeError: not enough memory: you tried to allocate 8 bytes",
        ),
    ],
)
async def test_failure_of_one_request(
    capfd: pytest.CaptureFixture[str], serve_script: ServeScript, what: str, status: int, message: str
) -> None:
    echo = await serve_script("echo_handler")
    before = (await ask(echo, "loaded")).json()["pid"]
    answer = await echo.post("/invocations", {"what": what}, headers={"x-request-id": "r9"})
    assert (answer.status, answer.json()["error"]) == (status, message)
    assert (await ask(echo, "loaded")).json()["pid"] == before
    if what != "wrong":
        log = ""
        async with asyncio.timeout(30):  # the worker's log is written by a thread, perhaps after the answer
            while ": model model: request r9: handle in model.py raised\n" not in log or 'model.py", line' not in log:
                log += capfd.readouterr().err
                await asyncio.sleep(0.01)
        assert "lmi_core" not in log.split("request r9")[1].split('model.py", line')[0].split("raised")[1]


async def test_stream(echo: RunningServer) -> None:
    answer = await ask(echo, "stream", text="one two three")
    assert (answer.status, answer.content_type) == (200, "application/jsonlines")
    assert answer.json_lines() == [{"outputs": "one"}, {"outputs": "two"}, {"outputs": "three"}]


async def test_failure_within_a_stream(echo: RunningServer) -> None:
    answer = await ask(echo, "stream", text="one two!")
    assert answer.status == 200
    *_, last = answer.json_lines()
    assert last == {"error": "handle in model.py raised ValueError: the end is too loud", "code": 424}


async def test_endless_loop_is_killed_with_its_worker(clock: LoopClock, echo: RunningServer) -> None:
    before = (await ask(echo, "loaded")).json()["pid"]
    (process,) = model_function(echo).pool.replicas.members
    looping = asyncio.create_task(ask(echo, "loop"))
    await until(lambda: process.isolation.inside == 1)
    waiting = asyncio.create_task(ask(echo, "loaded"))
    await until(lambda: echo.dispatcher.in_flight == 2)
    await clock.pass_time(120)
    answer = await looping
    assert answer.status == 504
    assert answer.json()["error"] == "the model function did not answer within option.predict_timeout=120 seconds"
    assert (await waiting).json()["pid"] != before


async def test_calls_fail_when_a_killed_worker_is_not_restarted(clock: LoopClock, serve_script: ServeScript) -> None:
    server = await serve_script("echo_handler", "retry_threshold=0\n")
    looping = asyncio.create_task(ask(server, "loop"))
    waiting = asyncio.create_task(ask(server, "loaded"))
    await until(lambda: server.dispatcher.in_flight == 2)
    await until(lambda: model_function(server).pool.replicas.members[0].isolation.inside == 1)
    await clock.pass_time(120)
    assert ((await looping).status, (await waiting).status) == (504, 503)


async def test_worker_that_dies_is_restarted(echo: RunningServer) -> None:
    dying = asyncio.create_task(ask(echo, "die"))
    waiting = asyncio.create_task(ask(echo, "loaded"))
    answer = await dying
    assert answer.status == 500
    assert answer.json()["error"] == "the request was lost: the worker ended with exit code 7"
    assert (await waiting).status == 200
    assert (await echo.get("/ping")).status == 200


async def two_at_work(server: RunningServer, folder: Path) -> set[bytes]:
    """Return the ids of the processes that work, where none ends its request before there are two."""
    folder.mkdir()
    answers = [ask(server, "together", folder=str(folder), workers=2) for _ in range(4)]
    return {answer.body for answer in await asyncio.gather(*answers)}


async def first_end(clock: LoopClock, pool: FunctionPool) -> None:
    """Let time pass until one of the processes begins to end."""
    before = len(pool.replicas.members)
    while len(pool.replicas.members) == before:
        await clock.pass_time(1)


async def test_further_workers_are_started_when_all_are_busy(serve_script: ServeScript, tmp_path: Path) -> None:
    server = await serve_script("echo_handler", "minWorkers=1\nmaxWorkers=2\n")
    assert len(model_function(server).pool.replicas.members) == 1
    pids = await two_at_work(server, tmp_path / "pids")
    assert len(pids) == len(model_function(server).pool.replicas.members) == 2


async def test_further_workers_end_when_they_are_idle(
    clock: LoopClock, serve_script: ServeScript, tmp_path: Path
) -> None:
    server = await serve_script("echo_handler", "minWorkers=1\nmaxWorkers=2\nmax_idle_time=60\n")
    pool = model_function(server).pool
    for name in ("one", "two"):
        assert len(await two_at_work(server, tmp_path / name)) == len(pool.replicas.members) == 2
        await first_end(clock, pool)
        (kept,) = pool.replicas.members
        assert kept.is_available
        assert (await ask(server, "loaded")).json()["pid"] == kept.process_id


async def test_stop_while_an_idle_worker_ends(clock: LoopClock, serve_script: ServeScript, tmp_path: Path) -> None:
    server = await serve_script("echo_handler", "minWorkers=1\nmaxWorkers=2\nmax_idle_time=60\n")
    pool = model_function(server).pool
    await two_at_work(server, tmp_path / "pids")
    workers = [psutil.Process(process.process_id) for process in pool.replicas.members]
    await first_end(clock, pool)
    await pool.stop()
    assert [worker.is_running() for worker in workers] == [False, False]


async def test_answers_of_at_most_max_output_size(serve_script: ServeScript) -> None:
    server = await serve_script("echo_handler", "option.max_output_size=20\n")
    assert (await ask(server, "echo", text="x" * 20)).body == b"x" * 20
    error = "the model function answered with more than option.max_output_size=20 bytes"
    large = await ask(server, "echo", text="x" * 21)
    assert (large.status, large.json()["error"]) == (424, error)
    stream = await ask(server, "stream", text="one two")
    assert (stream.status, stream.json_lines()) == (200, [{"outputs": "one"}, {"error": error, "code": 424}])


async def test_async_handler_works_on_several_requests(serve_script: ServeScript) -> None:
    server = await serve_script("async_handler")
    waiting = asyncio.create_task(server.post("/invocations", {"text": "first", "wait": True}))
    second = await server.post("/invocations", {"text": "second", "open": True})
    assert second.json() == {"said": "second"}
    assert (second.content_type, second.headers["X-Session"]) == ("application/json", "s1")
    assert (await waiting).json() == {"said": "first"}


async def test_async_stream(serve_script: ServeScript) -> None:
    server = await serve_script("async_handler")
    answer = await server.post("/invocations", {"stream": 3})
    assert answer.content_type == "application/jsonlines"
    assert answer.body.splitlines() == [b'{"text": "token 0"}', b'{"text": "token 1"}', b'{"text": "token 2"}']


async def test_failures_of_an_async_handler(serve_script: ServeScript) -> None:
    server = await serve_script("async_handler")
    raised = await server.post("/invocations", {"raise": True})
    assert (raised.status, raised.json()["error"]) == (424, "handle in model.py raised ValueError: not today")
    failed = await server.post("/invocations", {"failing_stream": True})
    assert (failed.status, failed.json()) == (424, {"error": "it broke", "code": 424})


async def test_client_that_leaves_a_stream(serve_script: ServeScript) -> None:
    server = await serve_script("async_handler")
    async with server.client.post("/invocations", json={"stream": 99}) as response:
        assert await response.content.readline() == b'{"text": "token 0"}\n'
    assert (await server.post("/invocations", {"wait_until_closed": True})).json() == {"said": "closed"}


async def many(server: RunningServer, *texts: str) -> list[Any]:
    answers = await asyncio.gather(*(server.post("/invocations", {"text": text}) for text in texts))
    return [(answer.status, answer.json()) for answer in answers]


@pytest.fixture
async def batching(serve_script: ServeScript) -> RunningServer:
    return await serve_script("batch_handler", "batch_size=2\nmax_batch_delay=60000\n")


async def test_batch(clock: LoopClock, serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"serving.properties": "batch_size=3\nmax_batch_delay=60000\n", "adapters/french/x": ""})
    shutil.copytree(SCRIPTS / "batch_handler", directory, dirs_exist_ok=True)
    server = await serve(directory)
    expected = [(200, {"text": text, "of": 3, "adapters": ["french"]}) for text in "abc"]
    assert await many(server, "a", "b", "c") == expected
    alone = asyncio.create_task(many(server, "alone"))
    await until(lambda: server.dispatcher.in_flight == 1)
    await clock.pass_time(60)
    assert await alone == [(200, {"text": "alone", "of": 1, "adapters": ["french"]})]


async def test_adapters_outlive_the_worker(serve_script: ServeScript, tmp_path: Path) -> None:
    """The next one gets those that were registered meanwhile, and not those that were removed."""
    server = await serve_script("batch_handler", "minWorkers=1\nmaxWorkers=1\n")
    function = model_function(server)
    for name in ("german", "french", "dutch"):
        await server.model.adapters.add(name, str(tmp_path))
    await server.model.adapters.remove("french")
    (process,) = function.pool.replicas.members
    killed = process.process_id
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await until(lambda: not process.is_available)
    await process.available()
    expected = {"text": "a", "of": 1, "adapters": ["dutch", "german"]}
    assert await many(server, "a") == [(200, expected)]
    assert process.process_id != killed


async def test_adapters_that_come_and_go(serve_script: ServeScript, tmp_path: Path) -> None:
    server = await serve_script("batch_handler", "minWorkers=2\nmaxWorkers=3\n")
    adapters = server.model.adapters
    await adapters.add("german", str(tmp_path))
    assert await many(server, "a", "b") == [(200, {"text": text, "of": 1, "adapters": ["german"]}) for text in "ab"]
    with pytest.raises(FormatterFailed, match=r"there is no function `update_adapter`. The file has: "):
        await adapters.replace("german", str(tmp_path))
    await adapters.remove("german")
    assert await many(server, "a", "b") == [(200, {"text": text, "of": 1, "adapters": []}) for text in "ab"]
    with pytest.raises(AdapterNotFound):
        await adapters.remove("german")


async def test_batch_that_fails(batching: RunningServer) -> None:
    assert await many(batching, "a", "teapot") == 2 * [
        (418, {"code": 418, "message": "prediction failure", "error": "all of you"})
    ]
    too_few = "the model function answered a batch of 2 with 1 contents: it must return one for each request"
    assert await many(batching, "a", "too few") == 2 * [(424, {"error": too_few, "code": 424})]
    streams = "a model function that streams its answer needs batch_size=1"
    assert await many(batching, "a", "stream") == 2 * [(424, {"error": streams, "code": 424})]


SHUFFLED = """\
from djl_python import Input, Output

def handle(inputs):
    if inputs.is_empty():
        return None
    outputs = Output()
    for i, item in reversed(list(enumerate(inputs.get_batches()))):
        outputs.add_as_string("note", key="note", batch_index=i)
        outputs.add_as_string(item.get_as_string() + "!", batch_index=i)
    if b"odd" in inputs.get_content().get_values():
        outputs.add("whose?")
    return outputs
"""


async def test_contents_of_a_batch_go_by_their_index(serve: Serve, model_dir: ModelDirectory) -> None:
    properties = {"serving.properties": "batch_size=2\nmax_batch_delay=60000\n", "model.py": SHUFFLED}
    server = await serve(model_dir(properties))
    answers = await asyncio.gather(*(server.post("/invocations", data=data) for data in (b"a", b"b")))
    assert [answer.body for answer in answers] == [b"a!", b"b!"]
    answers = await asyncio.gather(*(server.post("/invocations", data=data) for data in (b"a", b"odd")))
    assert [answer.status for answer in answers] == [424, 424]
    assert "with 5 contents (batch_001.note, batch_001.data, " in answers[0].json()["error"]


async def test_data_is_the_answer_among_several_contents(serve: Serve, model_dir: ModelDirectory) -> None:
    script = (
        "from djl_python import Output\n\n\ndef handle(inputs):\n"
        "    return Output().add('meta', key='meta').add('answer', key='data').add('more', key='more')\n"
    )
    server = await serve(model_dir({"model.py": script}))
    assert (await server.post("/invocations", {})).body == b"answer"


BROKEN = [
    ("def handle(inputs):\n    return 1 +\n", "return 1 +", "SyntaxError"),
    ("import nothing_of_that_name\n\ndef handle(inputs):\n    pass\n", "line 1, in <module>", "nothing_of_that_name"),
    ("def handle(inputs):\n    raise MemoryError('too big')\n", "line 2, in handle", "MemoryError: too big"),
    ("import sys\n\ndef handle(inputs):\n    sys.exit('bye')\n", "line 4, in handle", "SystemExit: bye"),
    ("import sys\nsys.exit('bye')\n\ndef handle(inputs):\n    pass\n", "line 2, in <module>", "SystemExit: bye"),
]


@pytest.mark.parametrize(("script", "line", "error"), BROKEN)
async def test_script_that_cannot_be_loaded(
    serve: Serve, model_dir: ModelDirectory, script: str, line: str, error: str
) -> None:
    directory = model_dir({"serving.properties": "", "model.py": script})
    with pytest.raises(ConfigurationError) as raised:
        await serve(directory)
    message = raised.value.message
    assert message.startswith(f"{directory.resolve() / 'model.py'} cannot be loaded\n")
    assert line in message
    assert error in message
    assert "lmi_core" not in message


async def test_entry_point_and_handler_options(serve: Serve, model_dir: ModelDirectory) -> None:
    script = "from djl_python import Output\n\n\ndef infer(inputs):\n    return Output().add('inferred')\n"
    properties = "option.entryPoint=serve.py\noption.handler=infer\n"
    server = await serve(model_dir({"serving.properties": properties, "serve.py": script}))
    assert (await server.post("/invocations", {})).body == b"inferred"
