"""Models in S3 that cannot be read, and those that need no credentials."""

import os
from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import fetch
from lmi_core.remote.s3.client import convert_errors, create_client
from lmi_core.remote.s3.download import list_objects
from tests.core.remote.s3.test_updating import FILES, contents, error_of, versions
from tests.s3_server import Body, Environ, S3Server


def listing_error(source: str) -> str:
    """Return the error of listing the folder, without a download process."""
    with pytest.raises(ConfigurationError) as raised, convert_errors(source):
        list_objects(create_client(1), RemoteModel(source))
    return raised.value.message


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "s3://no-such-bucket/a",
            "s3://no-such-bucket/a: S3 answered NoSuchBucket: The specified bucket does not exist",
        ),
        ("s3://models/empty/", "s3://models/empty/: the folder contains no objects: check its name"),
        (
            "s3://models/one/config.json",
            "s3://models/one/config.json: this is a single object: give the folder that contains it",
        ),
    ],
)
def test_nothing_there(s3: S3Server, url: str, message: str) -> None:
    s3.put("one", FILES)
    assert listing_error(url) == message


@pytest.mark.parametrize(("folder", "inner"), [("both", "a/b"), ("deeper", "a/b/c")])
def test_a_file_that_is_also_a_folder(s3: S3Server, folder: str, inner: str) -> None:
    url = s3.put(folder, FILES | {"a": b"1", inner: b"2"})
    message = f"the keys '{folder}/a' and '{folder}/{inner}' cannot be a file and a file in a folder of that name"
    assert message in listing_error(url)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (
            "403 Forbidden",
            "AccessDenied",
            "S3 denies access with these credentials: s3:ListBucket on the bucket and s3:GetObject on the folder "
            "are required",
        ),
        ("400 Bad Request", "ExpiredToken", "S3 answered ExpiredToken: so it is"),
        ("503 Slow Down", "SlowDown", "S3 answered SlowDown: so it is"),
    ],
)
def test_refusals(s3: S3Server, status: str, code: str, message: str) -> None:
    s3.refusal = status, f"<Error><Code>{code}</Code><Message>so it\nis</Message></Error>".encode()
    assert listing_error("s3://models/refused") == f"s3://models/refused: {message}"


async def test_access_to_an_object_denied(s3: S3Server, tmp_path: Path) -> None:
    url = s3.put("denied", FILES)
    s3.denied = b"<Error><Code>AccessDenied</Code></Error>"
    assert (await error_of(url)).startswith(f"{url}: S3 denies access with these credentials")
    assert versions(tmp_path / "cache") == ["partial"]


async def test_without_credentials(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Buckets that anyone may read need none."""
    url, signed = s3.put("public", FILES), set[bool]()
    for path in FILES:
        s3.client.put_object_acl(Bucket="models", Key=f"public/{path}", ACL="public-read")

    def note(environ: Environ, body: Body) -> Body:
        signed.add("HTTP_AUTHORIZATION" in environ)
        return body

    s3.fault = note
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    assert contents(await fetch(RemoteModel(url))) == FILES
    assert signed == {False}
    s3.refusal = "403 Forbidden", b"<Error><Code>AccessDenied</Code></Error>"
    assert listing_error(url).startswith(f"{url}: S3 denies access without AWS credentials: set AWS_ACCESS_KEY_ID and")


def test_unknown_profile(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    assert listing_error("s3://models/x") == "s3://models/x: The config profile (nobody) could not be found"


async def test_without_boto3(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "boto3.py").write_text("raise ModuleNotFoundError(name='boto3')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert await error_of("s3://models/x") == "models in S3 need boto3: run: pip install 'lmi-handlers[s3]'"
