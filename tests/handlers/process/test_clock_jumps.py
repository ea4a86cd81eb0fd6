"""A server whose clock is set forward and back by hours, while requests, queues, limits and sessions are under way."""

import asyncio
import json
import time
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import aiohttp

from tests.conftest import ModelDirectory
from tests.lmi_process import lmi_serve
from tests.settable_clock import SettableClock

HELLO = Path(__file__).parents[3] / "examples" / "hello"
HOURS = 6 * 3600
PROPERTIES = (
    f"option.rolling_batch=torch\noption.model_id={HELLO}\noption.max_rolling_batch_size=1\n"
    "option.queue_timeout=600\noption.predict_timeout=600\noption.sessions_expiration=900\nmax_idle_time=900\nunload_idle=true\n"
)
STORY = {"inputs": "Tell me a story.", "parameters": {"max_new_tokens": 250, "ignore_eos_token": True}}
SESSION = "X-Amzn-SageMaker-Session-Id"


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


async def generated(client: aiohttp.ClientSession, **headers: str) -> Any:
    async with client.post("/invocations", json=STORY, headers=bearer("sk-ann") | headers) as response:
        assert response.status == 200, await response.text()
        return (await response.json())["generated_text"]


async def begin_session(client: aiohttp.ClientSession) -> str:
    body = {"requestType": "NEW_SESSION"}
    async with client.post("/invocations", json=body, headers=bearer("sk-ann")) as response:
        return response.headers["X-Amzn-SageMaker-New-Session-Id"].partition(";")[0]


async def completion(client: aiohttp.ClientSession, key: str) -> tuple[int, float]:
    """Return the status, and the seconds after which to try again."""
    body = {"prompt": "Hi", "max_tokens": 1}
    async with client.post("/v1/completions", json=body, headers=bearer(key)) as response:
        return response.status, float(response.headers.get("Retry-After", 0))


async def hours_ahead(client: aiohttp.ClientSession) -> float:
    """Return how many hours the server's clock is ahead, as its answers say."""
    async with client.get("/ping") as response:
        assert response.status == 200
        return round((parsedate_to_datetime(response.headers["Date"]).timestamp() - time.time()) / 3600)


async def test_the_clock_jumps_to_and_fro(model_dir: ModelDirectory, tmp_path: Path) -> None:
    clock, keys = SettableClock(tmp_path), tmp_path / "keys"
    jumps = (HOURS, -HOURS, HOURS)
    keys.write_text("ann sk-ann\n" + "".join(f"key{i} sk-{i} requests_per_minute=1\n" for i in range(len(jumps))))
    environment = clock.environment | {"SERVING_API_KEYS_FILE": str(keys)}
    directory = model_dir({"serving.properties": PROPERTIES})
    async with (
        lmi_serve(directory, "--port", 0, environment=environment) as server,
        aiohttp.ClientSession(await server.ready()) as client,
    ):
        expected, session = await generated(client), await begin_session(client)
        for number, seconds in enumerate(jumps):
            assert (await completion(client, f"sk-{number}"))[0] == 200
            stream = client.post("/invocations", json=STORY | {"stream": True}, headers=bearer("sk-ann"))
            async with stream as response:
                waiting = asyncio.create_task(generated(client, **{SESSION: session}))
                received = await response.content.readany()
                clock.set_ahead(seconds)
                assert await hours_ahead(client) == seconds / 3600
                status, wait = await completion(client, f"sk-{number}")
                assert status == 429
                assert 0 < wait <= 60
                assert not waiting.done()
                received += await response.content.read()
            assert json.loads(received.splitlines()[-1])["generated_text"] == expected
            assert await waiting == expected
        server.process.terminate()
        assert server.process.stderr is not None
        log = (await server.process.stderr.read()).decode()
    assert [line for line in log.splitlines() if "ERROR" in line or "WARNING" in line or "unload" in line] == []
