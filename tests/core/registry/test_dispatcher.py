import asyncio
import gc
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from lmi_core.errors import BackendUnhealthy, ConfigurationError, ModelNotFound, ModelNotReady, Overloaded
from lmi_core.plugins.loading import load_plugins
from lmi_core.registry.dispatcher import Dispatcher
from lmi_core.serving.model import Model
from lmi_core.serving.model_plan import read_plan
from lmi_plugins.backends.scripted import ScriptedBackend
from tests.virtual_time import in_virtual_time


class ToyBackend(ScriptedBackend):
    """Loads until `loaded` is set, and fails as told."""

    name = "toy"

    def _prepare(self) -> None:
        self.begun, self.loaded = asyncio.Event(), asyncio.Event()
        self.loaded.set()
        self.start_error: Exception | None = None
        self.stop_error: Exception | None = None
        self.health_error: BackendUnhealthy | None = None
        self.events: list[str] = []

    async def start(self) -> None:
        self.begun.set()
        try:
            await self.loaded.wait()
        except asyncio.CancelledError:
            self.events.append("cancelled")
            raise
        if self.start_error is not None:
            raise self.start_error
        self.events.append("started")

    async def stop(self) -> None:
        self.events.append("stopped")
        if self.stop_error is not None:
            raise self.stop_error

    async def health(self) -> None:
        if self.health_error is not None:
            raise self.health_error


Dispatch = Callable[..., Dispatcher]


@pytest.fixture
def dispatch(tmp_path: Path) -> Dispatch:
    """`dispatch("a", "b", size="max_request_size=...")`: a dispatcher of models that were not started."""
    plugins = load_plugins()
    plugins.backends.register(ToyBackend)

    def model(name: str, properties: str) -> Model:
        (tmp_path / name).mkdir()
        (tmp_path / name / "serving.properties").write_text(f"option.rolling_batch=toy\n{properties}")
        created = Model(read_plan(name, tmp_path / name, {}, plugins), plugins.formatters)
        toy(created)._prepare()
        return created

    def create(*names: str, **properties: str) -> Dispatcher:
        given = dict.fromkeys(names, "") | properties
        return Dispatcher({name: model(name, text) for name, text in given.items()})

    return create


def toy(model: Model) -> ToyBackend:
    assert isinstance(model.backend, ToyBackend)
    return model.backend


def test_find(dispatch: Dispatch) -> None:
    dispatcher = dispatch("llama", "mistral")
    assert dispatcher.find("mistral") is dispatcher.models["mistral"]
    assert dispatcher.registry.only_model is None


def test_only_model_need_not_be_named(dispatch: Dispatch) -> None:
    dispatcher = dispatch("llama")
    assert dispatcher.find(None) is dispatcher.find("llama") is dispatcher.registry.only_model


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("lama", "model `lama` is not served. Did you mean `llama`? Served: llama, mistral"),
        ("gpt2", "model `gpt2` is not served. Served: llama, mistral"),
        ("", "model `` is not served. Served: llama, mistral"),
        (None, "several models are served; name one of: llama, mistral"),
    ],
)
def test_model_that_cannot_be_found(dispatch: Dispatch, name: str | None, message: str) -> None:
    with pytest.raises(ModelNotFound) as raised:
        dispatch("mistral", "llama").find(name)
    assert raised.value.message == message


def test_largest_request(dispatch: Dispatch) -> None:
    assert dispatch(a="max_request_size=10", b="max_request_size=30").registry.limits.max_request_size == 30


async def test_admit(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a", "b")
    a, b = dispatcher.models.values()
    with pytest.raises(ModelNotReady), dispatcher.admit(a):
        pass
    assert dispatcher.in_flight == 0
    await dispatcher.start()
    with dispatcher.admit(a), dispatcher.admit(b):
        assert dispatcher.in_flight == 2
    assert dispatcher.in_flight == 0


async def test_queue_is_each_model_s_own(dispatch: Dispatch) -> None:
    dispatcher = dispatch("b", a="job_queue_size=1\noption.max_rolling_batch_size=1")
    await dispatcher.start()
    full, other = dispatcher.find("a"), dispatcher.find("b")
    with dispatcher.admit(full), dispatcher.admit(full):
        with pytest.raises(Overloaded), dispatcher.admit(full):
            pass
        with dispatcher.admit(other):
            assert dispatcher.in_flight == 3


async def test_drain_of_an_idle_server(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a")
    await dispatcher.start()
    async with asyncio.timeout(60):
        await dispatcher.drain(60)
    with pytest.raises(ModelNotReady, match="the server is shutting down"), dispatcher.admit(dispatcher.find("a")):
        pass
    with pytest.raises(ModelNotReady, match="the server is shutting down"):
        await dispatcher.health()


async def test_drain_waits_for_those_in_flight(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a")
    await dispatcher.start()
    model = dispatcher.find("a")
    with dispatcher.admit(model):
        pass
    releases = [asyncio.Event(), asyncio.Event()]

    async def request(release: asyncio.Event) -> None:
        with dispatcher.admit(model):
            await release.wait()

    requests = [asyncio.create_task(request(release)) for release in releases]
    await asyncio.sleep(0)
    assert dispatcher.in_flight == 2
    draining = asyncio.create_task(dispatcher.drain(60))
    async with asyncio.timeout(60):
        for release, running in zip(releases, requests, strict=True):
            for _ in range(20):
                await asyncio.sleep(0)
            assert not draining.done()
            release.set()
            await running
        await draining


@in_virtual_time
async def test_drain_ends_when_the_time_is_over(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a")
    await dispatcher.start()
    with dispatcher.admit(dispatcher.find("a")):
        await dispatcher.drain(60)
        assert asyncio.get_running_loop().time() == pytest.approx(60)
        assert dispatcher.in_flight == 1


async def test_start_and_stop(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a", "b")
    await dispatcher.start()
    await dispatcher.health()
    await dispatcher.stop()
    assert [toy(model).events for model in dispatcher.models.values()] == [["started", "stopped"]] * 2
    with pytest.raises(ModelNotReady):
        await dispatcher.health()


async def test_models_load_at_the_same_time(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a", "b")
    a, b = (toy(model) for model in dispatcher.models.values())
    for backend in (a, b):
        backend.loaded.clear()
    b.start_error = ConfigurationError("no weights")
    async with asyncio.timeout(60):
        starting = asyncio.create_task(dispatcher.start())
        await a.begun.wait()  # memory is planned before, in threads
        b.loaded.set()
        with pytest.raises(ConfigurationError, match=r"^no weights$"):
            await starting
    assert a.events == ["cancelled"]
    assert not any(model.ready for model in dispatcher.models.values())


async def test_models_that_had_started_are_stopped_by_stop(dispatch: Dispatch, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher = dispatch("a", "b")
    a, b = (toy(model) for model in dispatcher.models.values())

    async def fail_after_the_other() -> None:
        while not a.events:
            await asyncio.sleep(0)
        raise ConfigurationError("no weights")

    monkeypatch.setattr(b, "start", fail_after_the_other)
    with pytest.raises(ConfigurationError):
        await dispatcher.start()
    await dispatcher.stop()
    assert (a.events, b.events) == (["started", "stopped"], ["stopped"])


async def test_model_that_does_not_stop_cleanly(dispatch: Dispatch, caplog: pytest.LogCaptureFixture) -> None:
    dispatcher = dispatch("a", "b")
    await dispatcher.start()
    a, b = (toy(model) for model in dispatcher.models.values())
    a.stop_error = RuntimeError("stuck")
    with caplog.at_level(logging.ERROR):
        await dispatcher.stop()
    assert b.events == ["started", "stopped"]
    assert "a model did not stop cleanly" in caplog.text
    assert "RuntimeError: stuck" in caplog.text


async def test_health_needs_every_model(dispatch: Dispatch) -> None:
    dispatcher = dispatch("a", "b")
    await dispatcher.start()
    toy(dispatcher.find("b")).health_error = BackendUnhealthy("the engine is restarting")
    with pytest.raises(BackendUnhealthy, match=r"^model b: the engine is restarting$"):
        await dispatcher.health()


async def test_the_wait_for_failed_models_is_cancelled_in_silence(
    dispatch: Dispatch, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = dispatch("a", "b")
    await dispatcher.start()
    waiting = asyncio.create_task(dispatcher.wait_given_up())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await dispatcher.stop()
    gc.collect()
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
