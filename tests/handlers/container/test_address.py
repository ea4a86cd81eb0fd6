import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.container.address import choose_address, choose_grpc_port
from lmi_handlers.container.settings import Settings

CONTAINER = "/opt/ml/model"


def chosen(
    environment: dict[str, str], host: str | None = None, port: int | None = None, in_container: str | None = None
) -> tuple[str, str]:
    address = choose_address(host, port, Settings(environment), in_container)
    return address.host.value, address.port.value


ADDRESS = {"SERVING_INFERENCE_ADDRESS": "http://10.0.0.1:90"}


@pytest.mark.parametrize(
    ("environment", "in_container", "expected"),
    [
        ({}, None, ("127.0.0.1", "8080")),
        ({}, CONTAINER, ("0.0.0.0", "8080")),
        ({"SAGEMAKER_BIND_TO_PORT": "8081"}, None, ("0.0.0.0", "8081")),
        (ADDRESS, CONTAINER, ("10.0.0.1", "90")),
        (ADDRESS | {"SERVING_PORT": "91"}, None, ("10.0.0.1", "91")),
        (ADDRESS | {"SERVING_PORT": "91", "SAGEMAKER_BIND_TO_PORT": "92"}, None, ("10.0.0.1", "92")),
        ({"SERVING_PORT": "91"}, None, ("127.0.0.1", "91")),
    ],
)
def test_who_says_it_first(environment: dict[str, str], in_container: str | None, expected: tuple[str, str]) -> None:
    assert chosen(environment, in_container=in_container) == expected
    assert chosen(environment, host="h", in_container=in_container) == ("h", expected[1])
    assert chosen(environment, port=0, in_container=in_container) == (expected[0], "0")


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://0.0.0.0:8080", ("0.0.0.0", "8080")),
        ("HTTP://localhost", ("localhost", "80")),
        ("http://localhost:81/", ("localhost", "81")),
        ("http://[::1]:82", ("::1", "82")),
        ("https://0.0.0.0:8443", ("0.0.0.0", "8443")),
        ("https://localhost", ("localhost", "443")),
    ],
)
def test_addresses(url: str, expected: tuple[str, str]) -> None:
    assert chosen({"SERVING_INFERENCE_ADDRESS": url}) == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("unix:/tmp/socket", "asks for a Unix socket, which is not supported"),
        ("0.0.0.0:8080", "must be http://HOST:PORT"),
        ("http://", "must be http://HOST:PORT"),
        ("http://host:1/path", "must be http://HOST:PORT"),
        ("tcp://host:1", "must be http://HOST:PORT"),
    ],
)
def test_addresses_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        chosen({"SERVING_INFERENCE_ADDRESS": url}, host="h", port=1)
    assert raised.value.message.startswith(f"environment SERVING_INFERENCE_ADDRESS: inference_address {message}")
    assert raised.value.message.endswith(f"Given: {url}")


@pytest.mark.parametrize("port", ["65536", "-1", "http", "8e3"])
def test_ports_that_are_none(port: str) -> None:
    for name in ("SAGEMAKER_BIND_TO_PORT", "SERVING_PORT"):
        with pytest.raises(ConfigurationError) as raised:
            chosen({name: port})
        assert raised.value.message == f"environment {name}: the port must be an integer from 0 to 65535. Given: {port}"


def test_each_part_has_its_source() -> None:
    address = choose_address(None, 1, Settings(ADDRESS), None)
    assert (address.host.source, address.port.source) == ("environment SERVING_INFERENCE_ADDRESS", "command line")
    assert choose_address(None, None, Settings({}), CONTAINER).host.source == CONTAINER


@pytest.mark.parametrize(
    ("port", "environment", "expected"),
    [
        (None, {}, None),
        (None, {"SERVING_GRPC_PORT": "8001"}, ("8001", "environment SERVING_GRPC_PORT")),
        (8002, {"SERVING_GRPC_PORT": "8001"}, ("8002", "command line")),
        (0, {}, ("0", "command line")),
    ],
)
def test_grpc_port(port: int | None, environment: dict[str, str], expected: tuple[str, str] | None) -> None:
    found = choose_grpc_port(port, Settings(environment))
    assert (found and (found.value, found.source)) == expected


def test_a_grpc_port_that_is_none() -> None:
    with pytest.raises(
        ConfigurationError, match="environment SERVING_GRPC_PORT: the port must be an integer from 0 to 65535"
    ):
        choose_grpc_port(None, Settings({"SERVING_GRPC_PORT": "x"}))
