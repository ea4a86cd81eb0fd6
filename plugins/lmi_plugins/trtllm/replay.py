"""The responses to a request that is run again in another worker: those that were given are left out."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from lmi_core.errors import GenerationFailed
from lmi_core.generation.tensors import Tensor

Tensors = Mapping[str, Tensor]


class Replay:
    """What was given of one request's responses.

    Every request has a seed, so that its responses are the same again: one for each token, or one for all.
    """

    def __init__(self) -> None:
        self._given: list[bytes] = []  # the ids of each response

    def note(self, response: Tensors) -> int:
        """Note that a response is given, and return their number."""
        self._given.append(response["output_ids"].data)
        return len(self._given)

    async def rest(self, responses: AsyncGenerator[Tensors, None]) -> AsyncGenerator[Tensors, None]:
        """Yield the responses after those that were given. Raise GenerationFailed where these are others now."""
        async with aclosing(responses):
            for expected in self._given.copy():
                if (await anext(responses))["output_ids"].data != expected:
                    raise GenerationFailed("the request was lost: run again, it gives other tokens than before")
            async for response in responses:
                yield response
