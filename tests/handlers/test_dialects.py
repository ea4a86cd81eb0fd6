"""Dialects are registered by name and routes, and imported when a request needs them."""

import subprocess
import sys

from lmi_core.plugins.loading import load_plugins
from lmi_core.plugins.registry import Lazy
from lmi_handlers.dialects import DIALECTS

REGISTERED = """\
import sys
from lmi_core.plugins.loading import load_plugins
handlers = load_plugins().handlers
print("lmi_handlers.anthropic.handler" in sys.modules, handlers.get("anthropic").__name__)
print("lmi_handlers.anthropic.handler" in sys.modules, "lmi_handlers.triton.handler" in sys.modules)
"""


def test_declarations_are_those_of_the_classes() -> None:
    handlers = load_plugins().handlers
    assert {each.name for each in handlers.entries() if isinstance(each, Lazy)} == {each.name for each in DIALECTS}
    for declared in DIALECTS:
        handler = handlers.get(declared.name)
        assert handler.name == declared.name
        assert sorted(declared.routes) == sorted(f"{route.method} {route.path}" for route in handler.routes)
        assert all(route.is_for_clients and route.media_type is None for route in handler.routes)
    assert not any(isinstance(each, Lazy) for each in handlers.entries())


def test_a_dialect_that_is_not_used_is_not_imported() -> None:
    printed = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == ["False AnthropicHandler", "True False"]
