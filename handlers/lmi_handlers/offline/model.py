"""A model in this process, for plain programs and notebooks."""

import os
import weakref
from collections.abc import Generator, Sequence
from threading import Thread
from types import TracebackType
from typing import Any, Self, overload

from lmi_handlers.offline.async_model import AsyncModel, Messages
from lmi_handlers.offline.loop_thread import LoopThread
from lmi_handlers.offline.results import ChatReply, Completion, TextPiece


class LoadedModel:
    """A model in this process, in its own thread, so that it works in notebooks too.

    Leaving `with`, `close`, or the end of the program stops its engine.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        plugins_directory: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        """Load the model: see `load`."""
        self._model = AsyncModel(target, plugins_directory, **options)
        self._thread = LoopThread("model")
        try:
            self._thread.run(self._model.start())
        except BaseException:
            self._thread.close()
            raise
        # At exit, finalizers run newest first: the engine's, such as that of its folder, would run after this one.
        self._end = weakref.finalize(self, _end, self._thread, self._model)

    @property
    def name(self) -> str:
        """The name under which `lmi serve` would serve the model."""
        return self._model.name

    @overload
    def generate(self, prompt: str, **parameters: Any) -> Completion: ...

    @overload
    def generate(self, prompt: Sequence[str], **parameters: Any) -> list[Completion]: ...

    def generate(self, prompt: str | Sequence[str], **parameters: Any) -> Completion | list[Completion]:
        """Return the completion of a prompt or, for several prompts, a list of completions.

        `parameters` are those of LMI's requests, such as `max_new_tokens`, and `adapters`. Several prompts are all
        validated before the first one is generated. Raise LmiError if a request fails.
        """
        return self._thread.run(self._model.generate(prompt, **parameters))

    def stream(self, prompt: str, **parameters: Any) -> Generator[TextPiece, None, None]:
        """Yield the text piece by piece; closing the iterator aborts the request.

        Raise LmiError if the request fails.
        """
        # Keeps `self` alive during the iteration
        yield from self._thread.iterate(self._model.stream(prompt, **parameters))

    def chat(self, messages: Messages, **fields: Any) -> ChatReply:
        """Return the answer to a chat, given as a user's message or as messages in OpenAI's form.

        `fields` are those of OpenAI's requests, such as `max_tokens` and `tools`. Raise LmiError if the request fails.
        """
        return self._thread.run(self._model.chat(messages, **fields))

    def stream_chat(self, messages: Messages, **fields: Any) -> Generator[str, None, None]:
        """Yield the text of the answer to a chat piece by piece; closing the iterator aborts it.

        Raise LmiError if it fails.
        """
        yield from self._thread.iterate(self._model.stream_chat(messages, **fields))

    def close(self) -> None:
        """Stop the engine; do nothing if the model is closed."""
        self._end()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{', closed' if self._thread.closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(
    target: str | os.PathLike[str], plugins_directory: str | os.PathLike[str] | None = None, **options: Any
) -> LoadedModel:
    """Load the model of a directory, or of the hub, into this process: `with lmi.load(DIR) as model:`.

    `options` are keys of serving.properties without `option.`, such as `dtype="bf16"`. Raise ConfigurationError if the
    model cannot be loaded.
    """
    return LoadedModel(target, plugins_directory, **options)


def _end(thread: LoopThread, model: AsyncModel) -> None:
    if thread.is_current:  # the garbage collector may run in any thread
        Thread(target=_end, args=(thread, model)).start()
    elif not thread.closed:
        thread.run(model.close())
        thread.close()
