import re

from lmi_core.configuration.keys_without_effect import KEYS_WITHOUT_EFFECT
from lmi_core.plugins.loading import load_plugins
from tools.docs.coming_from_djl import document
from tools.docs.djl_names import ANSWERED_ROUTES, DJL_KEYS, OTHER_ROUTES

PLUGINS = load_plugins()
PAGE = document(PLUGINS)
ROWS = re.findall(r"^\| (`.+?`) \| (.+) \|$", PAGE.partition("\n## Variables")[0], re.MULTILINE)
ROUTES = {f"{route.method} {route.path}" for handler in PLUGINS.handlers for route in handler.routes}


def test_every_name_is_on_the_page() -> None:
    assert [name for name in [*DJL_KEYS, *ANSWERED_ROUTES, *OTHER_ROUTES] if f"`{name}`" not in PAGE] == []


def test_routes_are_as_declared() -> None:
    assert {route for route in ANSWERED_ROUTES if route != "GET /ping"} <= ROUTES
    assert ROUTES.isdisjoint(OTHER_ROUTES)


def test_keys_without_effect_are_read_by_nobody() -> None:
    """No backend reads a key without effect, as the reason given for it would be wrong."""
    effects = {key: effect for keys, effect in ROWS for key in re.findall(r"`(.+?)`", keys)}
    assert [key for key in KEYS_WITHOUT_EFFECT if key in DJL_KEYS and "No effect" not in effects.get(key, "")] == []


def test_keys_with_one_effect_share_a_row() -> None:
    keys = {effect: keys for keys, effect in ROWS}
    assert len(keys) == len(ROWS)
    assert keys["lmi-dist, vllm: Read."] == "`option.draft_model_tp_size`, `option.lmcache_config_file`"


def test_keys_that_every_engine_reads_have_no_row() -> None:
    listed = PAGE.partition("describes:\n\n")[2].partition("\n\n")[0]
    assert {"`option.model_id`", "`option.max_model_len`", "`option.reasoning_parser`"} <= set(
        re.findall(r"`.+?`", listed)
    )
    assert not any("`option.model_id`" in keys for keys, _ in ROWS)
