"""Archives of web servers with HTTPS."""

from pathlib import Path

import pytest

from lmi_core.configuration.location import RemoteModel
from lmi_core.errors import ConfigurationError
from lmi_core.remote.fetching import fetch
from tests.archive_server import archive_server, files_below
from tests.core.remote.archives.packing import zip_of
from tests.handlers.access.test_certificate import write


async def error_of(url: str) -> str:
    with pytest.raises(ConfigurationError) as raised:
        await fetch(RemoteModel(url))
    return raised.value.message


async def test_certificates_and_redirects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "localhost")
    monkeypatch.delenv("SERVING_DOWNLOAD_DIR", raising=False)
    certificate = write(tmp_path, "localhost")
    with archive_server(certificate) as web:
        url = web.put("mine.zip", zip_of({"a": b"1"}))
        web.redirects |= {"down.zip": "http://127.0.0.1:9/m.zip", "same.zip": url}
        message = await error_of(url)
        assert message.startswith(f"{url}: the server's certificate is not trusted (self")
        assert message.endswith("): set SSL_CERT_FILE to the certificate of its authority")
        assert not web.requests
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert files_below(await fetch(RemoteModel(f"{web.url}/same.zip"))) == {"a": b"1"}
        assert await error_of(f"{web.url}/down.zip") == (
            f"{web.url}/down.zip: the server redirects from https:// to http://127.0.0.1:9/m.zip, which others could "
            "change in transit: if you trust that URL, give it directly"
        )
