"""The responses to a request that is repeated in another worker, without those already given."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from lmi_core.errors import GenerationFailed
from lmi_core.generation.tensors import Tensor

Tensors = Mapping[str, Tensor]


class Replay:
    """The responses already given to one request.

    Every request has a seed, so that repeated responses are the same: one for each token, or one for all.
    """

    def __init__(self) -> None:
        self._given: list[bytes] = []  # the ids of each response

    def note(self, response: Tensors) -> int:
        """Count a response, and return the total."""
        self._given.append(response["output_ids"].data)
        return len(self._given)

    async def rest(self, responses: AsyncGenerator[Tensors, None]) -> AsyncGenerator[Tensors, None]:
        """Yield the responses after those already given. Raise GenerationFailed if the repeated ones differ."""
        async with aclosing(responses):
            for expected in self._given.copy():
                if (await anext(responses))["output_ids"].data != expected:
                    raise GenerationFailed("the request was lost: run again, it gives other tokens than before")
            async for response in responses:
                yield response
