"""The causes that vLLM's processes hand to the server."""

import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from lmi_core.logs.logs import MODEL_VARIABLE
from lmi_plugins.vllm_engine.failures import VARIABLE, Failures, explain

# A process of vLLM's that fails as its core does: it logs the error with its traceback, and raises it.
PROCESS = """\
import logging, multiprocessing, sys
from concurrent.futures import CancelledError

def fail():
    from lmi_core.logs.logs import configure_logging_of_another_program
    from lmi_plugins.vllm_engine.failures import report_failures
    configure_logging_of_another_program(sys.argv[1])
    report_failures()
    log = logging.getLogger("vllm.v1.engine.core")
    log.error("nothing with a traceback")
    log.error("Worker proc %s died unexpectedly (exit code: %s), shutting down executor.", "VllmWorker-0", -9)
    of_another = Exception("See root cause above."), CancelledError()
    for error in (ValueError("no memory: lower `--gpu-memory-utilization`"), *of_another):
        try:
            raise error
        except Exception:
            log.exception("EngineCore failed to start.")
    raise SystemError("see above")

if __name__ == "__main__":
    process = multiprocessing.get_context("fork").Process(target=fail)
    process.start()
    process.join()
"""


@pytest.mark.parametrize("level", ["info", "debug"])
def test_a_process_tells_its_cause_in_place_of_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    (file := tmp_path / "failures.jsonl").touch()
    monkeypatch.setenv(VARIABLE, str(file))
    monkeypatch.setenv(MODEL_VARIABLE, "hello")
    failures = Failures("hello")
    assert failures.cause is None
    script = tmp_path / "failing_process.py"
    script.write_text(PROCESS)
    of_any_model, of_another = Failures(), Failures("another")
    said = subprocess.run([sys.executable, script, level], capture_output=True, text=True, timeout=60).stderr
    died = "VllmWorker-0 died with exit code -9, perhaps because the host ran out of memory"
    assert failures.cause == f"{died}; no memory: lower option.gpu_memory_utilization"
    assert (of_any_model.cause, of_another.cause) == (failures.cause, None)
    assert "nothing with a traceback" in said
    assert ("Traceback" in said) == (level == "debug")
    assert Failures().cause is None  # those of an engine that is started again are its own


def test_the_file_is_gone_with_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    Failures()
    file = Path(os.environ[VARIABLE])
    assert (file.stat().st_size, file.stat().st_mode & 0o077, list(tmp_path.iterdir())) == (0, 0, [])
    Failures()
    assert os.environ[VARIABLE] == str(file)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone"))
    assert Failures().cause is None
    monkeypatch.delenv(VARIABLE)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("Too little. Lower it (a bit). Buy more. Or less."), "Too little. Lower it (a bit)."),
        (RuntimeError("Weights:\n['a'] are missing"), "Weights: ['a'] are missing"),
        (KeyError("layers.6"), "the key 'layers.6' is missing"),
        (NotImplementedError("no such kernel"), "NotImplementedError: no such kernel"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_sentences(error: Exception, sentence: str) -> None:
    assert explain(error) == sentence


def test_other_records_are_left_alone(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with caplog.at_level(logging.ERROR):
        logging.getLogger("vllm").error("as it is")
    assert caplog.messages == ["as it is"]
