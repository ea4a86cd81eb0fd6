import gzip
import io
import struct
import tarfile
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.remote.archives.unpacking import FREE_BYTES, MAX_RATIO, Limits, model_root, unpack
from tests.core.remote.archives.packing import tar_member, tar_of, zip_link, zip_of

FILES = {"config.json": b"{}", "sub/folder/model.py": b"x = 1\n", "big.bin": bytes(range(256)) * 9000, "empty": b""}
REPACK = "pack the model directory again"


def unpack_archive(data: bytes, folder: Path, limits: Limits | None = None) -> Path:
    archive = folder / "archive"
    archive.write_bytes(data)
    with archive.open("rb") as file:
        unpack(file, folder / "out", limits or Limits(), lambda done: None)
    return folder / "out"


def refusal(data: bytes, folder: Path, limits: Limits | None = None) -> str:
    """Return why an archive is refused; nothing is written outside of its folder."""
    with pytest.raises(ConfigurationError) as raised:
        unpack_archive(data, folder, limits)
    outside = {path.name for path in folder.iterdir()} - {"archive", "out"}
    assert not outside
    assert not [path for path in folder.rglob("*") if path.is_symlink()]
    return raised.value.message


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "data",
    [tar_of(FILES), tar_of(FILES, compressed=False), zip_of(FILES), zip_of(FILES, compression=zipfile.ZIP_STORED)],
)
def test_every_format(tmp_path: Path, data: bytes) -> None:
    assert contents(unpack_archive(data, tmp_path)) == FILES


def test_nested_archives_stay_as_they_are(tmp_path: Path) -> None:
    inner = zip_of({"../x": b""})
    assert contents(unpack_archive(tar_of({"inner.zip": inner}), tmp_path)) == {"inner.zip": inner}


def test_names_with_dots_and_what_macos_adds(tmp_path: Path) -> None:
    folder = tar_member("./sub/", tarfile.DIRTYPE)
    assert contents(unpack_archive(tar_of({"./a": b"1", "sub//b": b"2", "__MACOSX/._a": b"3"}, folder), tmp_path)) == {
        "a": b"1",
        "sub/b": b"2",
    }


def test_modes_are_not_taken_over(tmp_path: Path) -> None:
    member = tar_member("run.sh", tarfile.REGTYPE)
    member.mode = 0o6777
    assert (unpack_archive(tar_of({}, member), tmp_path) / "run.sh").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../x", "points outside the archive"),
        ("a/../../x", "points outside the archive"),
        ("/tmp/x", "is not relative to the archive, or has a backslash"),
        ("//x", "is not relative to the archive, or has a backslash"),
        ("..\\x", "is not relative to the archive, or has a backslash"),
        ("C:x", "is not relative to the archive, or has a backslash"),
        ("a\nb", "contains a control character"),
        ("\x1b[2Jx", "contains a control character"),
        ("n" * 256, "is too long"),
        ("d/" * 40 + "x", "is too long"),
        ("dir" * 80 + "/" + "/".join(["part" * 20] * 12), "is too long"),
        (".", "is the name of a folder, and of a file"),
    ],
)
@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_names_that_are_refused(tmp_path: Path, pack: object, name: str, why: str) -> None:
    data = tar_of({name: b"1"}) if pack is tar_of else zip_of({name: b"1"})
    message = refusal(data, tmp_path)
    assert why in message
    assert message.endswith(REPACK)
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 400


def test_name_that_is_not_utf_8(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT, encoding="latin-1") as tar:
        tar.addfile(tarfile.TarInfo("\xe9"))
    assert "is not valid UTF-8" in refusal(packed.getvalue(), tmp_path)


def test_null_byte_in_a_zip(tmp_path: Path) -> None:
    data = zip_of({"a_b.py": b"1"}).replace(b"a_b.py", b"a\0b.py")
    assert "'a\\x00b.py' contains a control character" in refusal(data, tmp_path)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("model.py", "Model.PY", "'Model.PY' and 'model.py' differ in case or accents alone"),
        ("A/x", "a/y", "'a/y' and 'A' differ in case or accents alone"),
        ("\u00e9", "e\u0301", "differ in case or accents alone"),
        ("a", "./a", "'./a' is in it twice"),
        ("a", "a/b", "is a file and a folder"),
        ("a/b", "a", "is a file and a folder"),
    ],
)
def test_names_that_are_there_twice(tmp_path: Path, first: str, second: str, why: str) -> None:
    assert why in refusal(tar_of({first: b"1", second: b"2"}), tmp_path)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (tarfile.SYMTYPE, "/etc/passwd"),
        (tarfile.SYMTYPE, "model.py"),
        (tarfile.LNKTYPE, "/etc/passwd"),
        (tarfile.CHRTYPE, ""),
        (tarfile.BLKTYPE, ""),
        (tarfile.FIFOTYPE, ""),
    ],
)
def test_only_files_and_folders_are_unpacked(tmp_path: Path, kind: bytes, target: str) -> None:
    message = refusal(tar_of({"model.py": b""}, tar_member("other", kind, target)), tmp_path)
    assert message == (
        "the archive cannot be unpacked: 'other' is a link or a device, neither a file nor a folder: pack the files "
        "themselves, as `tar -h --hard-dereference` does"
    )


def test_writing_through_a_link_is_refused(tmp_path: Path) -> None:
    link = tar_member("sub", tarfile.SYMTYPE, "..")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("sub/escaped"))
    assert "is a link" in refusal(packed.getvalue(), tmp_path)


def test_links_in_zip_archives(tmp_path: Path) -> None:
    assert "'x' is a link" in refusal(zip_link("x", "/etc/passwd"), tmp_path)


def test_devices_and_rare_methods_in_zip_archives(tmp_path: Path) -> None:
    assert "neither a file nor a folder" in refusal(zip_of({"x": b""}, mode=0o020666), tmp_path)
    (tmp_path / "out").rmdir()
    rare = zip_of({"x": b"1"}, compression=zipfile.ZIP_BZIP2)
    assert "is compressed by a rare method: pack it with deflate" in refusal(rare, tmp_path)


def test_encrypted_zip(tmp_path: Path) -> None:
    data = bytearray(zip_of({"x": b"1"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert "'x' is encrypted: pack it without a password" in refusal(bytes(data), tmp_path)


@pytest.mark.parametrize("data", [tar_of(FILES), tar_of(FILES, compressed=False), zip_of(FILES)])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.9])
def test_archives_that_are_cut_off(tmp_path: Path, data: bytes, share: float) -> None:
    assert refusal(data[: int(len(data) * share)], tmp_path).startswith("the archive is damaged or cut off (")


def test_tar_without_its_end(tmp_path: Path) -> None:
    data = tar_of({"a": b"1" * 512}, compressed=False)
    assert "is damaged or cut off" in refusal(data[: 512 * 2], tmp_path)


@pytest.mark.parametrize("data", [tar_of(FILES), zip_of(FILES)])
def test_changed_bytes_are_noticed(tmp_path: Path, data: bytes) -> None:
    changed = bytearray(data)
    changed[len(data) // 2] ^= 0xFF
    assert "is damaged or cut off" in refusal(bytes(changed), tmp_path)


def test_damaged_header_in_the_middle_of_a_tar(tmp_path: Path) -> None:
    data = bytearray(tar_of({"a": b"1", "b": b"2"}, compressed=False))
    data[1024] ^= 0xFF  # the second header, at which tarfile itself would take the archive for finished
    assert "is damaged or cut off" in refusal(bytes(data), tmp_path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"<!DOCTYPE html><title>Log in</title>", "this is a web page and not an archive"),
        (b"hello", "this is not a supported archive: pack it as .zip, .tar.gz or .tar"),
        (b"", "this is not a supported archive"),
        (b"BZh91AY&SY", "this is not a supported archive: pack it as .zip, .tar.gz or .tar"),
        (gzip.compress(b"hello"), "is damaged or cut off"),
        (tar_of({}), "the archive is empty"),
        (zip_of({}), "the archive is empty"),
    ],
)
def test_what_is_not_an_archive_of_files(tmp_path: Path, data: bytes, why: str) -> None:
    assert why in refusal(data, tmp_path)


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_bounds_on_size_and_number(tmp_path: Path, pack: object) -> None:
    files = {str(number): b"1" * 100 for number in range(10)}
    data = tar_of(files) if pack is tar_of else zip_of(files)
    assert "unpacks to more than LMI_MAX_UNPACKED_BYTES=500" in refusal(data, tmp_path, Limits(max_bytes=500))
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    (tmp_path / "out").rmdir()
    assert "contains more than LMI_MAX_UNPACKED_FILES=5 files" in refusal(data, tmp_path, Limits(max_files=5))


@pytest.mark.parametrize("pack", [tar_of, zip_of])
def test_folders_count_that_only_paths_name(tmp_path: Path, pack: object) -> None:
    files = {f"{number}/{'d/' * 20}x": b"" for number in range(2)}
    data = tar_of(files) if pack is tar_of else zip_of(files)
    assert "contains more than LMI_MAX_UNPACKED_FILES=40 files and folders" in refusal(
        data, tmp_path, Limits(max_files=40)
    )


def test_files_and_their_folders_count_together(tmp_path: Path) -> None:
    several = tar_of({f"d{number}/f": b"" for number in range(9)})
    assert "LMI_MAX_UNPACKED_FILES=10" in refusal(several, tmp_path, Limits(max_files=10))


def sparse_zeros(size: int, *, compressed: bool = True) -> bytes:
    """Return a tar that says that it contains a file of this size, of which there is only the header."""
    member = tarfile.TarInfo("zeros")
    member.size = size
    header = member.tobuf(tarfile.GNU_FORMAT)
    return gzip.compress(header) if compressed else header


def test_bomb_is_refused_by_what_it_says(tmp_path: Path) -> None:
    message = refusal(sparse_zeros(FREE_BYTES + 1), tmp_path)
    assert f"unpacks to more than {MAX_RATIO} times its size, which only attacks do" in message
    assert contents(tmp_path / "out") == {}


def test_zip_that_understates_its_size(tmp_path: Path) -> None:
    data = bytearray(zip_of({"zeros": bytes(5_000_000)}))
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = struct.pack("<I", 10)
    data[22:26] = struct.pack("<I", 10)
    assert "is damaged or cut off" in refusal(bytes(data), tmp_path)
    assert sum(len(content) for content in contents(tmp_path / "out").values()) <= 1 << 20


@pytest.mark.parametrize("size", [-512, -(2**40)])
def test_tar_that_goes_backwards(tmp_path: Path, size: int) -> None:
    member = tarfile.TarInfo("a")
    member.pax_headers = {"size": str(size)}
    data = member.tobuf(tarfile.PAX_FORMAT) + bytes(2048)
    assert "is damaged or cut off" in refusal(data, tmp_path)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK])
def test_absurd_headers_take_no_memory(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("long")
    member.type, member.size = kind, 2**32
    data = gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + bytes(64 << 20), 1)
    tracemalloc.start()
    try:
        assert "a header takes more than" in refusal(data, tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_endless_chain_of_headers(tmp_path: Path) -> None:
    header = tarfile.TarInfo("x").create_pax_global_header({"a": "b"})
    assert refusal(gzip.compress(header * 5000), tmp_path).startswith("the archive")


def test_zip_with_an_absurd_directory(tmp_path: Path) -> None:
    data = bytearray(zip_of({"a": b"1"}))
    end = data.index(b"PK\x05\x06")
    data[end + 12 : end + 16] = struct.pack("<I", 2**31)
    assert "is damaged or cut off" in refusal(bytes(data), tmp_path)


def test_file_with_holes(tmp_path: Path) -> None:
    member = tarfile.TarInfo("holes")
    member.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": "0,1",
        "GNU.sparse.size": "9",
    }
    assert "'holes' is a file with holes: pack it without --sparse" in refusal(
        member.tobuf(tarfile.PAX_FORMAT) + bytes(2048), tmp_path
    )


@pytest.mark.parametrize(
    ("files", "root"),
    [
        ({"mine/config.json": b""}, "mine"),
        ({"mine/config.json": b"", ".hidden": b""}, "mine"),
        ({"mine/inner/config.json": b""}, "mine"),
        ({"mine/config.json": b"", "other": b""}, ""),
        ({"config.json": b""}, ""),
    ],
)
def test_single_folder_is_the_model(tmp_path: Path, files: dict[str, bytes], root: str) -> None:
    folder = unpack_archive(zip_of(files), tmp_path)
    assert model_root(folder) == folder / root


@pytest.mark.parametrize("text", ["0", "-1", "1e9", "many", "9" * 19])
def test_bounds_that_are_not_numbers(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^environment LMI_MAX_UNPACKED_FILES must be an integer"):
        Limits.read({"LMI_MAX_UNPACKED_FILES": text})


def test_given_size_replaces_the_ratio() -> None:
    limits = Limits.read({"LMI_MAX_UNPACKED_BYTES": str(2**40), "LMI_MAX_UNPACKED_FILES": ""})
    limits.check(2**39, 1, 1)
    with pytest.raises(ConfigurationError, match=r"1\.1 TB"):
        limits.check(2**41, 1, 1)
