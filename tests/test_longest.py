from tests.longest import ROOT, SECONDS, seconds_of


def test_every_file_is_there() -> None:
    assert [name for name in SECONDS if not (ROOT / name).is_file()] == []


def test_files_that_are_not_named_come_last() -> None:
    assert seconds_of(ROOT / "soak" / "test_soak.py") > seconds_of(ROOT / "test_longest.py") == 0
