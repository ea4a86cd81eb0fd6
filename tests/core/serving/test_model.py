import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lmi_core.admission.turns import RollingBatch
from lmi_core.errors import (
    BackendUnhealthy,
    ConfigurationError,
    GenerationFailed,
    GenerationTimeout,
    InvalidParameter,
    ModelNotReady,
    Overloaded,
    PluginError,
)
from lmi_core.formatter import ChatAnswer
from lmi_core.generation.output import GenerationStep
from lmi_core.generation.request import GenerationRequest
from lmi_core.host.off_loop import LONG_TEXT
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import ModelPlan, read_plan
from lmi_core.serving.validation import validate_all
from lmi_handlers.chat.lmi_formatters import LmiChatFormatter
from lmi_plugins.backends.scripted import Script, ScriptedBackend
from lmi_plugins.formatters.json import JsonFormatter
from lmi_plugins.formatters.none import NoFormatter
from tests.conftest import SCRIPTED, ModelDirectory
from tests.virtual_time import in_virtual_time

TINY = 0.02


class StubbornBackend(ScriptedBackend):
    """Loads until it is cancelled, or fails at once with an error that it was given."""

    name = "stubborn"
    error: Exception | None = None
    cancelled = False

    async def start(self) -> None:
        if self.error is not None:
            raise self.error
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled = True


class IllBackend(ScriptedBackend):
    name = "ill"
    stopped = False

    async def stop(self) -> None:
        self.stopped = True

    async def health(self) -> None:
        raise BackendUnhealthy("the engine is restarting")


class OwnArgumentsBackend(ScriptedBackend):
    name = "own"

    @classmethod
    def engine_arguments(cls) -> tuple[str, ...]:
        return ("swap_space", "block_size")


class AutoBackend(ScriptedBackend):
    name = "auto-scripted"
    auto_priority = 1000


@pytest.fixture
def plugins() -> Plugins:
    loaded = load_plugins()
    for backend in (StubbornBackend, IllBackend, OwnArgumentsBackend):
        loaded.backends.register(backend)
    return loaded


Plan = Callable[..., ModelPlan]


@pytest.fixture
def plan(model_dir: ModelDirectory, plugins: Plugins) -> Plan:
    """`plan("key=value ...", predict_timeout=0.1)`; the options may be shorter than what a file can say."""

    def read(properties: str = SCRIPTED, **options: object) -> ModelPlan:
        directory = model_dir({"serving.properties": properties})
        found = read_plan("m", directory, {}, plugins)
        return replace(found, options=found.options.model_copy(update=options))

    return read


Start = Callable[..., Awaitable[tuple[Model, ScriptedBackend]]]


@pytest.fixture
def started(plan: Plan, plugins: Plugins) -> Start:
    """A model that was started, and its backend."""

    async def start(properties: str = SCRIPTED, **options: object) -> tuple[Model, ScriptedBackend]:
        model = Model(plan(properties, **options), plugins.formatters)
        await model.start()
        assert isinstance(model.backend, ScriptedBackend)
        return model, model.backend

    return start


async def generate(model: Model, *prompts: str, **parameters: Any) -> list[GenerationStep]:
    requests = await validate_all([GenerationRequest(prompt, parameters) for prompt in prompts], model.backend, "r")
    async with asyncio.timeout(60):
        return [item async for item in model.generate(requests)]


def texts(steps: list[GenerationStep], prompt_index: int = 0) -> list[str]:
    return [token.text for step in steps if step.prompt_index == prompt_index for token in step.tokens]


def test_plan(plan: Plan) -> None:
    found = plan(SCRIPTED + "job_queue_size=7\nretry_threshold=3\noption.scripted_text=Hello.\n")
    assert (found.name, found.directory.name) == ("m", "model")
    assert (found.backend, found.runtime_reason) == (ScriptedBackend, "option.rolling_batch=scripted")
    assert found.server.job_queue_size == 7
    assert found.setup.properties.scripted_text == "Hello."
    assert (found.setup.directory, found.setup.retry_threshold) == (found.directory, 3)
    assert (found.formatters.whole, found.formatters.stream) == ("json", "jsonlines")


def test_plan_passes_engine_arguments_on(plan: Plan) -> None:
    assert plan("option.rolling_batch=own\noption.swap_space=4").setup.engine_arguments == {"swap_space": "4"}


@pytest.mark.parametrize(
    ("properties", "warning"),
    [
        (
            "option.swap_space=4",
            "serving.properties:2: option.swap_space has no effect: it is for option.rolling_batch=lmi-dist or "
            "vllm, and scripted has no equivalent. Given: 4",
        ),
        ("maxWorkers=3", "1 to 3 workers: scripted loads the model once, and batches all requests"),
        ("option.adapters=lora", "option.adapters=lora: there is no such folder in the model directory"),
    ],
)
def test_plan_with_warnings(plan: Plan, properties: str, warning: str) -> None:
    assert plan(SCRIPTED + properties).warnings == [warning]


@pytest.mark.parametrize(
    ("properties", "error", "message"),
    [
        ("option.rolling_batch=scriptd", PluginError, "there is no backend `scriptd`. Did you mean `scripted`?"),
        (SCRIPTED + "option.output_formatter=jsonline", PluginError, "Did you mean `jsonlines`?"),
        (SCRIPTED + "option.scripted_delay=-1", ConfigurationError, "option.scripted_delay must be a number"),
    ],
)
def test_plan_that_is_wrong(plan: Plan, properties: str, error: type[ConfigurationError], message: str) -> None:
    with pytest.raises(error) as raised:
        plan(properties)
    assert message in raised.value.message


async def test_loading_takes_too_long(plan: Plan, plugins: Plugins) -> None:
    model = Model(plan("option.rolling_batch=stubborn", model_loading_timeout=TINY), plugins.formatters)
    with pytest.raises(ConfigurationError) as raised:
        await model.start()
    assert raised.value.message == f"model m did not load within option.model_loading_timeout={TINY} seconds"
    assert isinstance(model.backend, StubbornBackend)
    assert model.backend.cancelled
    assert not model.ready


async def test_failure_to_load_is_passed_on(plan: Plan, plugins: Plugins) -> None:
    model = Model(plan("option.rolling_batch=stubborn"), plugins.formatters)
    assert isinstance(model.backend, StubbornBackend)
    model.backend.error = ConfigurationError("no weights")
    with pytest.raises(ConfigurationError, match=r"^no weights$"):
        await model.start()
    with pytest.raises(ModelNotReady):
        await model.health()


async def test_health(plan: Plan, plugins: Plugins) -> None:
    model = Model(plan(), plugins.formatters)
    with pytest.raises(ModelNotReady, match="model m is loading"):
        await model.health()
    await model.start()
    await model.health()
    await model.stop()
    with pytest.raises(ModelNotReady):
        await model.health()


async def test_health_of_the_backend(started: Start) -> None:
    model, backend = await started("option.rolling_batch=ill")
    with pytest.raises(BackendUnhealthy, match="the engine is restarting"):
        await model.health()
    await model.stop()
    assert isinstance(backend, IllBackend)
    assert backend.stopped


async def test_no_request_before_the_start_nor_after_the_stop(plan: Plan, plugins: Plugins) -> None:
    model = Model(plan(), plugins.formatters)
    for stage, state in (("", "not ready"), ("reading weights", "loading: reading weights, 0 s")):
        model.progress.report(stage)
        with pytest.raises(ModelNotReady, match=f"model m is {state}"), model.admit():
            pass
    await model.start()
    with model.admit():
        pass
    await model.stop()
    with pytest.raises(ModelNotReady), model.admit():
        pass


async def test_queue_is_bounded(started: Start) -> None:
    model, _ = await started(SCRIPTED + "job_queue_size=2\noption.max_rolling_batch_size=1")
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(model.admit())
        with pytest.raises(Overloaded) as raised, model.admit():
            pass
        assert raised.value.message == "model m has 3 requests in its queue, which is full"
    with model.admit():
        pass


async def test_failed_request_leaves_the_queue(started: Start) -> None:
    model, _ = await started(SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1")
    for _ in range(3):
        with pytest.raises(GenerationFailed), model.admit():
            raise GenerationFailed("broken")


async def test_generate(started: Start) -> None:
    model, backend = await started()
    backend.enqueue(Script("one two"), Script("three"))
    items = await generate(model, "a", "b c")
    assert (texts(items), texts(items, 1)) == (["one", " two"], ["three"])
    assert [request.request_id for request in backend.history] == ["r-0", "r-1"]


async def test_one_prompt_has_the_request_s_own_id(started: Start) -> None:
    model, backend = await started()
    await generate(model, "a")
    assert [request.request_id for request in backend.history] == ["r"]


@pytest.mark.parametrize("words", [10, LONG_TEXT])
async def test_validation_raises_whatever_the_length(started: Start, words: int) -> None:
    model, backend = await started()
    backend.max_length = 10
    with pytest.raises(InvalidParameter, match="`inputs` must be at most 9 tokens long"):
        await validate_all([GenerationRequest(" x" * words, {})], model.backend, "r")


async def test_long_prompt(started: Start) -> None:
    model, _ = await started()
    word = "x" * (LONG_TEXT + 1)
    [request] = await validate_all([GenerationRequest(word, {})], model.backend, "r")
    assert (request.prompt, len(request.prompt_ids)) == (word, 1)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("", f"no first token was generated within option.first_token_timeout={TINY} seconds"),
        ("one two", f"no further token was generated within option.inter_token_timeout={TINY} seconds"),
    ],
)
@in_virtual_time
async def test_time_limit_aborts_the_request(started: Start, said: str, message: str) -> None:
    model, backend = await started(first_token_timeout=TINY, inter_token_timeout=TINY)
    script = Script(said, hold=True)
    backend.enqueue(script)
    with pytest.raises(GenerationTimeout) as raised:
        await generate(model, "a")
    assert raised.value.message == message
    assert script.started.is_set()
    assert script.closed.is_set()


@in_virtual_time
async def test_time_limit_of_one_prompt_aborts_them_all(started: Start) -> None:
    model, backend = await started(inter_token_timeout=TINY)
    scripts = [Script("one"), Script("two", hold=True), Script("three", hold=True)]
    backend.enqueue(*scripts)
    with pytest.raises(GenerationTimeout):
        await generate(model, "a", "b", "c")
    assert all(script.closed.is_set() for script in scripts)


@in_virtual_time
async def test_time_that_the_client_takes_does_not_count(started: Start) -> None:
    model, backend = await started(inter_token_timeout=TINY)
    backend.enqueue(Script("one two"))
    seen: list[GenerationStep] = []
    requests = await validate_all([GenerationRequest("a", {})], model.backend, "r")
    async for step in model.generate(requests):
        await asyncio.sleep(3 * TINY)
        seen.append(step)
    assert [step.finish_reason for step in seen] == [None, "eos_token"]


@pytest.mark.parametrize("prompts", [1, 2])
async def test_closing_aborts_every_prompt(started: Start, prompts: int) -> None:
    model, backend = await started()
    scripts = [Script("one", hold=True) for _ in range(prompts)]
    backend.enqueue(*scripts)
    requests = await validate_all([GenerationRequest("a", {})] * prompts, model.backend, "r")
    async with asyncio.timeout(60):
        async with aclosing(model.generate(requests)) as steps:
            await anext(steps)
    assert [script.closed.is_set() for script in scripts] == [True] * prompts


async def test_error_of_the_backend_is_passed_on(started: Start) -> None:
    model, backend = await started()
    backend.enqueue(Script("one", error="out of memory"))
    with pytest.raises(GenerationFailed, match="out of memory"):
        await generate(model, "a")


async def test_dynamic_batches_run_one_after_the_other(plan: Plan, plugins: Plugins) -> None:
    plugins.backends.register(AutoBackend)
    model = Model(plan("option.rolling_batch=disable\nbatch_size=2\nmax_batch_delay=60000"), plugins.formatters)
    await model.start()
    assert isinstance(model.backend, AutoBackend)
    scripts = [Script("one", hold=True), Script("two", hold=True), Script("three"), Script("four")]
    model.backend.enqueue(*scripts)
    async with asyncio.timeout(60):
        first = [asyncio.create_task(generate(model, "a")) for _ in range(2)]
        await asyncio.gather(*(script.started.wait() for script in scripts[:2]))
        second = [asyncio.create_task(generate(model, "b")) for _ in range(2)]
        for task in first:
            assert len(model.backend.history) == 2
            task.cancel()
            await asyncio.wait({task})
        assert [texts(items) for items in await asyncio.gather(*second)] == [["three"], ["four"]]


async def test_rolling_batch_gathers_nothing(started: Start) -> None:
    model, _ = await started()
    assert isinstance(model.turns, RollingBatch)


async def test_new_formatter_for_each_call(started: Start) -> None:
    model, _ = await started()
    first, second = model.new_formatter("json"), model.new_formatter("json")
    assert isinstance(first, JsonFormatter)
    assert first is not second


async def test_chat_formatters_by_name_and_others(started: Start) -> None:
    model, _ = await started()
    answer = ChatAnswer("id", "model", model.backend.tokenizer)
    assert isinstance(model.new_chat_formatter("lmi_chat", answer), LmiChatFormatter)
    assert isinstance(model.new_chat_formatter("none", answer), NoFormatter)


@pytest.mark.parametrize("prompts", [1, 2])
async def test_abort_by_request_id(started: Start, prompts: int) -> None:
    model, backend = await started()
    scripts = [Script("one", hold=True) for _ in range(prompts)]
    backend.enqueue(*scripts)
    requests = await validate_all([GenerationRequest("a", {})] * prompts, model.backend, "r")
    reasons: list[str | None] = []
    async with asyncio.timeout(60):
        async for step in model.generate(requests, "r"):
            reasons.append(step.finish_reason)
            if len(reasons) == prompts:
                model.running.abort("r")
    assert reasons == [None] * prompts + ["abort"] * prompts
    assert all(script.closed.is_set() for script in scripts)


async def test_abort_of_a_request_that_waits_for_its_batch(started: Start, plugins: Plugins) -> None:
    plugins.backends.register(AutoBackend)
    model, backend = await started("option.rolling_batch=disable\nbatch_size=2\nmax_batch_delay=60000")
    requests = await validate_all([GenerationRequest("a", {})], model.backend, "r")
    task = asyncio.create_task(anext(model.generate(requests, "r")))
    while not model.running.abort("r"):
        await asyncio.sleep(0)
    step = await asyncio.wait_for(task, 60)
    assert (step.finish_reason, backend.history) == ("abort", [])


def test_creating_a_model_writes_nothing(plan: Plan, plugins: Plugins, tmp_path: Path) -> None:
    Model(plan(), plugins.formatters)
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["serving.properties"]
