import re

from tests.longest import OF_ONE_ENGINE, ROOT, SECONDS, seconds_of

ASKS = re.compile(r"^(async )?def test_\w+\([^)]*\bvllm: VllmServer", re.MULTILINE)


def test_every_file_is_there() -> None:
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []


def test_files_that_are_not_named_come_last() -> None:
    assert seconds_of(ROOT / "soak" / "test_soak.py") > seconds_of(ROOT / "test_longest.py") == 0


def test_files_of_the_shared_engine() -> None:
    """Every test file that asks for the fixture `vllm` is in the list, and no other."""
    asking = [path for path in ROOT.rglob("test_*.py") if ASKS.search(path.read_text(encoding="utf-8"))]
    assert {path.relative_to(ROOT).as_posix() for path in asking} <= OF_ONE_ENGINE
    assert all("vllm: VllmServer" in (ROOT / name).read_text(encoding="utf-8") for name in OF_ONE_ENGINE)
