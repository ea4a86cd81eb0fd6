import pytest

from lmi_core.calls.json_body import has_more_members


@pytest.mark.parametrize(
    ("body", "members"),
    [
        (b"1", 0),
        (b"{}", 1),
        (b'{"a": [1, 2, {"b": null}]}', 5),
        (b'{"a": "{[:"}', 2),
        (b'{"a\\": {": "\\\\"}', 2),
        (b'"\\\\" : [', 2),
        (b'["unclosed {[:', 1),
        (b'["unclosed {[:\\', 1),
        (b'["two\nlines \\\n{", {}]', 2),
    ],
)
def test_count(body: bytes, members: int) -> None:
    assert not has_more_members(body, members)
    assert members == 0 or has_more_members(body, members - 1)


@pytest.mark.parametrize(
    "body", [b'"\\' * 500_000, b'"\\"{' * 300_000, b'"{' + b'\\"{' * 300_000 + b"\\", b"[" * 10**6]
)
def test_bodies_that_are_not_json_take_linear_time(body: bytes) -> None:
    has_more_members(body, 10)  # quadratic time would take hours
