import io
import json
import logging

import pytest

from lmi_core.logs.logs import LOG_FORMAT_VARIABLE, MODEL_VARIABLE, LogThread, logging_of, new_formatter, with_fields


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
def test_the_model_of_a_worker_or_a_task(monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, form)
    monkeypatch.setenv(MODEL_VARIABLE, "own")
    stream = io.StringIO()
    logger = logged(stream)
    logger.info("one")
    with logging_of("other"):
        logger.info("two")
    logger.info("three", extra=with_fields({"model": "asked"}))
    lines = stream.getvalue().splitlines()
    if form == "json":
        assert [json.loads(line)["model"] for line in lines] == ["own", "other", "asked"]
    else:
        assert [line.partition("some.logger: ")[2] for line in lines] == [
            "model own: one",
            "model other: two",
            "model own: three",
        ]


FORGED = "x\x1b[31m\x07\x9b2J\x7f\r\u2028\u202e\udcff\n2026-11-24 INFO    forged: line"


def test_text_of_clients_forges_no_line_and_drives_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LOG_FORMAT_VARIABLE, raising=False)
    stream = io.StringIO()
    logger = logged(stream)
    logger.info("größer\t✓ %s", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger.exception("it failed")
    written = stream.getvalue()
    assert written.replace("\n", "").replace("\t", "").isprintable()
    assert r"größer	✓ x\x1b[31m\x07\x9b2J\x7f\r\u2028\u202e\udcff" in written
    records = [line for line in written.splitlines() if not line.startswith("    ")]
    assert [record.partition(" some.logger: ")[2][:6] for record in records] == ["größer", "it fai"]


def test_json_is_printable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LOG_FORMAT_VARIABLE, "json")
    stream = io.StringIO()
    logger = logged(stream)
    for value in (FORGED, FORGED.replace("\udcff", "\U000e0001")):
        logger.info("größer ✓ %s", value, extra=with_fields({"value": value}))
        line = stream.getvalue().splitlines()[-1]
        assert line.isprintable()
        read = json.loads(line)
        assert (read["message"], read["value"]) == (f"größer ✓ {value}", value)


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
