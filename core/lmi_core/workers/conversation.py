"""The messages between the server and one worker, on any machine."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec

from lmi_core.logs.loading_progress import Report, unheard
from lmi_core.workers.endpoint import Endpoint, WorkerDied
from lmi_core.workers.heartbeat import Heartbeat
from lmi_core.workers.messages import PING, Alive, LoadFailed, Progress, encode

logger = logging.getLogger(__name__)

M = TypeVar("M")


class Conversation(Generic[M]):
    """The messages to and from a worker: loading, work, and signs of life."""

    def __init__(self, endpoint: Endpoint, decode: Callable[[bytes], M], heartbeat_timeout: float = 0) -> None:
        """Kill a worker that is silent for `heartbeat_timeout` seconds despite a ping; 0 means never."""
        self.endpoint = endpoint
        self._decode = decode
        self._heartbeat = Heartbeat(heartbeat_timeout)

    async def load(
        self,
        message: Callable[[], Awaitable[msgspec.Struct]],
        failed: str,
        report: Report = unheard,
        is_late: Callable[[], bool] = lambda: False,
    ) -> M:
        """Start the worker, send it the load message, and return its first answer, after reports of its progress.

        `message` returns the load message once the worker runs; `is_late` returns whether a cancellation is due to the
        loading timeout, in which case the worker is killed, because it may hang.

        Raise ConfigurationError or OutOfMemory, and leave no worker, if loading failed. If the worker died, the message
        starts with `failed`.
        """
        try:
            await self.endpoint.start()
            await self.endpoint.receive()  # Started
            self.send(await message())
            while isinstance(answer := self._decode(await self.endpoint.receive()), Progress):
                report(answer.what, answer.done, answer.total)
            if isinstance(answer, LoadFailed):
                raise answer.error
        except WorkerDied as death:
            await self.stop()
            raise death.while_loading(failed) from None
        except BaseException:
            if is_late():
                self.endpoint.kill()
            await self.stop()
            raise
        return answer

    def send(self, message: msgspec.Struct) -> None:
        self.endpoint.send(encode(message))

    async def follow(self, deliver: Callable[[M], None]) -> str:
        """Deliver the worker's messages until it dies, and return the reason."""
        frozen = asyncio.create_task(self._kill_when_frozen())
        try:
            while True:
                data = await self.endpoint.receive()
                self._heartbeat.heard = True
                message = self._decode(data)
                if not isinstance(message, Alive):
                    deliver(message)
        except WorkerDied as death:
            why = f"the worker {frozen.result()} and was killed" if frozen.done() else str(death)
            logger.error("%s", why)
            return why
        finally:
            frozen.cancel()

    async def stop(self) -> None:
        """End the worker; if cancelled, still wait for it, because nothing else would free its resources."""
        await completed(self.endpoint.stop())

    async def _kill_when_frozen(self) -> str:
        why = await self._heartbeat.wait_frozen(lambda: self.endpoint.send(PING))
        self.endpoint.kill()
        return why


async def completed(ending: Coroutine[Any, Any, None]) -> None:
    """Wait until `ending` is complete, even if this is cancelled meanwhile."""
    task = asyncio.create_task(ending)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise
