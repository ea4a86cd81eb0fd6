"""The documents say what the code does."""

import inspect
import json
import re
import tomllib

import pytest

from lmi_core import hookspecs
from lmi_core.generation.parameters import ExtendedParameters
from lmi_core.parsing.tool_calls.formats import ALIASES, FORMATS
from lmi_core.plugins.loading import Plugins, load_plugins
from lmi_core.texts import fill_in_the_middle
from lmi_handlers.anthropic import tolerance as anthropic_tolerance
from lmi_handlers.anthropic.payload import MessagesRequest
from lmi_handlers.chat.request import ChatRequest
from lmi_handlers.completions.request import CompletionRequest
from lmi_handlers.fields import openai_tolerance
from lmi_handlers.fields.embedding_inputs import EmbeddingPayload
from lmi_handlers.fields.passed import PassedFields
from lmi_handlers.happy_vllm.payload import HappyVllmPayload
from lmi_handlers.lmi.embeddings import PairsPayload
from lmi_handlers.ollama.payload import OllamaChat, OllamaGenerate, OllamaMessage, OllamaOptions
from lmi_handlers.openai.embeddings import EmbeddingsRequest
from lmi_handlers.openai.rerank import RerankRequest, ScoreRequest, TeiRerankRequest
from lmi_handlers.responses import items as responses_items
from lmi_handlers.responses import request as responses_request
from lmi_handlers.responses.request import ResponsesRequest
from lmi_handlers.tgi.payload import HostedApiOptions, TgiParameters
from lmi_handlers.triton import payload as triton_payload
from tests.docs.pages import DOCUMENTS, ROOT
from tests.docs.snippets import SESSIONS
from tests.docs.test_coming_from import PAGES as COMING_FROM
from tools.docs.djl_names import DJL_KEYS


@pytest.fixture(scope="module")
def plugins() -> Plugins:
    return load_plugins()


def test_every_option_that_is_named_exists() -> None:
    keys = set(re.findall(r"option\.\w+", DOCUMENTS["options.md"])) | set(DJL_KEYS)
    # Other tests read the settings of these, which are also vLLM's engine arguments, and of a plugin.
    pages = DOCUMENTS.keys() - COMING_FROM - set(SESSIONS)
    named = {key for page in pages for key in re.findall(r"option\.\w+", DOCUMENTS[page])}
    assert named <= keys


def test_every_parameter_is_documented_with_its_default() -> None:
    table = ExtendedParameters.model_fields.items()
    rows = [f"| `{name}` | {json.dumps(field.default)} | {field.description} |" for name, field in table]
    assert [row for row in rows if row not in DOCUMENTS["api.md"]] == []


def test_every_hook_is_documented_with_its_signature() -> None:
    hooks = [function for name, function in vars(hookspecs).items() if name.startswith("lmi_")]
    assert len(hooks) == 3
    for hook in hooks:
        assert f"`{hook.__name__}({', '.join(inspect.signature(hook).parameters)})`" in DOCUMENTS["plugins.md"]


def test_every_route_is_documented(plugins: Plugins) -> None:
    routes = [f"| `{route.method} {route.path}` |" for handler in plugins.handlers for route in handler.routes]
    pages = "".join(DOCUMENTS.values())
    assert [route for route in routes if route not in pages] == []


def test_names_of_parameters_in_other_dialects_are_documented() -> None:
    """Each page names its dialect's fields; those of LMI's names may be left to the table in api.md."""
    named = {
        "openai.md": {
            *ChatRequest.model_fields,
            *CompletionRequest.model_fields,
            *openai_tolerance.HINTS,
            *openai_tolerance.REFUSED,
            *FORMATS,
        },
        "anthropic.md": {
            *MessagesRequest.model_fields,
            *anthropic_tolerance.HINTS,
            *anthropic_tolerance.REFUSED,
        },
        "responses.md": {
            *(ResponsesRequest.model_fields.keys() - PassedFields.model_fields.keys()),
            *responses_request.REFUSED,
            *responses_request.NO_PLACE,
            *responses_items.TYPES.keys() - {"message"},
        },
        "embeddings.md": {*EmbeddingsRequest.model_fields, *EmbeddingPayload.model_fields},
        "reranking.md": {
            *RerankRequest.model_fields,
            *ScoreRequest.model_fields,
            *TeiRerankRequest.model_fields,
            *PairsPayload.model_fields,
        },
        "triton.md": {*triton_payload.NAMES, *(f"return_{output}" for output in triton_payload.OUTPUTS)},
        "happy_vllm.md": {*HappyVllmPayload.model_fields},
        "tgi.md": {*TgiParameters.model_fields, *HostedApiOptions.model_fields},
        "ollama.md": {
            *OllamaGenerate.model_fields,
            *OllamaChat.model_fields,
            *OllamaMessage.model_fields,
            *OllamaOptions.model_fields,
        },
    }
    for page in ("openai.md", "anthropic.md", "happy_vllm.md"):
        assert "(api.md#parameters)" in DOCUMENTS[page]
        named[page] -= ExtendedParameters.model_fields.keys()
    missing = {page: {name for name in names if f"`{name}`" not in DOCUMENTS[page]} for page, names in named.items()}
    assert {page: names for page, names in missing.items() if names} == {}


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


def test_the_changelog_has_this_version_and_what_comes() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    headings = re.findall(r"^## (.+)$", DOCUMENTS["CHANGELOG.md"], re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    shown = r"\d+\.\d+\.\d+" if version.endswith(".dev0") else re.escape(version)
    assert re.fullmatch(rf"\[{shown}\] - \d{{4}}-\d\d-\d\d", headings[1])
    assert all(re.fullmatch(r"\[[\d.]+\] - \d{4}-\d\d-\d\d", heading) for heading in headings[1:])


def test_server_options_that_security_names_are_declared() -> None:
    table = DOCUMENTS["SECURITY.md"].partition("## Options that matter")[2]
    named = set(re.findall(r"^\| (`.+?`) \|", table, re.MULTILINE))
    keys = {key for names in named for key in re.findall(r"`([a-z]\w+)`", names)}
    assert keys
    declared = DOCUMENTS["options.md"] + DOCUMENTS["container.md"]
    assert keys <= set(re.findall(r"^\| `(\w+)`", declared, re.MULTILINE))


def test_make_targets_that_are_named_exist() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        target for text in DOCUMENTS.values() for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {"serve", "test", "test-fast", "check", "fix", "docs"} <= named <= targets
