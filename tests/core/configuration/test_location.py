import pytest

from lmi_core.configuration.location import S3Location, archive_name, is_hub_id
from lmi_core.errors import ConfigurationError

ARN = "arn:aws:s3:eu-west-1:123456789012:accesspoint/mine"


@pytest.mark.parametrize(
    ("url", "expected", "name"),
    [
        ("s3://bucket", S3Location("bucket", "", ""), "bucket"),
        ("s3://bucket/", S3Location("bucket", "", ""), "bucket"),
        ("s3://bucket/a/b", S3Location("bucket", "a/b/", "a/b/"), "b"),
        ("s3://bucket/a/b/", S3Location("bucket", "a/b/", "a/b/"), "b"),
        ("s3://bucket/a/b/*", S3Location("bucket", "a/b/", "a/b/"), "b"),
        ("s3://bucket/a/b*", S3Location("bucket", "a/b", "a/"), "a"),
        ("s3://bucket/..", S3Location("bucket", "../", "../"), "bucket"),
        (f"s3://{ARN}/a/b", S3Location(ARN, "a/b/", "a/b/"), "b"),
    ],
)
def test_url(url: str, expected: S3Location, name: str) -> None:
    location = S3Location.parse(url)
    assert (location, location.name) == (expected, name)


@pytest.mark.parametrize("url", ["s3://", "s3:///folder", "s3://b/folder", "s3://two words/x", "s3://bucket/a\0b", "x"])
def test_wrong_url(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an S3 URL: give s3://bucket/folder/"):
        S3Location.parse(url)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("https://models.example/a/b%20c.tar.gz?version=2", "b c"),
        ("https://models.example:8443", "models.example"),
        ("/models/mine.zip", "mine"),
        (f"s3://{ARN}/a/mine.tgz", "mine"),
    ],
)
def test_name_of_an_archive(source: str, expected: str) -> None:
    assert archive_name(source) == expected


@pytest.mark.parametrize("host", ["[::1", "host:port", "host:99999", "host:0", ""])
def test_url_of_an_archive_without_a_valid_host(host: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        archive_name(f"http://user:secret@{host}/m.zip?sig=hidden")
    shown = f"http://{host}/m.zip"
    assert raised.value.message == f"{shown} is not a valid URL: check its host, and the port if it has one"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("gpt2", True),
        ("meta-llama/Llama-3.1-8B", True),
        ("org/name-GGUF:Q4_K_M", True),
        ("org/name-GGUF:", False),
        ("a/b/c", False),
        ("./a", False),
        ("/a", False),
        ("~/a", False),
        ("s3://bucket/a", False),
    ],
)
def test_hub_id(source: str, expected: bool) -> None:
    assert is_hub_id(source) is expected
