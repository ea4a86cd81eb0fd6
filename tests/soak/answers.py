"""What must be the same in two answers to one question, whatever else was asked at the same time."""

import json
from typing import Any

from tests.clients.test_every_dialect import DIALECTS
from tests.conftest import Answer
from tests.soak.questions import Question

# Ids, times, what the prefix cache held, and log probabilities, whose last digits depend on the batch.
VARYING = frozenset(
    {
        *("id", "item_id", "call_id", "response_id", "request_id", "created", "created_at", "completed_at"),
        *("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
        *("cached_tokens", "cache_write_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"),
        *("log_prob", "logprob", "cumulative_logprob", "token_logprobs", "top_logprobs", "prompt_logprobs", "logprobs"),
    }
)
REASONS = frozenset({"finish_reason", "finish_reasons", "stop_reason", "done_reason", "status"})
UNFINISHED = frozenset({"in_progress", "None"})  # of events before the last, which may have all the text


class Wrong(Exception):
    """An answer is not what it must be."""


def essence(question: Question, answer: Answer) -> bytes:
    """Return what must be the same byte for byte: of streams the text and why it ended, of others nearly all."""
    if answer.status == 200 and question.dialect is not None and question.streams:
        text = DIALECTS[question.dialect].text(answer)
        return json.dumps([text, _reasons(_events(answer.body))], ensure_ascii=False).encode()
    return json.dumps([answer.status, stable(_parsed(answer.body))], ensure_ascii=False, sort_keys=True).encode()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return body.decode()


def stable(value: Any) -> Any:
    if isinstance(value, dict):
        # A token's id is a number, and stays.
        return {key: stable(each) for key, each in value.items() if key not in VARYING or _is_token(key, each)}
    return [stable(each) for each in value] if isinstance(value, list) else value


def _is_token(key: str, value: object) -> bool:
    return key == "id" and isinstance(value, int)


def _events(body: bytes) -> list[Any]:
    lines = [line.removeprefix(b"data:").strip() for line in body.splitlines()]
    return [json.loads(line) for line in lines if line.startswith(b"{")]


def _reasons(events: list[Any]) -> list[str]:
    """Return why the sequences of a stream ended, in the order of its last events."""
    found: list[str] = []
    for event in events:
        found += _find(event)
    return sorted(set(found) - UNFINISHED)


def _find(value: Any) -> list[str]:
    if isinstance(value, list):
        return [reason for each in value for reason in _find(each)]
    if not isinstance(value, dict):
        return []
    given = [each for key, each in value.items() if key in REASONS and each]
    here = [str(reason) for each in given for reason in (each if isinstance(each, list) else [each])]
    return here + [reason for key, each in value.items() if key not in REASONS for reason in _find(each)]
