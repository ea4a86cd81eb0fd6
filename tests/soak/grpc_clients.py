"""Clients of the gRPC server: whole answers, streams, and streams that are left."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tritonclient.grpc import InferInput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from tests.clients.test_every_dialect import QUESTIONS, STORY
from tests.clients.triton_grpc import tensor
from tests.soak.answers import Wrong
from tests.soak.keys import STEADY_KEYS, authorization
from tests.soak.manners import Client, Manner
from tests.soak.questions import MODEL
from tests.soak.target import PATIENCE, RETRY_SECONDS

HEADERS = authorization(STEADY_KEYS[0])
NOT_NOW = ("UNAVAILABLE", "RESOURCE_EXHAUSTED")  # no engine, no place
RESTARTING = "and is being restarted"  # in a stream errors have no code, as in Triton's
PROMPTS = [STORY, *QUESTIONS[:4]]


def inputs(prompt: str, tokens: int, seed: int | None, stream: bool) -> list[InferInput]:
    found = [tensor("text_input", [prompt], "BYTES"), tensor("max_tokens", [tokens], "INT32")]
    found += [tensor("exclude_input_in_output", [True], "BOOL"), tensor("stream", [stream], "BOOL")]
    if seed is not None:
        found += [tensor("random_seed", [seed], "UINT64"), tensor("temperature", [1.3], "FP32")]
    return found


class GrpcClient:
    """The questions of gRPC and their right answers."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._client = InferenceServerClient(address)
        self._expected: dict[tuple[str, bool], str] = {}

    async def learn(self) -> None:
        """Remember the answers of a quiet server, which must be the same whole and streamed."""
        for prompt in PROMPTS:
            for seeded in (False, True):
                self._expected[prompt, seeded] = await self._whole(prompt, seeded)
                if (text := await self._stream(prompt, seeded)) != self._expected[prompt, seeded]:
                    raise Wrong(f"gRPC's stream is {text!r}, not {self._expected[prompt, seeded]!r}")

    def manners(self) -> dict[Manner, int]:
        return {self.read_whole: 5, self.read_stream: 5, self.leave: 4}

    async def read_whole(self, client: Client) -> None:
        """Ask for a whole answer."""
        await self._check(client, self._whole, "gRPC")

    async def read_stream(self, client: Client) -> None:
        """Ask for a stream."""
        await self._check(client, self._stream, "gRPC stream")

    async def leave(self, client: Client) -> None:
        """Leave a stream after a few of its answers."""
        read = 0
        try:
            stream = self._client.stream_infer(_requests(inputs(STORY, 1500, None, True)), headers=HEADERS)
            async for _ in stream:
                read += 1
                if read > client.numbers.choice([0, 1, 5]):
                    stream.cancel()
        except (InferenceServerException, asyncio.CancelledError):
            pass  # how the library tells that the stream was cancelled
        client.target.tally.left["a gRPC stream"] += 1

    async def close(self) -> None:
        await self._client.close()

    async def _check(self, client: Client, ask: Any, row: str) -> None:
        prompt, seeded = client.numbers.choice([*self._expected])
        async with asyncio.timeout(PATIENCE):
            while (text := await self._once(client, ask, prompt, seeded)) is None:
                client.target.tally.refused += 1
                await asyncio.sleep(RETRY_SECONDS)
        if text != self._expected[prompt, seeded]:
            raise Wrong(f"{row}: {text!r} is not {self._expected[prompt, seeded]!r}")
        client.target.tally.answered[row] += 1

    async def _once(self, client: Client, ask: Any, prompt: str, seeded: bool) -> str | None:
        with client.target.counted():
            try:
                return str(await ask(prompt, seeded))
            except InferenceServerException as error:
                if any(code in str(error.status()) for code in NOT_NOW) or RESTARTING in str(error):
                    return None
                raise Wrong(f"gRPC: {error}") from None

    async def _whole(self, prompt: str, seeded: bool) -> str:
        result = await self._client.infer(MODEL, inputs(prompt, 60, 5 if seeded else None, False), headers=HEADERS)
        return str(result.as_numpy("text_output")[0].decode())

    async def _stream(self, prompt: str, seeded: bool) -> str:
        texts = []
        async for result, error in self._client.stream_infer(
            _requests(inputs(prompt, 60, 5 if seeded else None, True)), headers=HEADERS
        ):
            if error is not None:
                raise error
            if (output := result.as_numpy("text_output")) is not None:
                texts.append(output[0].decode())
        return "".join(texts)


async def _requests(asked: list[InferInput]) -> AsyncIterator[dict[str, Any]]:
    yield {"model_name": MODEL, "inputs": asked}
