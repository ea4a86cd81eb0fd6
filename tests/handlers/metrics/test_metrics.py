"""A scrape, read by Prometheus's own parsers."""

import asyncio

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from lmi_handlers.metrics.declared import DJL_METRICS, OWN_METRICS
from lmi_handlers.metrics.scrape import MAX_DETAILED
from lmi_plugins.backends.scripted import Script
from tests.conftest import SCRIPTED, ModelDirectory, RunningServer, Serve

OPEN_METRICS = {"Accept": "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5"}
MODEL_FUNCTION = """\
from djl_python import Output


def handle(inputs):
    return None if inputs.is_empty() else Output().add("done")
"""
PROMPT = {"inputs": "a few words", "parameters": {"max_new_tokens": 3}}


@pytest.fixture
async def server(serve: Serve, model_dir: ModelDirectory) -> RunningServer:
    return await serve(model_dir({"serving.properties": SCRIPTED}))


async def scrape(server: RunningServer, path: str = "/metrics") -> dict[str, Metric]:
    answer = await server.get(path)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return {family.name: family for family in parse_text(answer.body.decode())}


def samples(family: Metric | None, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the values of a family's samples by the values of these labels."""
    found = [] if family is None else family.samples
    return {tuple(sample.labels.get(label, "") for label in labels): sample.value for sample in found}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and all(sample.labels.get(label, "") == wanted for label, wanted in labels.items())
    ]
    return found


def duration_by_parts(families: dict[str, Metric]) -> float:
    engine, server = (value(families, f"lmi_{name}_time_seconds_total") for name in ("engine", "server"))
    return value(families, "lmi_queue_time_seconds_sum") + engine + server


@pytest.mark.parametrize("path", ["/metrics", "/server/metrics"])
async def test_requests_by_outcome(server: RunningServer, path: str) -> None:
    assert (await server.post("/invocations", PROMPT)).status == 200
    assert (await server.post("/v1/completions", {"prompt": "one", "stream": True})).status == 200
    assert (await server.post("/v1/completions", {"prompt": "one", "max_tokens": "many"})).status == 400
    assert (await server.post("/predictions/nobody", PROMPT)).status == 404
    assert (await server.get("/v1/models")).status == 200  # which asks no model for anything
    families = await scrape(server, path)
    found = samples(families["lmi_requests"], "model", "adapter", "dialect", "status", "reason")
    assert found == {
        ("", "", "lmi", "404", "model_not_found"): 1,
        ("model", "", "lmi", "200", "length"): 1,
        ("model", "", "openai_completions", "200", "eos_token"): 1,
        ("model", "", "openai_completions", "400", "invalid_payload"): 1,
    }
    assert value(families, "Response_2XX_total") == 2
    assert value(families, "Response_4XX_total") == 2


async def test_the_parts_of_a_duration(server: RunningServer) -> None:
    assert (await server.post("/invocations", PROMPT)).status == 200
    families = await scrape(server)
    total = value(families, "lmi_request_duration_seconds_sum")
    assert duration_by_parts(families) == pytest.approx(total, abs=1e-8)
    assert value(families, "RequestLatency", Model="model") == pytest.approx(total * 1e6, abs=1)


async def test_several_sequences_count_all_their_tokens(server: RunningServer) -> None:
    assert (await server.post("/v1/completions", {"prompt": ["a b", "c"], "n": 2, "max_tokens": 2})).status == 200
    families = await scrape(server)
    assert value(families, "lmi_prompt_tokens_total") == 3
    assert value(families, "lmi_generated_tokens_total") == 8


async def test_a_full_queue_and_clients_that_leave(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(
        model_dir({"serving.properties": SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\n"})
    )
    held = [Script("one two", hold=True) for _ in range(2)]
    server.scripted.enqueue(*held)
    running = [asyncio.create_task(server.post("/invocations", PROMPT)) for _ in held]
    await asyncio.gather(*(script.started.wait() for script in held))
    refused = dict.fromkeys([("model", each) for each in ("overloaded", "model_not_ready", "backend_unhealthy")], 0.0)
    assert samples((await scrape(server))["lmi_requests_rejected"], "model", "reason") == refused
    assert (await server.post("/invocations", PROMPT)).status == 503
    families = await scrape(server)
    assert value(families, "lmi_requests_in_flight") == 2
    assert value(families, "lmi_requests_running") == 2
    assert value(families, "lmi_queue_size") == 2
    assert samples(families["lmi_requests_rejected"], "model", "reason") == {**refused, ("model", "overloaded"): 1}
    assert value(families, "WlmError_total") == 1
    for task in running:
        task.cancel()
    await asyncio.gather(*running, *(script.closed.wait() for script in held), return_exceptions=True)
    while value(families := await scrape(server), "lmi_requests_in_flight"):
        pass
    assert samples(families["lmi_requests_aborted"], "model", "reason") == {("model", "client_left"): 2}
    theirs = await scrape(server, "/metrics?names=vllm")
    assert samples(theirs["vllm:request_success"], "finished_reason") == {("abort",): 2}
    assert value(families, "lmi_generated_tokens_total") == 4


async def test_tokens_are_counted_while_they_come(server: RunningServer) -> None:
    async def tokens() -> tuple[float, float]:
        families = await scrape(server)
        return value(families, "lmi_prompt_tokens_total"), value(families, "lmi_generated_tokens_total")

    streamed = {"prompt": "a few words", "stream": True}
    assert (await server.post("/v1/completions", streamed | {"max_tokens": 2})).status == 200
    assert await tokens() == (3, 2)
    one, two = (Script("one two three", hold=True), Script("four five", hold=True))
    server.scripted.enqueue(one, two)
    headers = {"x-request-id": "aborted"}
    async with asyncio.timeout(60):
        asked = [asyncio.create_task(server.post("/v1/completions", streamed, headers=headers))]
        await one.started.wait()
        assert await tokens() == (6, 5)
        asked.append(asyncio.create_task(server.post("/v1/completions", {"prompt": "a few words"})))
        await two.started.wait()
        assert await tokens() == (9, 7)
        server.scripted.enqueue(Script("six seven", error="no more"))
        assert (await server.post("/v1/completions", streamed)).status == 200
        assert await tokens() == (12, 9)
        server.model.running.abort("aborted")
        asked[1].cancel()
        await asyncio.gather(*asked, two.closed.wait(), return_exceptions=True)
        while value(await scrape(server), "lmi_requests_in_flight"):
            pass
    assert await tokens() == (12, 9)  # neither lost nor counted twice


async def test_an_answer_that_fails_in_its_middle(server: RunningServer) -> None:
    server.scripted.enqueue(Script("one", error="no more"))
    answer = await server.post("/invocations", {**PROMPT, "stream": True})
    assert answer.status == 200  # sent before
    families = await scrape(server)
    assert samples(families["lmi_requests"], "status", "reason") == {("200", "generation_failed"): 1}
    assert "lmi_request_duration_seconds" not in families


async def test_names_that_clients_make_up_have_no_series(server: RunningServer) -> None:
    for number in range(20):
        await server.post(f"/predictions/made-up-{number}", PROMPT)
        await server.post("/invocations", {**PROMPT, "adapters": f"made-up-{number}"})
        await server.post("/v1/completions", {"prompt": "x", "model": f"made-up-{number}"})
    text = (await server.get("/metrics")).body.decode()
    assert "made-up" not in text
    assert len(samples((await scrape(server))["lmi_requests"], "model", "dialect", "reason")) == 3


async def test_embeddings(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED + "option.task=text-embedding\n"}))
    assert (await server.post("/v1/embeddings", {"input": ["a b", "c"]})).status == 200
    families = await scrape(server)
    assert value(families, "lmi_prompt_tokens_total") == 3
    assert value(families, "lmi_engine_time_seconds_total") > 0
    assert "lmi_time_to_first_token_seconds" not in families
    assert samples(families["lmi_requests"], "status", "reason") == {("200", "answered"): 1}


async def test_the_form_of_open_metrics(server: RunningServer) -> None:
    assert (await server.post("/invocations", PROMPT)).status == 200
    answer = await server.get("/metrics", headers=OPEN_METRICS)
    assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    families = {family.name: family for family in parse_open_metrics(answer.body.decode())}  # type: ignore[no-untyped-call]
    assert value(families, "lmi_requests_total", reason="length") == 1
    assert {family.name: family.type for family in families.values()}["lmi_queue_time_seconds"] == "histogram"


async def test_a_selection_by_name(server: RunningServer) -> None:
    families = await scrape(server, "/metrics?name[]=lmi_model_ready&name[]=QueueTime&name[]=nobody_knows")
    assert set(families) == {"lmi_model_ready"}
    assert value(families, "lmi_model_ready", model="model") == 1


async def test_every_metric_is_declared_once_and_has_its_labels(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"serving.properties": SCRIPTED}))
    assert (await server.post("/invocations", PROMPT)).status == 200
    declared = {each.name: each for each in (*OWN_METRICS, *DJL_METRICS)}
    assert len(declared) == len(OWN_METRICS) + len(DJL_METRICS)
    for name, family in (await scrape(server)).items():
        if not name.startswith("process_"):
            known = declared[name]
            assert (family.type, family.documentation) == (known.kind, known.help)
            assert all(set(sample.labels) - {"le"} <= set(known.labels) for sample in family.samples), name


async def test_two_models(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"one/serving.properties": SCRIPTED, "two/serving.properties": SCRIPTED})
    server = await serve(directory)
    for name in ("one", "two", "two"):
        assert (await server.post(f"/predictions/{name}", PROMPT)).status == 200
    families = await scrape(server)
    assert samples(families["lmi_requests"], "model") == {("one",): 1, ("two",): 2}
    assert value(families, "lmi_request_duration_seconds_count", model="two") == 2


async def test_names_of_vllm(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({f"{name}/serving.properties": SCRIPTED for name in ("one", "two")}))
    for name in ("one", "two", "two"):
        assert (await server.post(f"/predictions/{name}", PROMPT)).status == 200
    assert (await server.post("/predictions/two", {"inputs": 1})).status == 424
    own, theirs = await scrape(server), await scrape(server, "/metrics?names=vllm")
    assert all(name.startswith(("vllm:", "process_")) for name in theirs)
    model = {"model_name": "two", "engine": "0"}
    assert value(theirs, "vllm:request_success_total", **model, finished_reason="length") == 2
    for mine, of_vllm in (
        ("lmi_prompt_tokens_total", "vllm:prompt_tokens_total"),
        ("lmi_generated_tokens_total", "vllm:generation_tokens_total"),
        ("lmi_requests_running", "vllm:num_requests_running"),
        ("lmi_time_to_first_token_seconds_sum", "vllm:time_to_first_token_seconds_sum"),
        ("lmi_request_duration_seconds_count", "vllm:e2e_request_latency_seconds_count"),
    ):
        assert value(theirs, of_vllm, **model) == value(own, mine, model="two")
    selected = await scrape(server, "/metrics?names=vllm&name[]=vllm:num_requests_waiting")
    assert set(selected) == {"vllm:num_requests_waiting"}
    answer = await server.get("/metrics?names=vllm", headers=OPEN_METRICS)
    families = {family.name: family for family in parse_open_metrics(answer.body.decode())}  # type: ignore[no-untyped-call]
    assert value(families, "vllm:prompt_tokens_total", **model) == value(own, "lmi_prompt_tokens_total", model="two")


@pytest.mark.parametrize("headers", [{}, OPEN_METRICS])
async def test_a_thousand_models_have_two_megabytes(
    serve: Serve, model_dir: ModelDirectory, monkeypatch: pytest.MonkeyPatch, headers: dict[str, str]
) -> None:
    monkeypatch.setattr("lmi_handlers.metrics.scrape.MAX_DETAILED", 1)
    names = ("model-0000", "model-0999")
    server = await serve(model_dir({f"{name}/serving.properties": SCRIPTED for name in names}))
    for name in names:
        assert (await server.post(f"/predictions/{name}", PROMPT)).status == 200
    text = (await server.get("/metrics", headers=headers)).body.decode()
    first, other = (
        sum(len(line) + 1 for line in text.splitlines() if f'"{name}"' in line and not line.startswith("#"))
        for name in names
    )
    assert other * 2 < first < other * 4  # one with all bounds, one with sums and counts
    assert len(text) - first - other + MAX_DETAILED * first + (1000 - MAX_DETAILED) * other < 2_000_000
    count = 'lmi_queue_time_seconds_bucket{model="model-0999",le="+Inf"} 1'
    assert [line for line in text.splitlines() if "_queue_time_seconds_bucket" in line and "0999" in line] == [count]


async def test_a_model_that_goes_takes_its_series_along(serve: Serve, model_dir: ModelDirectory) -> None:
    directory = model_dir({"one/serving.properties": SCRIPTED, "two/serving.properties": SCRIPTED})
    server = await serve(directory)
    for name in ("one", "two"):
        assert (await server.post(f"/predictions/{name}", PROMPT)).status == 200
    async with server.client.delete("/models/one") as answer:
        assert answer.status == 200
    families = await scrape(server)
    assert samples(families["lmi_requests"], "model", "version") == {("two", ""): 1}
    assert value(families, "Response_2XX_total") == 2  # of the whole server


async def test_a_model_function(serve: Serve, model_dir: ModelDirectory) -> None:
    server = await serve(model_dir({"model.py": MODEL_FUNCTION}))
    assert (await server.post("/invocations", {"inputs": "x"})).status == 200
    families = await scrape(server)
    assert samples(families["lmi_requests"], "dialect", "status", "reason") == {("lmi", "200", "answered"): 1}
    assert value(families, "lmi_workers") == 1
    assert value(families, "lmi_worker_restarts_total") == 0
    assert value(families, "lmi_engine_time_seconds_total") > 0
