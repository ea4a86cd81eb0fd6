"""One worker for several servers: each gets the results of its own requests, under its own ids."""

from collections import Counter
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from lmi_core.metrics.engine_figures import EngineFigures
from lmi_core.workers.channel import Channel, SharedChannel
from lmi_core.workers.messages import LoadFailed, encode
from lmi_plugins.torch_engine.messages.protocol import AdapterAnswer, Admitted, Busy, Failure, Figures, Loaded, Steps

WORKED = encode(Busy())
MARK = "/"  # separates the server from its own id


def send_loaded(loaded: Loaded, channel: Channel) -> None:
    """Send the message that the model is loaded, also to servers that connect later."""
    message = encode(loaded)
    if not isinstance(channel, SharedChannel):
        channel.send(message)
        return
    channel.greeting = message
    for server in tuple(channel.sharers):
        channel.greet(server)


def send_failure(failure: LoadFailed, channel: Channel) -> None:
    """Send the reason why the model cannot be loaded, including to servers whose messages are yet to arrive."""
    if isinstance(channel, SharedChannel):
        while channel.pending() is not None:
            pass
    channel.send(encode(failure))


def greet(channel: Channel) -> None:
    """Answer a server that asks to load the model after another server has already done so."""
    assert isinstance(channel, SharedChannel), "a worker loads one model"
    channel.greet(channel.sender)


def unique(request_id: str, channel: Channel) -> str:
    """Return an id that is unique among all servers, for the request in the last received message."""
    return f"{channel.sender}{MARK}{request_id}" if isinstance(channel, SharedChannel) else request_id


def send_results(
    results: Steps, channel: Channel, abort: Callable[[str], None], unfinished: Iterable[str] = ()
) -> None:
    """Send results to the servers that asked for them; abort the unfinished requests of disconnected servers."""
    if not isinstance(channel, SharedChannel):
        channel.send(encode(results))
        return
    parts: dict[str, Steps] = {}

    def part(request_id: str) -> tuple[Steps, str]:
        sharer, _, own_id = request_id.partition(MARK)
        if sharer not in parts:
            parts[sharer] = Steps([], [], [])
        return parts[sharer], own_id

    for request_id, step in results.steps:
        steps, own_id = part(request_id)
        steps.steps.append((own_id, step))
    for each in results.failures:
        steps, own_id = part(each.request_id)
        steps.failures.append(Failure(own_id, each.kind, each.message))
    for request_id, index, vector in results.vectors:
        steps, own_id = part(request_id)
        steps.vectors.append((own_id, index, vector))
    for sharer, steps in parts.items():
        if not channel.send_to(sharer, encode(steps)):
            prefix = f"{sharer}{MARK}"
            for request_id in {*(prefix + own_id for own_id in _ids(steps)), *unfinished}:
                if request_id.startswith(prefix):
                    abort(request_id)
    if results.steps or results.vectors:
        for sharer in channel.sharers - channel.informed - parts.keys():
            channel.send_to(sharer, WORKED)
        channel.informed |= channel.sharers


def send_begun(request_ids: Iterable[str], channel: SharedChannel) -> None:
    """Report to each server which of its requests the engine has started."""
    begun: dict[str, list[str]] = {}
    for request_id in request_ids:
        sharer, _, own_id = request_id.partition(MARK)
        begun.setdefault(sharer, []).append(own_id)
    for sharer, own_ids in begun.items():
        channel.send_to(sharer, encode(Admitted(own_ids)))


def send_answer(answer: AdapterAnswer, channel: Channel) -> None:
    """Send every server the names of all adapters, and the caller its answer."""
    channel.send(encode(answer))
    if isinstance(channel, SharedChannel):
        sharer, _, own_id = answer.call_id.partition(MARK)
        channel.send_to(sharer, encode(AdapterAnswer(own_id, answer.names, answer.failure)))


def figures_of_each(figures: EngineFigures, running: Iterable[str], channel: Channel) -> dict[str, EngineFigures]:
    """Return each server's figures, which count only its own sequences; the key is "" if the worker has one server."""
    if not isinstance(channel, SharedChannel):
        return {"": figures}
    counts = Counter(request_id.partition(MARK)[0] for request_id in running)
    return {sharer: replace(figures, running=counts[sharer]) for sharer in channel.sharers}


def send_figures(server: str, figures: EngineFigures, channel: Channel) -> None:
    message = encode(Figures(figures))
    if isinstance(channel, SharedChannel):
        channel.send_to(server, message)
    else:
        channel.send(message)


def _ids(results: Steps) -> Iterable[str]:
    yield from (request_id for request_id, _ in results.steps)
    yield from (request_id for request_id, _, _ in results.vectors)
