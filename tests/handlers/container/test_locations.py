from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.container.declarations import COMMAND_LINE
from lmi_handlers.container.locations import inferred_name
from lmi_handlers.container.locations import local_directory as find_directory


def no_fetch(url: str) -> Path:
    raise AssertionError(f"{url} is to be fetched")


def local_directory(url: str, source: str) -> Path:
    return find_directory(url, source, no_fetch)


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}", "FILE:{}/"])
def test_forms_of_one_directory(tmp_path: Path, form: str) -> None:
    assert local_directory(form.format(tmp_path), "-m") == tmp_path


def test_a_url_is_decoded_and_a_path_is_not(tmp_path: Path) -> None:
    (tmp_path / "a b").mkdir()
    (tmp_path / "a%20b").mkdir()
    assert local_directory(f"file://{tmp_path}/a%20b", "-m") == tmp_path / "a b"
    assert local_directory(f"{tmp_path}/a%20b", "-m") == tmp_path / "a%20b"


def test_a_folder_that_looks_like_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s3:models").mkdir()
    assert local_directory("s3:models", "-m") == Path("s3:models")


@pytest.mark.parametrize("scheme", ["djl", "hdfs", "ftp"])
def test_other_schemes_are_refused_by_name(scheme: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        local_directory(f"{scheme}://host/model", "environment SERVING_LOAD_MODELS")
    assert raised.value.message == (
        f"environment SERVING_LOAD_MODELS: {scheme}://host/model: models cannot be fetched from {scheme}://: give a "
        "directory or an archive on this host, as a path or as file:///path, the https:// URL of an archive, or "
        "s3://bucket/folder/"
    )


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file://elsewhere/model", "models cannot be fetched from file://"),
        (
            "file:/model?application=nlp",
            "the query after `?` is not supported: put its settings into the model's serving.properties",
        ),
        ("/nowhere/model", "/nowhere/model does not exist: give the path of a model directory or of an archive"),
        (
            "org/model",
            "org/model does not exist: give the path of a model directory or of an archive, an s3:// URL, the URL of",
        ),
    ],
)
def test_what_is_no_directory(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        local_directory(url, COMMAND_LINE)
    assert message in raised.value.message


def test_files(tmp_path: Path) -> None:
    for name, message in (
        ("m.7z", "is an archive of a kind that is not supported: pack it as .zip"),
        ("m.bin", "is a file: give the path of the model"),
    ):
        (tmp_path / name).touch()
        with pytest.raises(ConfigurationError) as raised:
            local_directory(str(tmp_path / name), COMMAND_LINE)
        assert raised.value.message.startswith(f"{tmp_path / name} {message}")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("s3://bucket/models/mine/", "mine"),
        ("s3://bucket/models/mine", "mine"),
        ("s3://bucket", "bucket"),
        ("s3://bucket/models/mine.tar.gz", "mine"),
        ("https://user:secret@host:80/models/my%20one.ZIP?a=b/c.zip#d", "my one"),
        ("HTTP://host/models/mine/", "mine"),
        ("https://host", "host"),
    ],
)
def test_what_is_fetched(tmp_path: Path, url: str, name: str) -> None:
    fetched: list[str] = []

    def fetch(url: str) -> Path:
        fetched.append(url)
        return tmp_path

    assert find_directory(url, "-m", fetch) == tmp_path
    assert fetched == [url]
    assert inferred_name(url, tmp_path) == name


def test_archive_on_this_host(tmp_path: Path) -> None:
    (tmp_path / "mine.tgz").touch()
    fetched: list[str] = []

    def fetch(url: str) -> Path:
        fetched.append(url)
        return tmp_path

    for url in (f"file://{tmp_path}/mine.tgz", f"{tmp_path}/mine.tgz"):
        assert find_directory(url, "-m", fetch) == tmp_path
        assert inferred_name(url, tmp_path) == "mine"
    assert fetched == [f"{tmp_path}/mine.tgz"] * 2
