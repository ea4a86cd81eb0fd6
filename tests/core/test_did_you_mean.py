import pytest

from lmi_core.did_you_mean import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("max_tokens", ["max_new_tokens", "top_k"], " Did you mean `max_new_tokens`?"),
        ("topk", ["top_p", "top_k"], " Did you mean `top_k`?"),
        ("xyz", ["top_p", "top_k"], ""),
        ("top_k", [], ""),
    ],
)
def test_did_you_mean(name: str, known: list[str], expected: str) -> None:
    assert did_you_mean(name, known) == expected
