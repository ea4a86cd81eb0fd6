"""Origins of pages, patterns of them, and the settings of who may use the server from a page."""

from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.cross_origin import METHODS, CrossOrigin, Origin
from lmi_handlers.cli.plans import notes_of
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments
from tests.conftest import SCRIPTED, ModelDirectory

APP = "https://app.example.com"
ADMITTED = [
    (APP, APP),
    (APP, "https://app.example.com:443"),
    ("https://App.Example.com:443/", APP),
    ("http://app.example.com", "http://app.example.com:80"),
    ("https://*.example.com", APP),
    ("https://*.example.com", "https://a.b.example.com"),
    ("http://localhost:*", "http://localhost"),
    ("http://localhost:*", "http://localhost:5173"),
    ("http://[::1]:3000", "http://[0:0::1]:3000"),
    ("app://obsidian.md", "app://obsidian.md"),
    ("https://*.example.com:8443", "https://app.example.com:8443"),
]
OTHERS = [
    (APP, "http://app.example.com"),
    (APP, "https://app.example.com:8443"),
    (APP, "https://app.example.com.evil.example"),
    (APP, "https://evil.example/app.example.com"),
    (APP, "https://evil.example@app.example.com"),
    (APP, "https://xapp.example.com"),
    ("https://*.example.com", "https://example.com"),
    ("https://*.example.com", "https://evilexample.com"),
    ("https://*.example.com", "https://*.example.com"),
    ("http://localhost:*", "http://localhost.evil.example:80"),
    ("http://localhost:*", "https://localhost:80"),
    (APP, "null"),
    (APP, ""),
    (APP, "*"),
    (APP, "https://"),
    (APP, f"{APP}, {APP}"),
]


@pytest.mark.parametrize(("pattern", "origin"), ADMITTED)
def test_admitted(pattern: str, origin: str) -> None:
    assert CrossOrigin([Origin.parse_pattern(pattern)]).admits(origin)


@pytest.mark.parametrize(("pattern", "origin"), OTHERS)
def test_others(pattern: str, origin: str) -> None:
    assert not CrossOrigin([Origin.parse_pattern(pattern)]).admits(origin)


def test_credentials_are_never_for_every_page() -> None:
    with pytest.raises(ValueError, match="list the origins"):
        CrossOrigin(None, allow_credentials=True)


def launched(directory: Path, **settings: str) -> Launch:
    arguments = Arguments(models=(str(directory),))
    return read_launch(arguments, {f"SERVING_{name.upper()}": value for name, value in settings.items()})


@pytest.fixture
def directory(model_dir: ModelDirectory) -> Path:
    return model_dir({"serving.properties": SCRIPTED})


def test_settings(directory: Path) -> None:
    rules = launched(
        directory,
        cors_allowed_origin=f"{APP}, http://localhost:*",
        cors_allowed_methods="get,POST",
        cors_allowed_headers="Authorization,content-type",
        cors_allow_credentials="true",
    ).access.cross_origin
    assert rules is not None
    assert (rules.admits(APP), rules.admits("http://localhost:1"), rules.admits("http://other.example")) == (
        (True, True, False)
    )
    assert list(rules.methods) == ["GET", "POST"]
    assert rules.refused_headers(["authorization", "Content-Type", "X-Other"]) == ["X-Other"]
    assert rules.allow_credentials


def test_defaults(directory: Path) -> None:
    launch = launched(directory)
    assert launch.access.cross_origin is None
    rules = launched(directory, cors_allowed_origin="*", cors_allowed_headers="*", cors_allowed_methods="*")
    assert rules.access.cross_origin == CrossOrigin(None) == CrossOrigin(None, METHODS, None, False)
    assert rules.warnings == ()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"cors_allowed_origin": "app.example.com"},
            "environment SERVING_CORS_ALLOWED_ORIGIN: cors_allowed_origin: an ",
        ),
        ({"cors_allowed_origin": "null"}, "Given: null"),
        ({"cors_allowed_origin": f"{APP}/page"}, f"Given: {APP}/page"),
        ({"cors_allowed_origin": "https://*"}, "Given: https://*"),
        ({"cors_allowed_origin": "https://*:*"}, "Given: https://*:*"),
        ({"cors_allowed_origin": "https://app.*.com"}, "Given: https://app.*.com"),
        ({"cors_allowed_origin": APP, "cors_allowed_methods": "GET POST"}, "or * for all. Given: GET POST"),
        ({"cors_allowed_origin": APP, "cors_allow_credentials": "yes"}, "must be true or false. Given: yes"),
        ({"cors_allowed_origin": "*", "cors_allow_credentials": "true"}, "list them in cors_allowed_origin. Given: *"),
    ],
)
def test_wrong_settings(directory: Path, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        launched(directory, **settings)
    assert message in raised.value.message


def test_settings_without_an_origin_are_told(directory: Path) -> None:
    (warning,) = launched(directory, cors_allowed_methods="GET").warnings
    assert warning == (
        "environment SERVING_CORS_ALLOWED_METHODS: cors_allowed_methods has no effect: there is no cors_allowed_origin"
    )


def test_every_page_without_a_key_is_said_at_the_start(directory: Path) -> None:
    (line,) = notes_of(launched(directory, cors_allowed_origin="*"))
    assert "every web page in a browser that can reach the server can generate" in line
    assert not [*notes_of(launched(directory, cors_allowed_origin=APP))]
    assert not [*notes_of(launched(directory, cors_allowed_origin="*", api_keys="ann sk-ann"))]
