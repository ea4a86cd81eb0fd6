import pytest

from lmi_core.errors.did_you_mean import did_you_mean, stray_text_hint


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


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ('"auto"', " Quotes are not removed: they are part of the value."),
        ("'auto'", " Quotes are not removed: they are part of the value."),
        ("auto # the best", " Comments must be on separate lines: this one is part of the value."),
        ("auto // the best", " Comments must be on separate lines: this one is part of the value."),
        ("s3://a/b", ""),
        ("a#b", ""),
        ('"', ""),
    ],
)
def test_what_does_not_belong_to_a_value(value: str, hint: str) -> None:
    assert stray_text_hint(value) == hint
