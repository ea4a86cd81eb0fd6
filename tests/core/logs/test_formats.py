import io
import json
import logging

import pytest

from lmi_core.logs.formats import LOG_FORMAT_VARIABLE, new_formatter, with_fields
from lmi_core.logs.log_thread import LogThread


def logged(stream: io.StringIO) -> logging.Logger:
    logger = logging.Logger("some.logger")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(new_formatter())
    logger.addHandler(handler)
    return logger


def test_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, "json")
    stream = io.StringIO()
    logger = logged(stream)
    logger.warning("request %s:\nfailed", "r1", extra=with_fields({"request_id": "r1", "tokens": 3, "path": object}))
    try:
        raise ValueError("broken")
    except ValueError:
        logger.exception("it failed")
    first, second = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["level"], first["logger"], first["message"]) == ("warning", "some.logger", "request r1:\nfailed")
    assert (first["request_id"], first["tokens"]) == ("r1", 3)
    assert first["time"].endswith("+00:00")
    assert "exception" not in first
    assert second["exception"].endswith("ValueError: broken")


def test_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOG_FORMAT_VARIABLE, raising=False)
    stream = io.StringIO()
    logged(stream).warning("it happened", extra=with_fields({"request_id": "r1"}))
    assert stream.getvalue().endswith("WARNING some.logger: it happened\n")


@pytest.mark.parametrize("form", ["json", "text"])
def test_lost_lines_are_told_in_the_same_form(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, form)
    stream = io.StringIO()
    thread = LogThread(stream)
    thread._count_lost("one")
    thread.write("another")
    thread.close()
    lost = stream.getvalue().splitlines()[-1]
    message = json.loads(lost)["message"] if form == "json" else lost
    assert "1 lines were dropped" in message
