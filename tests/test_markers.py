"""The markers say which engine a test needs, also where nobody wrote them down beside it."""

from pathlib import Path

import pytest

from tests import markers
from tests.markers import MARKERS, NEEDS, ROOT, check_paths, marker_of_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("plugins/torch_engine", "torch"),
        ("plugins/torch_engine/model/test_loading.py", "torch"),
        ("plugins/vllm_engine/test_engine.py", "vllm"),
        ("plugins/torch_engine_of_others/test_a.py", None),
        ("handlers/cli/test_cli.py", "slow"),
        ("handlers/cli/test_serving.py", None),
        ("test_markers.py", None),
    ],
)
def test_what_a_path_needs(path: str, expected: str | None) -> None:
    assert marker_of_path(ROOT / path) == expected


def test_files_elsewhere_need_nothing(tmp_path: Path) -> None:
    assert marker_of_path(tmp_path / "plugins" / "torch_engine") is None


def test_every_marker_is_registered(pytestconfig: pytest.Config) -> None:
    registered = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    assert {*NEEDS.values(), *markers.NEEDS_OF_FIXTURES.values()} <= set(MARKERS) <= registered


def test_a_file_that_was_moved_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    check_paths()
    monkeypatch.setitem(NEEDS, "plugins/gone", "torch")
    with pytest.raises(pytest.UsageError, match=r"tests/markers.py names what does not exist: plugins/gone"):
        check_paths()
