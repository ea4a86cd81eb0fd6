"""The tables of the guides for those who come from other servers: each row is tried."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_handlers.cli.plans import read_plans
from lmi_handlers.container.tgi_environment import API_KEY, FLAG, MODEL_ID, ORIGINS, PORT, READ
from lmi_handlers.container.variables import VARIABLES
from lmi_handlers.happy_vllm.payload import HappyVllmPayload
from lmi_handlers.tgi.payload import TgiParameters
from tests.conftest import SCRIPTED, RunningServer
from tests.docs.pages import DOCUMENTS
from tests.module_server import module_server

PAGES = ("coming_from_tgi.md", "coming_from_happy_vllm.md", "coming_from_triton.md")
REQUESTS = re.compile(r"<!-- requests: ([^\n]+) -->\n```json\n(.*?)```\n(.*?)(?=\n## |\Z)", re.DOTALL)
IGNORED = "X-Lmi-Ignored-Parameters"
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
# How a field is sent, by the name that stands in the comment before its examples.
BODIES: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "/generate parameters": lambda fields: {"inputs": "a b c", "parameters": fields},
    "/v1/chat/completions": lambda fields: CHAT | fields,
    "/v1/generate": lambda fields: {"prompt": "a b c"} | fields,
    "/v2/models/model/generate": lambda fields: {"text_input": "a b"} | fields,
}
NEEDED = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}  # fields that others need
# Launcher arguments of Text Generation Inference 3.3, from its documentation.
LAUNCHER = """
model-id revision validation-workers sharded num-shard quantize speculate dtype kv-cache-dtype trust-remote-code
max-concurrent-requests max-best-of max-stop-sequences max-top-n-tokens max-input-tokens max-input-length
max-total-tokens waiting-served-ratio max-batch-prefill-tokens max-batch-total-tokens max-waiting-tokens
max-batch-size cuda-graphs hostname port shard-uds-path master-addr master-port huggingface-hub-cache
weights-cache-override disable-custom-kernels cuda-memory-fraction rope-scaling rope-factor json-output otlp-endpoint
otlp-service-name cors-allow-origin api-key watermark-gamma watermark-delta ngrok ngrok-authtoken ngrok-edge
tokenizer-config-path disable-grammar-support env max-client-batch-size lora-adapters usage-stats payload-limit
enable-prefill-logprobs help version
"""


def rows(page: str, *heading: str) -> Iterator[list[str]]:
    """Yield each name in the first cells of the page's tables with this heading, with the other cells of its row."""
    mark = "| " + " | ".join(heading) + " |\n"
    for table in DOCUMENTS[page].split(mark)[1:]:
        for line in table.partition("\n\n")[0].splitlines()[1:]:
            names, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            for name in re.findall(r"`(.+?)`", names):
                yield [name, *cells]


def requests() -> Iterator[tuple[str, str, str, str]]:
    """Yield the fields below each mark with an example and the treatment: a block of those taken, then a table."""
    for page in PAGES:
        for way, taken, table in REQUESTS.findall(DOCUMENTS[page]):
            for name, example in json.loads(taken).items():
                yield way, name, json.dumps(example), "Accepted"
            for name, example, here in re.findall(r"^\| `(\w+)` \| `(.+?)` \| (\w+)", table, re.MULTILINE):
                yield way, name, example, here


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


server = module_server(SCRIPTED)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("way", "name", "example", "here"), list(requests()))
async def test_field(server: RunningServer, way: str, name: str, example: str, here: str) -> None:
    fields = {name: json.loads(example)} | NEEDED.get(name, {})
    answer = await server.post(way.split()[0], BODIES[way](fields))
    told = name in answer.headers.get(IGNORED, "").replace(",", " ").split()
    found = "Refused" if 400 <= answer.status < 500 else "Ignored" if told else "Accepted"
    assert (found, answer.status < 500) == (here, True), answer.body


@pytest.mark.parametrize("way", list(BODIES))
def test_every_way_has_rows(way: str) -> None:
    assert len([row for row in requests() if row[0] == way]) > 15


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("page", PAGES)
async def test_routes(server: RunningServer, page: str) -> None:
    found = [(route, here.split()[0].rstrip(".,:;")) for route, here in rows(page, "route", "here")]
    assert len(found) > 10
    for route, here in found:
        method, path = route.split()
        path = path.format(model="model", version=1)
        async with server.client.request(method, path, json={} if method == "POST" else None) as answer:
            text = await answer.text()
        assert ("Not" if "there is no route" in text else "Served") == here, route


@pytest.mark.parametrize("page", PAGES)
def test_settings_have_the_effect_that_is_said(page: str, plugins: Plugins, tmp_path: Path) -> None:
    """Some engine takes every setting that stands in a table without an error or a warning."""
    settings = re.findall(r"`((?:option\.)?[a-z_]+=[^\s`]+)`", DOCUMENTS[page])
    assert len(settings) > 8
    for number, setting in enumerate(sorted(set(settings))):
        problems = [problems_with(setting, engine, plugins, tmp_path / f"{number}_{engine}") for engine in ENGINES]
        assert "" in problems, (setting, problems)


ENGINES = ("vllm", "trtllm", "torch", "lmi-dist")


def problems_with(setting: str, engine: str, plugins: Plugins, directory: Path) -> str:
    """Return what reading a directory with this setting tells of it; "" if nothing."""
    key = setting.partition("=")[0]
    model = [] if key == "option.model_id" else ["option.model_id=org/name"]
    backend = [] if key == "option.rolling_batch" else [f"option.rolling_batch={engine}"]
    directory.mkdir()
    (directory / "template.jinja").write_text("{{ messages }}")
    (directory / "serving.properties").write_text("\n".join([*model, *backend, setting]))
    try:
        (plan,) = read_plans(directory, {}, plugins)
    except Exception as error:
        return str(error)
    return "\n".join(line for line in plan.configuration.warnings if key in line)


def test_every_argument_of_tgi_has_a_row() -> None:
    named = [argument.removeprefix("--") for argument, *_ in rows(PAGES[0], "argument", "its variable", "here")]
    assert sorted(named) == sorted(LAUNCHER.split())


def test_variables_of_tgi_are_treated_as_said() -> None:
    declared = set(re.findall(r"`([A-Z][A-Z0-9_]+)`", DOCUMENTS["options.md"]))
    told = {variable.name for variable in VARIABLES}
    for argument, treatment, _ in rows(PAGES[0], "argument", "its variable", "here"):
        name = argument.removeprefix("--").upper().replace("-", "_")
        expected = "read" if name in declared else "no effect" if name in told else "not read"
        if name in READ or name in (MODEL_ID, PORT, API_KEY, ORIGINS, "SHARDED"):
            expected = f"read with `{FLAG}`"
        assert treatment.partition(":")[0] == expected.partition(":")[0], argument
        for other in re.findall(r"`([A-Z_]+)` (?:is|always)$", treatment):
            assert other in declared | {"SERVING_PORT"}


def test_every_field_of_the_payloads_has_a_row() -> None:
    names = {(way, name) for way, name, _, _ in requests()}
    assert {name for name in TgiParameters.model_fields if ("/generate parameters", name) not in names} == set()
    own = {"prompt_in_response", "response_pool", "json_format", "json_format_is_json_schema"}
    assert own <= HappyVllmPayload.model_fields.keys()
    assert {name for name in {*own, "logits_processors"} if ("/v1/generate", name) not in names} == set()
