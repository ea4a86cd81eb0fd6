"""TLS with a certificate of the test's own, which is replaced while connections are open."""

import asyncio
import base64
import datetime
import ssl
from pathlib import Path

import aiohttp
import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tritonclient.grpc import service_pb2, service_pb2_grpc

from lmi_core.errors import ConfigurationError
from lmi_handlers.access import certificate as certificate_module
from lmi_handlers.access.certificate import Certificate, Validity
from lmi_handlers.access.options import AccessOptions, ListenAddress, watch
from lmi_handlers.cli.plans import notes_of, refuse_warnings, warnings_of
from lmi_handlers.container.launch import Launch, read_launch
from lmi_handlers.container.search import Arguments
from lmi_handlers.testing import running_server
from tests.conftest import SCRIPTED, ModelDirectory

SECONDS = 60


DAY = datetime.timedelta(days=1)
NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)


def write(
    folder: Path, name: str, files: str = "server", begin: datetime.datetime = NOW - DAY, days: float = 2
) -> Path:
    """Write a certificate that signs itself and its key, and return the certificate's path."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + days * DAY)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{files}.pem"
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.with_suffix(".key").write_bytes(key.private_bytes(*plain))
    return path


def trusting(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


async def subject(port: int) -> str:
    """Return the name in the certificate that a new connection gets."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    found = x509.load_der_x509_certificate(der).subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
    return str(found)


async def test_https_and_a_new_certificate_without_dropping_connections(
    model_dir: ModelDirectory, tmp_path: Path
) -> None:
    path = write(tmp_path, "first")
    certificate = Certificate(path, path.with_suffix(".key"))
    access = AccessOptions(certificate=certificate, management_address=ListenAddress("127.0.0.1", 0, is_secure=True))
    async with running_server(model_dir({"serving.properties": SCRIPTED}), access=access) as server:
        port = server.server.port
        assert server.server.url == f"https://127.0.0.1:{port}"
        connector = aiohttp.TCPConnector(ssl=trusting(path), limit=1)
        async with aiohttp.ClientSession(f"https://localhost:{port}", connector=connector) as client:
            async with client.post("/v1/completions", json={"prompt": "Hi", "stream": True}) as response:
                assert (await response.text()).endswith("data: [DONE]\n\n")
            assert await subject(port) == "first"
            write(tmp_path, "second")
            async with asyncio.timeout(SECONDS):
                while await subject(port) != "second":
                    await asyncio.sleep(0.1)
            async with client.post("/v1/completions", json={"prompt": "Hi"}) as response:  # over the old connection
                assert response.status == 200
            (tmp_path / "server.key").write_text("not a key")
            with pytest.raises(ConfigurationError):
                certificate.reload()
            assert await subject(port) == "second"
        assert server.server.management is not None
        assert await subject(server.server.management.listening.port) == "second"
        own = {"Origin": f"https://127.0.0.1:{port}"}
        url, connector = f"https://localhost:{port}/v1/abort_request", aiohttp.TCPConnector(ssl=trusting(path))
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.post(url, json={}, headers=own) as response,
        ):
            assert response.status != 403
        with pytest.raises(aiohttp.ClientError):
            await server.get("/ping")  # by a client that does not know the certificate


async def test_plain_http_gets_no_answer(model_dir: ModelDirectory, tmp_path: Path) -> None:
    path = write(tmp_path, "first")
    access = AccessOptions(certificate=Certificate(path, path.with_suffix(".key")))
    async with running_server(model_dir({"serving.properties": SCRIPTED}), access=access) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
        writer.write(b"GET /ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"200" not in await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
        assert await subject(server.server.port) == "first"


async def test_grpc(model_dir: ModelDirectory, tmp_path: Path) -> None:
    path = write(tmp_path, "first")
    certificate = Certificate(path, path.with_suffix(".key"))
    directory = model_dir({"serving.properties": SCRIPTED})
    async with running_server(directory, grpc=True, access=AccessOptions(certificate=certificate)) as server:
        for name in ("first", "second"):
            if name == "second":
                write(tmp_path, name)
                certificate.reload()
            address = f"localhost:{server.grpc_address.rpartition(':')[2]}"
            credentials = grpc.ssl_channel_credentials(path.read_bytes())
            async with grpc.aio.secure_channel(address, credentials) as channel:
                stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
                assert (await stub.ServerLive(service_pb2.ServerLiveRequest(), timeout=SECONDS)).live


def launch_at(directory: Path, environment: dict[str, str]) -> AccessOptions:
    return read_launch(Arguments((str(directory),)), environment).access


def test_settings(model_dir: ModelDirectory, tmp_path: Path) -> None:
    directory, path = model_dir({"serving.properties": SCRIPTED}), write(tmp_path, "first")
    files = {"SERVING_CERTIFICATE_FILE": str(path), "SERVING_PRIVATE_KEY_FILE": str(path.with_suffix(".key"))}
    assert launch_at(directory, files).certificate is not None
    assert launch_at(directory, files | {"SERVING_INFERENCE_ADDRESS": "https://127.0.0.1:8443"}).certificate is not None
    address = launch_at(directory, files | {"SERVING_MANAGEMENT_ADDRESS": "https://127.0.0.1"}).management_address
    assert address == ListenAddress("127.0.0.1", 443, is_secure=True)


WRONG = [
    ({"SERVING_INFERENCE_ADDRESS": "https://127.0.0.1:8443"}, "asks for HTTPS, which needs certificate_file"),
    ({"SERVING_MANAGEMENT_ADDRESS": "https://127.0.0.1:8443"}, "asks for HTTPS, which needs certificate_file"),
    ({"SERVING_CERTIFICATE_FILE": "server.pem"}, "are needed together"),
    (
        {"SERVING_CERTIFICATE_FILE": "PEM", "SERVING_PRIVATE_KEY_FILE": "OTHER"},
        "other.key does not belong to the certificate in certificate_file {folder}/server.pem",
    ),
    ({"SERVING_CERTIFICATE_FILE": "PEM", "SERVING_PRIVATE_KEY_FILE": "PEM"}, "must be a certificate and its private"),
    ({"SERVING_CERTIFICATE_FILE": "PEM", "SERVING_PRIVATE_KEY_FILE": "missing"}, "cannot be read: No such file"),
    (
        {"SERVING_CERTIFICATE_FILE": "PEM", "SERVING_PRIVATE_KEY_FILE": "KEY"}
        | {"SERVING_INFERENCE_ADDRESS": "http://127.0.0.1:8080"},
        "must be https://HOST:PORT, because there is a certificate_file",
    ),
]


@pytest.mark.parametrize(("environment", "message"), WRONG)
def test_wrong_settings(model_dir: ModelDirectory, tmp_path: Path, environment: dict[str, str], message: str) -> None:
    pem, other = write(tmp_path, "first"), write(tmp_path, "other", "other")
    paths = {"PEM": str(pem), "KEY": str(pem.with_suffix(".key")), "OTHER": str(other.with_suffix(".key"))}
    environment = {name: paths.get(value, value) for name, value in environment.items()}
    with pytest.raises(ConfigurationError) as raised:
        launch_at(model_dir({"serving.properties": SCRIPTED}), environment)
    assert message.format(folder=tmp_path) in raised.value.message


def launch_with(model_dir: ModelDirectory, folder: Path, begin: datetime.datetime, days: float) -> Launch:
    """Return the settings of a server with such a certificate."""
    path = write(folder, "first", begin=begin, days=days)
    files = {"SERVING_CERTIFICATE_FILE": str(path), "SERVING_PRIVATE_KEY_FILE": str(path.with_suffix(".key"))}
    return read_launch(Arguments((str(model_dir({"serving.properties": SCRIPTED})),)), files)


@pytest.mark.parametrize(
    ("begin", "days", "fault"),
    [
        (NOW - 90 * DAY, 89, "it expired at {end}"),
        (NOW + DAY, 36_500, "it is not valid before {begin}"),  # it ends in another form of dates
    ],
)
def test_a_certificate_at_the_wrong_time(
    model_dir: ModelDirectory,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    begin: datetime.datetime,
    days: float,
    fault: str,
) -> None:
    launch = launch_with(model_dir, tmp_path, begin, days)
    end = begin + days * DAY
    dates = {"begin": f"{begin:%Y-%m-%d %H:%M} UTC", "end": f"{end:%Y-%m-%d %H:%M} UTC"}
    expected = f"clients refuse the certificate_file {tmp_path}/server.pem: {fault.format(**dates)}"
    assert (launch.warnings, [*notes_of(launch)]) == ((expected,), [])
    with pytest.raises(ConfigurationError, match="--strict makes all warnings errors"):
        refuse_warnings(warnings_of([], launch))
    assert launch.access.certificate is not None
    launch.access.certificate.reload()
    assert expected in caplog.text


@pytest.mark.parametrize(("age", "days", "is_noted"), [(77, 90, True), (75, 90, False), (5, 7, True), (4, 7, False)])
def test_a_certificate_that_ends_soon(
    model_dir: ModelDirectory, tmp_path: Path, age: float, days: float, is_noted: bool
) -> None:
    launch = launch_with(model_dir, tmp_path, NOW - age * DAY, days)
    end = NOW + (days - age) * DAY
    note = f"the certificate_file {tmp_path}/server.pem expires at {end:%Y-%m-%d %H:%M} UTC: replace it"
    assert (launch.warnings, [*notes_of(launch)]) == ((), [note] if is_noted else [])


async def test_a_certificate_that_ends_while_it_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Clock(datetime.datetime):
        present = NOW

        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return cls.present

    path = write(tmp_path, "first", days=60)
    monkeypatch.setattr(certificate_module, "datetime", Clock)
    access = AccessOptions(certificate=Certificate(path, path.with_suffix(".key")))
    watching = asyncio.create_task(watch(access.watched, interval=0.001))
    async with asyncio.timeout(SECONDS):
        for days, line in ((50, "expires at"), (60, "it expired at")):
            Clock.present = NOW + days * DAY
            while line not in caplog.text:
                await asyncio.sleep(0.001)
    watching.cancel()
    await asyncio.wait({watching})
    assert len(caplog.records) == 2


@pytest.mark.parametrize("change", [b"", b"0" * 40, None])
def test_dates_that_cannot_be_read_are_no_fault(tmp_path: Path, change: bytes | None) -> None:
    """OpenSSL accepts more forms than the standard's, such as a second 60; a file may be written at this moment."""
    pem = write(tmp_path, "odd").read_bytes()
    if change is None:
        der = x509.load_pem_x509_certificate(pem).public_bytes(serialization.Encoding.DER)
        date = f"{NOW - DAY:%y%m%d%H%M%S}Z".encode()
        assert date in der
        encoded = base64.encodebytes(der.replace(date, date[:-3] + b"60Z"))
        pem = b"-----BEGIN CERTIFICATE-----\n" + encoded + b"-----END CERTIFICATE-----\n"
    else:
        pem = pem[:60] + change
    assert Validity.of(pem) is None
