"""The dashboard and the alerts of examples/grafana ask only for what there is."""

import json
import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lmi_core.errors import LmiError
from lmi_core.metrics.model_metrics import ANSWERED
from lmi_core.metrics.request_record import RequestRecord
from lmi_handlers.metrics.declared import OWN_METRICS, DeclaredMetric
from tests.conftest import SCRIPTED, ModelDirectory, Serve

FOLDER = Path(__file__).parents[3] / "examples" / "grafana"
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text())
ALERTS = yaml.safe_load((FOLDER / "alerts.yaml").read_text())
OF_PROMETHEUS = {"job", "instance", "le"}  # labels that it adds
OF_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes", "up"}  # and `up` is Prometheus's own
OF_ENGINES = {  # which the scripted backend does not tell
    "lmi_cache_usage_ratio",
    "lmi_prefix_cache_hits_total",
    "lmi_prefix_cache_queries_total",
}
GRAFANA = re.compile(r"\$(__)?\w+")


def suffixed(declared: DeclaredMetric) -> list[str]:
    parts = ("_bucket", "_sum", "_count") if declared.kind == "histogram" else ("",)
    return [declared.sample + part for part in parts]


LABELS = {name: {*each.labels, *OF_PROMETHEUS} for each in OWN_METRICS for name in suffixed(each)}


def panels() -> list[Any]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, with the labels that its legend or summary shows."""
    for panel in panels():
        for target in panel["targets"]:
            yield target["expr"], target["legendFormat"]
    for rule in rules():
        yield rule["expr"], rule["annotations"]["summary"].replace("$labels.", "")
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["definition"])
            assert found is not None, variable["definition"]
            yield found[1], "{{" + found[2] + "}}"


def rules() -> list[Any]:
    return [rule for group in ALERTS["groups"] for rule in group["rules"]]


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Return the metrics that an expression names, each with the labels that it asks for."""
    found = re.findall(r"\b((?:lmi|process)_\w+|up)(?:\{([^}]*)\})?", expression)
    return [(name, set(re.findall(r"(\w+)(?==~|=|!=|!~)", matchers))) for name, matchers in found]


EXPRESSIONS = sorted(set(expressions()))


@pytest.mark.parametrize(("expression", "shown"), EXPRESSIONS)
def test_an_expression(expression: str, shown: str) -> None:
    """Every name is a metric's, and every label one that it has."""
    asked = selectors(expression)
    assert asked
    grouped = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in group.split(", ")}
    for name, labels in asked:
        known = OF_PROMETHEUS if name in OF_PROCESS else LABELS[name]
        assert labels | grouped <= known, name
    shown_labels = set(re.findall(r"\{\{ ?(\w+) ?\}\}", shown))
    available = grouped or set.intersection(*(OF_PROMETHEUS if n in OF_PROCESS else LABELS[n] for n, _ in asked))
    assert shown_labels <= available
    plain = re.sub(r'"[^"]*"', "", expression)
    for opening, closing in ("()", "{}", "[]"):
        assert plain.count(opening) == plain.count(closing)
    assert {match[0] for match in GRAFANA.finditer(expression)} <= {"$job", "$model", "$__rate_interval"}


def test_every_reason_is_that_of_an_error() -> None:
    """A reason that no request has would make an alert silent."""
    named = {
        reason
        for expression, _ in EXPRESSIONS
        for reasons in re.findall(r'reason(?:=|=~|!=|!~)"([^"]*)"', expression)
        for reason in reasons.split("|")
    }
    assert "generation_failed" in named
    assert named <= kinds(LmiError) | {ANSWERED}


def kinds(error: type[LmiError]) -> set[str]:
    return {error.kind}.union(*map(kinds, error.__subclasses__()))


async def test_every_metric_is_there(serve: Serve, model_dir: ModelDirectory) -> None:
    """A scrape after requests of all kinds of ends has all of them, but for what only engines tell."""
    server = await serve(
        model_dir({"serving.properties": SCRIPTED + "job_queue_size=1\noption.max_rolling_batch_size=1\n"})
    )
    assert (await server.post("/invocations", {"inputs": "a"})).status == 200
    server.dispatcher.draining = True
    assert (await server.post("/invocations", {"inputs": "a"})).status == 503
    server.dispatcher.draining = False
    server.model.metrics.add(RequestRecord("lmi", "id"), 499, "client_left")
    text = (await server.get("/metrics")).body.decode()
    scraped = {sample.name for family in text_string_to_metric_families(text) for sample in family.samples}
    named = {name for expression, _ in EXPRESSIONS for name, _ in selectors(expression)}
    assert named - scraped == (OF_ENGINES & named) | {"up"}


def test_the_panels_have_places_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids) > 20
    for one, other in combinations([panel["gridPos"] for panel in DASHBOARD["panels"]], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in DASHBOARD["panels"])


def test_every_panel_asks_the_chosen_data_source() -> None:
    asked = [part["datasource"]["uid"] for panel in panels() for part in (panel, *panel["targets"])]
    assert set(asked) == {"${datasource}"}
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "job", "model"]


def test_every_alert_says_what_it_means() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")
