"""Models and adapters that come, change and go while others are asked: no answer is wrong, and none is lost."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.clients.test_every_dialect import DIALECTS, HELLO
from tests.conftest import SCRIPTED, Answer
from tests.lmi_process import lmi_serve
from tests.plugins.torch_engine.adapters.lora_adapters import save_adapter
from tests.plugins.torch_engine.tiny_models import reference_model
from tests.soak.answers import Wrong
from tests.soak.questions import ADAPTER_HEADER, BODY_NAMES, Question, with_length
from tests.soak.target import Target

PROMPT = "Tell me a story."
LENGTH = 12
CLIENTS = 10
ROUNDS = 4  # of all that operators do, in turn, while the clients ask
ADAPTERS = "abcd"

TORCH = """\
option.rolling_batch=torch
option.max_loras=2
option.max_rolling_batch_size=8
job_queue_size=500
"""
FUNCTION = """\
from djl_python import Input, Output

def handle(inputs):
    return None if inputs.is_empty() else Output().add_as_json({"twice": inputs.get_as_json()["text"] * 2})
"""


def of_model(model: str, dialect: str) -> Question:
    """Return the question of a dialect to one of several models."""
    asked = DIALECTS[dialect]
    payload = with_length(asked.payload(PROMPT), LENGTH)
    if asked.path in BODY_NAMES or "model" in payload:
        payload |= {"model": model}
    path = asked.path.replace("/hello", f"/{model}")
    return Question(f"{model} {dialect}", path, payload, dialect, {"X-Amzn-SageMaker-Target-Model": model})


def of_adapters() -> Iterator[Question]:
    """Yield a question to each adapter, named in another place each, and one to the model beside them."""
    body, plain = of_model("hello", "lmi"), of_model("hello", "openai stream")
    yield replace(body, name="a in the body", payload=body.payload | {"adapters": "a"})
    yield replace(body, name="b in a header", headers=body.headers | {ADAPTER_HEADER: "b"})
    yield replace(plain, name="c in the query", path=f"{plain.path}?adapter=c")
    yield replace(plain, name="d as the model", payload=plain.payload | {"model": "d"})


def questions() -> list[Question]:
    asked = [of_model(model, dialect) for model in ("hello", "other") for dialect in DIALECTS]
    twice = Question("function", "/predictions/function", {"text": "ab"})
    return [*asked, *of_adapters(), *of_adapters(), *of_adapters(), twice]


def save_store(folder: Path) -> Path:
    """Write the models of the start, and beside the store what comes later."""
    store, model = folder / "store", reference_model(HELLO)
    shutil.copytree(HELLO, store / "hello", ignore=shutil.ignore_patterns("*.py", "README.md", "serving.properties"))
    files = {
        "store/hello/serving.properties": TORCH,
        "store/other/serving.properties": f"{SCRIPTED}option.scripted_text=another model\n",
        "store/function/model.py": FUNCTION,
        "store/function/serving.properties": "job_queue_size=500\n",
        "later/one/serving.properties": f"{SCRIPTED}option.scripted_text=one\n",
        "later/two/serving.properties": f"{SCRIPTED}option.scripted_text=two\n",
        "later/wrong/serving.properties": "option.rolling_batch=torch\noption.model_id=nowhere\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for seed, name in enumerate(ADAPTERS):
        save_adapter(store / "hello" / "adapters" / name, model, seed)
        save_adapter(folder / "later" / f"e{seed}", model, seed + len(ADAPTERS))
    return store


class Operator:
    """Whoever changes the server while it is asked; what it does must be done, and be seen at once."""

    def __init__(self, target: Target, later: Path) -> None:
        self.target = target
        self.later = later
        self.done: list[str] = []

    async def do(self, method: str, path: str, status: int = 200, **query: object) -> Any:
        written = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in query.items()}
        async with self.target.session.request(method, path, params=written) as response:
            if response.status != status:
                raise Wrong(f"{method} {path} {query}: {response.status} {await response.text()}")
            self.done.append(f"{method} {path}")
            return await response.json()

    async def text(self, model: str, *, adapter: str | None = None) -> tuple[int, str]:
        """Return the status and the text of one answer, which is asked for once."""
        body = with_length({"inputs": PROMPT, "parameters": {"max_new_tokens": 0}}, LENGTH)
        body |= {} if adapter is None else {"adapters": adapter}
        async with self.target.session.post(f"/predictions/{model}", json=body) as response:
            answer = Answer(response.status, response.headers, await response.read())
        return answer.status, str(answer.json().get("generated_text"))

    async def replace_a_model(self) -> None:
        """Have a new version take the place of an old one, under clients that name none."""
        await self.do("POST", "/models", url=self.later / "one", model_name="third")
        over, found = asyncio.Event(), set[tuple[int, str]]()

        async def ask() -> None:
            while not over.is_set():
                found.add(await self.text("third"))

        clients = [asyncio.create_task(ask()) for _ in range(4)]
        await self.do("POST", "/models", url=self.later / "two", model_name="third", model_version="2", default=True)
        await self.expect("third", (200, "two"))
        (workflow,) = [each for each in await self.do("GET", "/models/third") if "version" not in each]
        assert workflow["models"][0]["default"] is False
        over.set()
        await asyncio.gather(*clients)
        if not found <= {(200, "one"), (200, "two")}:
            raise Wrong(f"a model that is replaced: {found}")
        await self.remove_under_calls("third")

    async def remove_under_calls(self, model: str) -> None:
        """Remove a model that is asked: whoever found it has its answer, and all others an error that says so."""
        asked = [asyncio.create_task(self.text(model)) for _ in range(8)]
        await self.do("DELETE", f"/models/{model}")
        if wrong := [each for each in await asyncio.gather(*asked) if each not in ((200, "two"), (404, "None"))]:
            raise Wrong(f"a model that is removed: {wrong}")
        await self.expect(model, (404, "None"))

    async def scale(self) -> None:
        """Change queues and numbers of processes."""
        await self.do("PUT", "/models/other", job_queue_size=random.randrange(400, 500))
        await self.do("PUT", "/models/function", min_worker=2, max_worker=2)
        await self.do("PUT", "/models/function", min_worker=1, max_worker=1)

    async def change_adapters(self) -> None:
        """Load, pin, replace and remove an adapter of the model that all ask."""
        await self.do("POST", "/models/hello/adapters", name="e", src=self.later / "e0")
        await self.do("POST", "/models/hello/adapters", status=409, name="e", src=self.later / "e1")
        first = await self.expect("hello", None, adapter="e")
        await self.do("POST", "/models/hello/adapters/e/update", pin=True)
        await self.do("POST", "/models/hello/adapters/e/update", src=self.later / "e1")
        second = await self.expect("hello", None, adapter="e")
        assert first != second
        await self.do("POST", "/models/hello/adapters/e/update", src=self.later / "e0", pin=False)
        await self.expect("hello", first, adapter="e")
        await self.do("DELETE", "/models/hello/adapters/e")
        status, _ = await self.text("hello", adapter="e")
        assert status == 424

    async def fail(self) -> None:
        """Register what cannot be loaded, which leaves nothing behind."""
        await self.do("POST", "/models", status=400, url=self.later / "wrong")
        await self.do("POST", "/models", status=409, url=self.later / "one", model_name="other")
        await self.do("GET", "/models/wrong", status=404)

    async def expect(
        self, model: str, wanted: tuple[int, str] | None, *, adapter: str | None = None
    ) -> tuple[int, str]:
        """Return the answer, which is `wanted`; None is any with status 200."""
        found = await self.text(model, adapter=adapter)
        if found != wanted and (wanted is not None or found[0] != 200):
            raise Wrong(f"{model}, adapter {adapter}: {found}, not {wanted}")
        return found


async def ask_on(target: Target, asked: list[Question], over: asyncio.Event, seed: int) -> None:
    """Ask a share of the questions, and then any until it is over; every answer is the one from before."""
    numbers, own = random.Random(seed), asked[seed::CLIENTS]
    while own or not over.is_set():
        question = own.pop() if own else numbers.choice(asked)
        target.check(question, await target.ask(question))
        target.tally.answered[question.name] += 1


@asynccontextmanager
async def clients(target: Target, asked: list[Question]) -> AsyncIterator[None]:
    """Have clients ask meanwhile, each of which ends the whole where an answer is wrong or lost."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        for seed in range(CLIENTS):
            group.create_task(ask_on(target, asked, over, seed))
        yield
        over.set()


@pytest.mark.timeout(300)
async def test_no_answer_is_wrong_or_lost_while_models_and_adapters_come_and_go(tmp_path: Path) -> None:
    store = save_store(tmp_path)
    async with lmi_serve(store, "--port", 0, "--no-access-log") as server, Target(await server.ready()) as target:
        log = asyncio.create_task(server.line_with("no line is like this"))
        asked = questions()
        await target.learn(asked)
        assert len({target.expected[question.name] for question in of_adapters()}) == len(ADAPTERS)
        operator = Operator(target, tmp_path / "later")
        copy = store / "hello"
        async with clients(target, asked):
            loading = asyncio.create_task(operator.do("POST", "/models", url=copy, model_name="copy"))
            for _ in range(ROUNDS):
                await operator.replace_a_model()
                await operator.scale()
                await operator.change_adapters()
                await operator.fail()
            await loading
            plain = await operator.expect("hello", None)
            await operator.expect("copy", plain)
            await operator.do("DELETE", "/models/copy")
        assert target.tally.refused == 0
        assert set(target.tally.answered) == {question.name for question in asked}
        left = (await target.get("/models"))["models"]
        assert [each["modelName"] for each in left] == ["function", "hello", "other"]
        server.process.terminate()
        assert await server.process.wait() == 0
        log.cancel()
        with suppress(asyncio.CancelledError, AssertionError):
            await log
        faults = [at for at, line in enumerate(server.log) if "Traceback" in line or "never retrieved" in line]
        assert not faults, "".join(server.log[max(0, faults[0] - 3) : faults[0] + 60])
