"""A dialect that cannot work is refused when it is registered, and one that returns another type is told so."""

from typing import Any, ClassVar

import pytest

from lmi_core.calls.answer import Answer
from lmi_core.errors import LmiError, PluginError
from lmi_core.handler import Handler
from lmi_core.hookspecs import hookimpl
from lmi_core.plugins.handlers import HandlerRegistry
from lmi_core.plugins.registry import origin
from lmi_core.route import Route
from tests.conftest import SCRIPTED, ModelDirectory, Serve


def plain_answer(call: Any, models: Any) -> Any:
    return Answer(200, "text/plain", b"")


async def wrong_answer(call: Any, models: Any) -> Any:
    return {"answer": 42}


class OddHandler(Handler):
    """A dialect whose functions return something else."""

    name = "odd"
    routes: ClassVar[Any] = (Route("/odd"), Route("/odd/answer", "GET", answer=wrong_answer))

    def model_name(self, path_parameters: Any, headers: Any) -> str | None:
        return None

    def parse(self, call: Any, model: Any) -> Any:
        return "a prompt"

    def error(self, error: LmiError, model: Any, formatter: Any) -> Answer:
        return Answer(500, "text/plain", error.message.encode())


class OneRoute(OddHandler):
    routes: ClassVar[Any] = Route("/odd")


class Paths(OddHandler):
    routes: ClassVar[Any] = ("/odd",)


class Relative(OddHandler):
    routes: ClassVar[Any] = (Route("odd"), Route("/odd/answer", "GET", answer=plain_answer))


class Asynchronous(OddHandler):
    async def parse(self, call: Any, model: Any) -> Any:  # type: ignore[override]
        return None


@pytest.mark.parametrize(
    ("handler", "faults"),
    [
        (OneRoute, ["`routes` must be a tuple of routes, each a Route. Given: Route(path='/odd', method="]),
        (Paths, ["`routes` must be a tuple of routes, each a Route. Given: ('/odd',)"]),
        (
            Relative,
            [
                "a route's path must begin with /. Given: 'odd'",
                "the `answer` of GET /odd/answer must be an `async def`. Given: <function plain_answer",
            ],
        ),
        (Asynchronous, ["`parse` must be a plain `def`: it must not wait for anything"]),
    ],
)
def test_classes_that_cannot_work(handler: Any, faults: list[str]) -> None:
    with pytest.raises(PluginError) as failure:
        HandlerRegistry().register(handler)
    lines = failure.value.message.splitlines()
    assert len(lines) == len(faults)
    for line, fault in zip(lines, faults, strict=True):
        assert line.startswith(f"the handler {origin(handler)}: {fault}")


class Plugin:
    @hookimpl
    def lmi_register_handlers(self, register: Any) -> None:
        register(OddHandler)


async def test_what_functions_return(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}), plugins=[Plugin()])
    parsed = await server.post("/odd", {})
    wanted = "a Generation, an Inference, an EmbeddingCall or an Answer"
    assert parsed.body.decode() == f"the dialect odd (OddHandler): `parse` must return {wanted}. Given: str 'a prompt'"
    answered = await server.get("/odd/answer")
    wanted = "the `answer` of /odd/answer must return an Answer"
    assert answered.body.decode() == f"the dialect odd (OddHandler): {wanted}. Given: dict {{'answer': 42}}"
