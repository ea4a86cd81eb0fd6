"""Model functions of the rolling-batch form, which are called until each request's answer is its last."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from lmi_core.plugins.loading import load_plugins
from lmi_core.script.function.process import FunctionProcess
from lmi_core.script.function.protocol import Reply, Working
from lmi_core.script.function.setup import FunctionSetup
from lmi_core.workers.item_queue import ItemQueue
from lmi_handlers.cli.plans import read_plans
from tests.conftest import Answer, LoopClock, ModelDirectory, RunningServer, running_server
from tests.loop_clock import until

SCRIPT = Path(__file__).parents[3] / "model_scripts" / "rolling_handler"
LONG = "word " * 300  # goes on while others come
ROLLING = "option.rolling_batch=auto\n"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    properties = "option.max_rolling_batch_size=3\noption.predict_timeout=10\n"
    async with serving(tmp_path_factory.mktemp("store"), properties) as running:
        yield running


@asynccontextmanager
async def serving(folder: Path, properties: str = "", script: str | None = None) -> AsyncIterator[RunningServer]:
    directory = folder / "model"
    shutil.copytree(SCRIPT, directory)
    if script is not None:
        (directory / "model.py").write_text(script)
    (directory / "serving.properties").write_text(
        properties if "rolling_batch=" in properties else ROLLING + properties
    )
    async with running_server(directory) as running:
        yield running


async def ask(server: RunningServer, text: str, **more: object) -> Answer:
    return await server.post("/invocations", {"text": text, **more})


def process(server: RunningServer) -> FunctionProcess:
    function = server.model.function
    assert function is not None
    return function.pool.replicas.members[0]


async def call_arguments(server: RunningServer) -> dict[str, Any]:
    """Return the arguments of the function's call."""
    answer: dict[str, Any] = (await ask(server, "x", tell=True)).json()
    return answer


async def test_answer_in_several_calls(server: RunningServer) -> None:
    answer = await ask(server, "one two three")
    assert (answer.status, answer.content_type, answer.body) == (200, "application/json", b"one two three ")
    first, second, third, _ = (await call_arguments(server))["calls"][-4:]
    assert first == {"size": 1, "items": [[["data", "seed"], '{"text": "one two three"}']]}
    assert second == third == {"size": 1, "items": [[["data"], ""]]}


async def test_first_call_has_the_properties_and_a_seed(server: RunningServer) -> None:
    body = {"text": "x", "tell": True}
    answer = (await server.post("/invocations?tongue=french", body, headers={"X-Mine": "1"})).json()
    assert answer["properties"]["X-Mine"] == "1"
    assert answer["properties"]["max_rolling_batch_size"] == "3"
    assert answer["seed"].isdecimal()
    assert answer["calls"][-1]["items"][0][0] == ["tongue", "data", "seed"]


async def test_stream_comes_as_it_is_made(server: RunningServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with server.client.post("/invocations", json={"text": "one two", "later_gate": str(gate)}) as response:
        assert await response.content.readany() == b"one "
        gate.touch()
        assert await response.read() == b"two "
        assert response.headers["Transfer-Encoding"] == "chunked"


async def test_answer_of_one_call_is_whole(server: RunningServer) -> None:
    answer = await ask(server, "one")
    assert (answer.body, answer.headers["Content-Length"]) == (b"one ", "4")


@pytest.mark.parametrize("binary", [False, True])
async def test_requests_join_while_others_run(server: RunningServer, binary: bool) -> None:
    texts = ["e " * 100, "f " * 200, "g h "]
    first = asyncio.create_task(ask(server, LONG, company=3, binary=binary))
    others = [asyncio.create_task(ask(server, text, binary=binary)) for text in texts]
    bodies = [answer.body for answer in await asyncio.gather(first, *others)]
    assert bodies == [LONG.encode(), *(text.encode() for text in texts)]
    sizes = [call["size"] for call in (await call_arguments(server))["calls"]]
    assert max(sizes) == 3


@pytest.mark.asyncio(loop_scope="function")
async def test_nothing_to_say_for_longer_than_the_timeout(
    clock: LoopClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    next_reply, passed = FunctionProcess._next, 0

    async def slow_reply(process: FunctionProcess, replies: ItemQueue[Reply | Working]) -> object:
        nonlocal passed
        reply = await next_reply(process, replies)
        if isinstance(reply, Working):
            passed += 1
            await clock.pass_time(50)
        return reply

    monkeypatch.setattr(FunctionProcess, "_next", slow_reply)
    async with serving(tmp_path, "option.predict_timeout=60\n") as server:
        answer = await ask(server, "late", waits=4)
    assert (answer.status, answer.body, passed) == (200, b"late ", 4)


@pytest.mark.asyncio(loop_scope="function")
async def test_call_that_takes_too_long(clock: LoopClock, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tmp_path, "option.predict_timeout=100\noption.max_rolling_batch_size=2\n") as server:
        late = [asyncio.create_task(ask(server, "late", sleep=1000)) for _ in range(2)]
        await until(lambda: process(server).isolation.inside == 2)
        waiting = asyncio.create_task(ask(server, "waiting"))
        await until(lambda: server.dispatcher.in_flight == 3)
        await clock.pass_time(100)
        assert [(await task).status for task in late] == [504, 504]
        assert (await waiting).body == b"waiting "
    killed = [record for record in caplog.records if record.message.endswith("is killed")]
    assert len(killed) == 1


@pytest.mark.parametrize("text", ["one", "one two"])
@pytest.mark.parametrize("binary", [False, True])
async def test_error_of_one_request(server: RunningServer, text: str, binary: bool) -> None:
    failing, other = await asyncio.gather(
        ask(server, text, error="no such thing", binary=binary), ask(server, "a b c", binary=binary)
    )
    assert other.body == b"a b c "
    if text == "one":
        assert (failing.status, failing.json()) == (418, {"error": "no such thing", "code": 418})
    else:
        assert (failing.status, failing.body) == (200, b'one {"error":"no such thing","code":424}')


async def test_error_as_older_functions_write_it(server: RunningServer) -> None:
    answer = await ask(server, "one", json_error=True)
    assert (answer.status, answer.json()) == (418, {"code": 418, "error": "teapot"})


async def test_content_types(tmp_path: Path) -> None:
    async with serving(tmp_path, "option.output_formatter=jsonlines\n") as server:
        plain, other = await asyncio.gather(ask(server, "a"), ask(server, "b", type="text/event-stream"))
    assert (plain.content_type, other.content_type) == ("application/jsonlines", "text/event-stream")


async def test_function_that_raises_fails_the_batch_and_forgets_it(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    async with serving(tmp_path) as server:
        waiting = asyncio.create_task(ask(server, LONG, company=2))
        request = server.post("/invocations", {"text": "x y", "raise": "no"}, headers={"x-request-id": "r7"})
        failing = asyncio.create_task(request)
        for answer in await asyncio.gather(waiting, failing):
            assert answer.status == 200
            assert answer.body.endswith(b'{"error":"handle in model.py raised ValueError: no","code":424}')
        log = ""
        async with asyncio.timeout(30):  # a thread writes the log, perhaps after the answer
            while "r7: handle in model.py raised\n" not in log:
                log += capfd.readouterr().err
                await asyncio.sleep(0.01)
        assert (await ask(server, "again")).body == b"again "
        alone = await ask(server, "x", **{"raise": "never"})
        assert (alone.status, alone.json()["error"]) == (424, "handle in model.py raised ValueError: never")


async def test_answer_that_is_an_error_is_everyones(server: RunningServer) -> None:
    answer = await ask(server, "one", refuse=True)
    assert (answer.status, answer.json()["error"]) == (418, "all of you")
    assert (await ask(server, "again")).body == b"again "


async def test_answer_of_a_function_that_is_not_of_this_form(server: RunningServer) -> None:
    answer = await ask(server, "one", wrong="no JSON")
    assert answer.status == 424
    assert answer.json()["error"] == (
        "handle in model.py answered request 0 of a rolling batch with 'no JSON': each content must be JSON with "
        "`data` and `last`, or come from Output.binary_encode. A function that answers a request in one call needs "
        "option.rolling_batch=disable"
    )


async def test_code_that_is_no_number(server: RunningServer) -> None:
    answer = await ask(server, "one", wrong='{"data": "", "last": true, "code": "teapot"}')
    assert (answer.status, answer.json()["error"]) == (
        424,
        "handle in model.py answered request 0 of a rolling batch with a `code` that is not a number: 'teapot'",
    )
    assert (await ask(server, "again")).body == b"again "


async def test_client_that_leaves(server: RunningServer, tmp_path: Path) -> None:
    """The function counts on the places of its requests: what it gives of the one whose client left is dropped."""
    gate = tmp_path / "gate"
    async with server.client.post("/invocations", json={"text": "a b c d", "later_gate": str(gate)}) as response:
        stopping = asyncio.create_task(ask(server, "e"))
        assert await response.content.readany() == b"a "
        await until(lambda: server.dispatcher.in_flight == 2)
    await until(lambda: server.dispatcher.in_flight == 1)
    gate.touch()
    assert (await stopping).body == b"e "
    answers = await asyncio.gather(ask(server, "e f g"), ask(server, "h i"))
    assert [answer.body for answer in answers] == [b"e f g ", b"h i "]
    while process(server).isolation.inside:
        await asyncio.sleep(0)


async def test_adapters_are_registered_between_calls(server: RunningServer) -> None:
    running = asyncio.create_task(ask(server, " ".join("abcdefgh"), sleep=0.01))
    answer = await server.post("/models/model/adapters?name=french&src=here")
    assert answer.status == 200
    assert (await running).body == b"a b c d e f g h "
    assert {"adapter": "french"} in (await call_arguments(server))["calls"]


@pytest.mark.parametrize(
    ("properties", "rolls"),
    [
        ("", False),
        ("option.rolling_batch=disable\n", False),
        ("option.rolling_batch=vllm\n", True),
        ("option.rolling_batch=true\n", True),
        ("option.rolling_batch=auto\nbatch_size=4\n", True),
        ("option.rolling_batch=auto\noption.async_mode=true\n", False),
    ],
)
async def test_which_directories_mean_this_form(model_dir: ModelDirectory, properties: str, rolls: bool) -> None:
    directory = model_dir({"serving.properties": properties, "model.py": "def handle(inputs):\n    pass\n"})
    (plan,) = read_plans(directory, {}, load_plugins())
    assert isinstance(plan.setup, FunctionSetup)
    assert (plan.setup.load.rolling_batch_size is not None) is rolls
    assert ("in a rolling batch" in plan.runtime_reason) is rolls


async def test_asynchronous_function_is_called_once_for_each_request(tmp_path: Path) -> None:
    script = "from djl_python import Output\n\n\nasync def handle(inputs):\n    return Output().add('once')\n"
    async with serving(tmp_path, script=script) as server:
        assert (await server.post("/invocations", {})).body == b"once"


OLD_FORM = """\
from djl_python import Input, Output

pending = []

def handle(inputs):
    if inputs.is_empty():
        return None
    outputs = Output()
    for i, item in enumerate(inputs.get_batches()):
        data = item.get_as_json()
        if i >= len(pending):
            pending.append([data["inputs"], data["parameters"]["max_length"]])
        pending[i][1] -= 1
        outputs.add_as_json({"data": pending[i][0], "last": pending[i][1] == 0}, batch_index=i)
    pending[:] = [request for request in pending if request[1]]
    return outputs
"""


async def test_function_that_reads_every_item_as_json(tmp_path: Path) -> None:
    async with serving(tmp_path, "option.rolling_batch=true\n", OLD_FORM) as server:
        answer = await server.post("/invocations", {"inputs": "ab", "parameters": {"max_length": 3}})
    assert answer.body == b"ababab"
