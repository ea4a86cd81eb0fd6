from lmi_core.configuration.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.plugins.loading import load_plugins
from tools.docs.coming_from_djl import document
from tools.docs.djl_names import ANSWERED_ROUTES, DJL_KEYS, OTHER_ROUTES

PLUGINS = load_plugins()
PAGE = document(PLUGINS)
ROUTES = {f"{route.method} {route.path}" for handler in PLUGINS.handlers for route in handler.routes}


def test_every_name_has_a_row() -> None:
    for name in [*DJL_KEYS, *ANSWERED_ROUTES, *OTHER_ROUTES]:
        assert f"| `{name}` | " in PAGE


def test_routes_are_as_declared() -> None:
    assert {route for route in ANSWERED_ROUTES if route != "GET /ping"} <= ROUTES
    assert ROUTES.isdisjoint(OTHER_ROUTES)


def test_keys_without_effect_are_read_by_nobody() -> None:
    """No backend reads a key without effect, as the reason given for it would be wrong."""
    keys = PAGE.partition("\n## Variables")[0]
    rows = {line.split("`")[1]: line for line in keys.splitlines() if line.startswith("| `")}
    assert [key for key in KEYS_WITHOUT_EFFECT if key in rows and "No effect" not in rows[key]] == []


def test_backends_that_differ_are_named() -> None:
    assert "| `option.draft_model_tp_size` | lmi-dist, vllm: " in PAGE
    assert "| `option.model_id` | A folder" in PAGE
