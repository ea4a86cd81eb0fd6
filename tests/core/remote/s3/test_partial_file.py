from pathlib import Path

from lmi_core.remote.s3.partial_file import Part, PartialFile, missing_bytes


def test_parts(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "file", 10, 4) as file:
        assert file.missing() == [Part(0, 0, 4), Part(1, 4, 8), Part(2, 8, 10)]


def test_what_is_finished_is_there_the_next_time(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "file", 10, 4) as file:
        file.write(b"4567", 4)
        file.finish(Part(1, 4, 8))
        file.write(b"01", 0)  # never finished
    with PartialFile(tmp_path / "file", 10, 4) as file:
        assert [part.index for part in file.missing()] == [0, 2]
        file.write(b"0123", 0)
        file.write(b"89", 8)
        file.complete()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_record_without_its_file_counts_for_nothing(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "file", 10, 4) as file:
        file.finish(Part(0, 0, 4))
    (tmp_path / "file.partial").unlink()
    with PartialFile(tmp_path / "file", 10, 4) as file:
        assert len(file.missing()) == 3


def test_parts_of_another_size_count_for_nothing(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "file", 10, 4) as file:
        file.finish(Part(0, 0, 4))
    with PartialFile(tmp_path / "file", 10, 5) as file:
        assert len(file.missing()) == 2


def test_empty_file(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "file", 0, 4) as file:
        assert file.missing() == []
        file.complete()
    assert (tmp_path / "file").read_bytes() == b""


def test_missing_bytes_without_making_a_file(tmp_path: Path) -> None:
    assert missing_bytes(tmp_path / "file", 10, 4) == 10
    assert list(tmp_path.iterdir()) == []
    with PartialFile(tmp_path / "file", 10, 4) as file:
        file.finish(Part(1, 4, 8))
    assert missing_bytes(tmp_path / "file", 10, 4) == 6
