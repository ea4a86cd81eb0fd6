"""The documents say what the code does."""

import inspect
import json
import re
from pathlib import Path

import pytest

from lmi_core import hookspecs
from lmi_core.chats.tool_calls.formats import ALIASES, FORMATS
from lmi_core.configuration.options_document import example, markdown
from lmi_core.engines.extended_parameters import ExtendedParameters
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.texts import fill_in_the_middle
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.cli.report import option_types
from lmi_handlers.djl.document import document
from lmi_handlers.djl.names import DJL_KEYS
from lmi_handlers.happy_vllm.payload import HappyVllmPayload
from lmi_handlers.openai import tolerance as openai_tolerance
from lmi_handlers.openai.completions import CompletionRequest
from lmi_handlers.tgi.payload import TgiParameters
from lmi_handlers.triton import payload as triton_payload

ROOT = Path(__file__).parents[2]
DOCUMENTS = {path.name: path.read_text() for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]}


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


def test_options_are_as_declared(plugins: Plugins) -> None:
    assert DOCUMENTS["options.md"] == markdown(option_types(plugins)), "run `make docs`"
    assert (ROOT / "serving.properties.example").read_text() == example(option_types(plugins)), "run `make docs`"
    assert DOCUMENTS["coming_from_djl.md"] == document(plugins), "run `make docs`"


def test_every_option_that_is_named_exists(plugins: Plugins) -> None:
    keys = set(re.findall(r"option\.\w+", markdown(option_types(plugins)))) | set(DJL_KEYS)
    named = {key for text in DOCUMENTS.values() for key in re.findall(r"option\.\w+", text)}
    assert named <= keys


def test_every_parameter_is_documented_with_its_default() -> None:
    for name, field in ExtendedParameters.model_fields.items():
        assert f"| `{name}` | {json.dumps(field.default)} | {field.description} |" in DOCUMENTS["api.md"]


def test_every_hook_is_documented_with_its_signature() -> None:
    hooks = [function for name, function in vars(hookspecs).items() if name.startswith("lmi_")]
    assert len(hooks) == 3
    for hook in hooks:
        assert f"`{hook.__name__}({', '.join(inspect.signature(hook).parameters)})`" in DOCUMENTS["plugins.md"]


def test_every_route_is_documented(plugins: Plugins) -> None:
    for handler in plugins.handlers:
        for route in handler.routes:
            assert f"| `{route.method} {route.path}` |" in "".join(DOCUMENTS.values())


def test_names_of_parameters_in_other_dialects_are_documented() -> None:
    named = {
        "openai.md": {
            *ChatRequest.model_fields,
            *CompletionRequest.model_fields,
            *openai_tolerance.HINTS,
            *openai_tolerance.IGNORED,
            *openai_tolerance.REFUSED,
            *FORMATS,
        },
        "triton.md": {*triton_payload.NAMES, *(f"return_{output}" for output in triton_payload.OUTPUTS)},
        "happy_vllm.md": HappyVllmPayload.model_fields.keys(),
        "tgi.md": TgiParameters.model_fields.keys(),
    }
    for page, names in named.items():
        assert {name for name in names if f"`{name}`" not in DOCUMENTS[page]} == set()


def test_every_formatter_and_backend_is_documented(plugins: Plugins) -> None:
    text = "".join(DOCUMENTS.values())
    for plugin in [*plugins.formatters, *plugins.backends]:
        assert f"`{plugin.name}`" in text or f"option.rolling_batch={plugin.name}" in text


def test_every_format_of_tool_calls_is_documented_with_its_names() -> None:
    for name, found in FORMATS.items():
        others = ", ".join(f"`{alias}`" for alias, target in ALIASES.items() if target == name)
        assert f"| `{name}` | {others}{' ' if others else ''}| {found.models} |" in DOCUMENTS["openai.md"]


def test_every_format_of_filling_in_the_middle_is_documented() -> None:
    for found in fill_in_the_middle.FORMATS:
        assert f"| {found.models} | `{''.join(found.parts)}` |" in DOCUMENTS["openai.md"]


def test_links_lead_somewhere() -> None:
    for name, text in DOCUMENTS.items():
        folder = ROOT if name == "README.md" else ROOT / "docs"
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (folder / target).exists(), f"{name}: {target}"


def test_paths_that_are_named_exist() -> None:
    for name, text in DOCUMENTS.items():
        for path in re.findall(r"`((?:core|handlers|plugins|tests|examples)/[\w/.]+)`", text):
            assert (ROOT / path).exists(), f"{name}: {path}"


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target for text in DOCUMENTS.values() for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {"serve", "test", "check", "docs"} <= named <= targets
