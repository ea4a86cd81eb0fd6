"""The dashboard and the alerts of examples/grafana, evaluated by Prometheus itself."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve
from tests.handlers.metrics.test_grafana import FOLDER, OF_ENGINES, panels, rules, selectors
from tests.ports import free_port

SCRAPE = "200ms"
LOOK_SECONDS = 0.1
VALUES = {"$job": ".*", "$model": ".*", "$__rate_interval": "1m"}  # as Grafana fills them in, for all jobs and models


def configuration(server: RunningServer) -> dict[str, Any]:
    target = {"job_name": "lmi", "static_configs": [{"targets": [f"127.0.0.1:{server.server.port}"]}]}
    return {
        "global": {"scrape_interval": SCRAPE, "scrape_timeout": SCRAPE, "evaluation_interval": SCRAPE},
        "rule_files": [str(FOLDER / "alerts.yaml")],
        "scrape_configs": [target],
    }


@asynccontextmanager
async def prometheus(server: RunningServer, folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """Run Prometheus, and yield a client of its API."""
    if shutil.which("prometheus") is None:
        pytest.fail("prometheus is not installed: `make programs` installs it, as root", pytrace=False)
    file, port = folder / "prometheus.json", free_port()
    file.write_text(json.dumps(configuration(server)))  # JSON is YAML
    with (folder / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={file}",
            f"--storage.tsdb.path={folder}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}/api/v1/") as client:
            yield client
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def query(client: aiohttp.ClientSession, expression: str) -> list[Any]:
    for variable, value in VALUES.items():
        expression = expression.replace(variable, value)
    async with client.get("query", params={"query": expression}) as answer:
        body = await answer.json()
        assert body["status"] == "success", body
        return list(body["data"]["result"])


async def has_data(client: aiohttp.ClientSession, expression: str) -> None:
    while True:
        try:
            if await query(client, expression):
                return
        except aiohttp.ClientError:  # while it starts, it answers with 503 or not at all
            pass
        await asyncio.sleep(LOOK_SECONDS)


async def test_every_panel_has_data_although_nothing_failed(
    serve: Serve, model_dir: ModelDirectory, tmp_path: Path
) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    async with prometheus(server, tmp_path) as client, asyncio.timeout(60):
        for scraped in ("lmi_requests_total", "rate(lmi_requests_total[1m]) > 0"):
            assert (await server.post("/invocations", {"inputs": "a"})).status == 200
            await has_data(client, scraped)
        found = {each: [sample["value"][1] for sample in await query(client, each)] for each in expressions}
        async with client.get("rules") as answer:
            groups = (await answer.json())["data"]["groups"]
    of_engines = {each for each in expressions if OF_ENGINES & {name for name, _ in selectors(each)}}
    assert {each for each, values in found.items() if not values or "NaN" in values} == of_engines
    loaded = [(rule["name"], rule["health"], rule["state"]) for group in groups for rule in group["rules"]]
    assert loaded == [(rule["alert"], "ok", "inactive") for rule in rules()]
