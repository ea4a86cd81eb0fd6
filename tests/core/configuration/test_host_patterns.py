"""Names of hosts, and the patterns that allow them."""

import pytest

from lmi_core.configuration.host_patterns import Host, is_loopback


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Example.COM", Host("example.com", None)),
        ("example.com.:80", Host("example.com", 80)),
        ("my_host:8080", Host("my_host", 8080)),
        ("127.0.0.1:1", Host("127.0.0.1", 1)),
        ("[::1]:8080", Host("::1", 8080)),
        ("[0:0:0:0:0:0:0:1]", Host("::1", None)),
        ("[::ffff:127.0.0.1]", Host("127.0.0.1", None)),
    ],
)
def test_one_form_of_each(text: str, expected: Host) -> None:
    assert Host.parse(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":80", "a:", "a:b", "a:123456", "::1", "[::1", "a/b", "a b", "a@b", "http://a", "a,b", "a#b"]
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        Host.parse(text)


@pytest.mark.parametrize(
    ("pattern", "host", "expected"),
    [
        ("a.example", "a.example:7", True),
        ("a.example:7", "a.example:7", True),
        ("a.example:7", "a.example:8", False),
        ("a.example", "b.a.example", False),
        ("*.example", "b.a.example:7", True),
        ("*.example:7", "a.example:8", False),
        ("*.example", "example", False),
        ("*.example", "anexample", False),
        ("*", "any:7", True),
    ],
)
def test_patterns(pattern: str, host: str, expected: bool) -> None:
    assert Host.parse_pattern(pattern).covers(Host.parse(host)) is expected


@pytest.mark.parametrize("pattern", ["a*", "*a", "*.", "a.*", "**", "*:*", "*.a.*"])
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a host"):
        Host.parse_pattern(pattern)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("192.0.2.7", False),
        ("::ffff:192.0.2.7", False),
        ("2001:db8::1", False),
        ("localhost.evil.example", False),
        ("", False),
    ],
)
def test_loopback(name: str, expected: bool) -> None:
    assert is_loopback(name) is expected
