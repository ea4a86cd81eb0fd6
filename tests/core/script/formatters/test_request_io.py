import pytest

from lmi_core.script.formatters.request_io import Sequence, TextGenerationOutput, TextInput, Token


@pytest.fixture
def sequence() -> Sequence:
    found = Sequence()
    for number in range(2):
        found.set_next_token(Token(number, f"t{number}", -0.5), is_last_token=number == 1)
    return found


def test_next_token(sequence: Sequence) -> None:
    found = [sequence.get_next_token() for _ in range(3)]
    assert [token and token.text for token, *_ in found] == ["t0", "t1", None]
    assert [tuple(rest) for _, *rest in found] == [(True, False), (False, True), (False, False)]


def test_next_token_with_its_number(sequence: Sequence) -> None:
    sequence._numbers_tokens = True
    found = [sequence.get_next_token() for _ in range(3)]
    assert [tuple(rest) for _, *rest in found] == [(0, True, False), (1, False, True), (0, False, False)]


def test_next_top_tokens() -> None:
    sequence = Sequence()
    sequence.set_next_top_tokens([Token(1, "a")])
    assert sequence.has_next_top_tokens()
    found = sequence.get_next_top_tokens()
    assert found is not None
    assert [token.text for token in found] == ["a"]
    assert (sequence.has_next_top_tokens(), sequence.get_next_top_tokens()) == (False, None)


def test_tokens_as_objects() -> None:
    token = Token(7, "x", -1.5, special_token=True, error_msg="broken")
    assert token.as_dict() == {
        "id": 7,
        "text": "x",
        "log_prob": -1.5,
        "special_token": True,
        "error_msg": "broken",
    }
    assert Token(7, "x").as_tgi_dict() == {"id": 7, "text": "x", "logprob": None}


@pytest.mark.parametrize(("tgi_compat", "key"), [(False, "log_prob"), (True, "logprob")])
def test_output_of_several_sequences(tgi_compat: bool, key: str) -> None:
    output = TextGenerationOutput("r1", TextInput(tgi_compat=tgi_compat))
    output.set_next_token(Token(1, "a", -0.1))
    output.set_next_token(Token(2, "b", -0.2), sequence_index=1, is_last_token=True, finish_reason="length")
    output.set_next_top_tokens([Token(3, "c", -0.3)], 1)
    output.prompt_tokens_details = [Token(4, "d", None)]
    assert output.get_tokens_as_dict() == [{"id": 1, "text": "a", key: -0.1}]
    assert output.get_tokens_as_dict(1) == [{"id": 2, "text": "b", key: -0.2}]
    assert output.get_top_tokens_as_dict(1) == [[{"id": 3, "text": "c", key: -0.3}]]
    assert (
        output.get_prompt_tokens_as_dict() == output.get_prompt_tokes_as_dict() == [{"id": 4, "text": "d", key: None}]
    )
    assert output.sequences[1].finish_reason == "length"
    last = output.sequences[1].get_last_token()
    assert last is not None
    assert last.text == "b"
