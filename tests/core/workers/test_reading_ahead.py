import os
import threading
from pathlib import Path

import pytest

from lmi_core.workers import reading_ahead as reading
from lmi_core.workers.reading_ahead import ReadAhead, reading_ahead

PLENTY = 1 << 40
Reports = list[tuple[str, int | None, int | None]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in {"b.safetensors": 25, "a.safetensors": 10, "tokenizer.json": 99}.items():
        (tmp_path / name).write_bytes(os.urandom(size))
    return tmp_path


@pytest.fixture
def reports() -> Reports:
    return []


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHUNK", 10)


def test_every_byte_of_the_weights_is_told(folder: Path, reports: Reports) -> None:
    ahead = ReadAhead(folder, lambda *report: reports.append(report), PLENTY)
    ahead.read()
    assert ahead.done == ahead.total == 35
    assert reports == [("reading weights", done, 35) for done in (0, 10, 20, 30, 35)]


def test_no_more_is_read_than_memory_can_keep(folder: Path, reports: Reports) -> None:
    ReadAhead(folder, lambda *report: reports.append(report), 40).read()
    assert reports[-1] == ("reading weights", 20, 35)


def test_reading_ends_with_the_body_and_what_follows_is_told_last(folder: Path) -> None:
    """The report blocks the thread in the middle of a file until the body is over."""
    over, reports = threading.Event(), Reports()

    def report(what: str, done: int | None, total: int | None) -> None:
        reports.append((what, done, total))
        if done == 10:
            over.wait(60)

    with reading_ahead(folder, report, PLENTY, lambda: reports.append(("after", None, None))):
        threading.Timer(0, over.set).start()
    assert reports[-1] == ("after", None, None)


def test_what_is_no_folder_is_left_alone(reports: Reports) -> None:
    with reading_ahead(Path("org/name"), lambda *report: reports.append(report), PLENTY, reports.clear):
        pass
    assert reports == []


def test_a_file_that_cannot_be_read_is_left_to_the_loader(tmp_path: Path, reports: Reports) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"1234")
    ahead = ReadAhead(tmp_path, lambda *report: reports.append(report), PLENTY)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        ahead.read()
    with reading_ahead(tmp_path, lambda *report: reports.append(report), PLENTY, lambda: None):
        pass  # the folder is empty now
    assert reports == [("reading weights", 0, 4), ("reading weights", 0, 0)]
