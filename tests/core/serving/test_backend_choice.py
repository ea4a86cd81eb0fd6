from typing import Any

import pytest

from lmi_core.backend import Backend
from lmi_core.errors import PluginError
from lmi_core.plugins.registry import Registry
from lmi_core.serving.backend_choice import choose_backend
from lmi_plugins.backends.scripted import ScriptedBackend


def backend(backend_name: str, priority: int | None, obstacle: str | None = None) -> type[Backend[Any]]:
    class Toy(ScriptedBackend):
        name = backend_name
        aliases = (f"{backend_name}-alias",)
        auto_priority = priority

        @classmethod
        def unavailable(cls) -> str | None:
            return obstacle

    return Toy


def registry(*backends: type[Backend[Any]]) -> Registry[Backend[Any]]:
    backends_by_name: Registry[Backend[Any]] = Registry("backend", Backend)
    for each in backends:
        backends_by_name.register(each)
    return backends_by_name


SLOW = backend("slow", 0)
QUICK = backend("quick", 10)
BLOCKED = backend("blocked", 20, "it is not installed")
UNFIT = backend("unfit", 30, "there is no GPU")
NEVER = backend("never", None)


@pytest.mark.parametrize("rolling_batch", ["auto", "disable"])
@pytest.mark.parametrize(
    ("backends", "expected", "reason"),
    [
        ([SLOW], SLOW, "selects slow, the only backend that it can select"),
        ([SLOW, QUICK], QUICK, "selects quick"),
        ([QUICK, SLOW], QUICK, "selects quick"),
        ([NEVER, SLOW], SLOW, "selects slow, the only backend that it can select"),
        ([SLOW, BLOCKED, QUICK], QUICK, "selects quick; not blocked: it is not installed"),
        (
            [SLOW, BLOCKED, UNFIT],
            SLOW,
            "selects slow; not unfit: there is no GPU; not blocked: it is not installed",
        ),
        ([backend("below", -1, "it is broken"), SLOW], SLOW, "selects slow"),
    ],
)
def test_auto_takes_by_priority_and_says_why(
    rolling_batch: str, backends: list[type[Backend[Any]]], expected: type[Backend[Any]], reason: str
) -> None:
    choice = choose_backend(rolling_batch, registry(*backends))
    assert choice == (expected, f"option.rolling_batch={rolling_batch} {reason}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [("slow", SLOW), ("slow-alias", SLOW), ("never", NEVER), ("blocked", BLOCKED)],
)
def test_named_backend_is_taken_whatever_its_priority(name: str, expected: type[Backend[Any]]) -> None:
    choice = choose_backend(name, registry(SLOW, QUICK, NEVER, BLOCKED))
    assert choice == (expected, f"option.rolling_batch={name}")


def test_nothing_is_available() -> None:
    with pytest.raises(PluginError) as raised:
        choose_backend("auto", registry(NEVER, BLOCKED, UNFIT))
    assert raised.value.message == (
        "option.rolling_batch=auto: no backend is available: not unfit: there is no GPU; not blocked: it is not "
        "installed"
    )


def test_unknown_name() -> None:
    with pytest.raises(PluginError) as raised:
        choose_backend("slwo", registry(SLOW))
    assert raised.value.message == (
        "there is no backend `slwo`. Did you mean `slow`? Known: slow, slow-alias. Others come from "
        "installed packages of plugins, and from the files of --plugins-dir (in Python, plugins_directory)"
    )


def test_names_in_other_letters() -> None:
    named_alike = backend("Quick", None)
    backends = registry(SLOW, QUICK, NEVER, named_alike)
    assert choose_backend("SLOW", backends)[0] is SLOW
    assert choose_backend("Never-Alias", backends)[0] is NEVER
    assert choose_backend("Quick", backends)[0] is named_alike
    assert choose_backend("DeepSpeed", backends)[0] is QUICK


@pytest.mark.parametrize(
    ("name", "hint"), [('"slow"', "Quotes are not removed"), ("slow # for now", "Comments must be on separate lines")]
)
def test_what_was_written_with_a_name(name: str, hint: str) -> None:
    with pytest.raises(PluginError, match=rf"^there is no backend `.*`\. {hint}"):
        choose_backend(name, registry(SLOW))
