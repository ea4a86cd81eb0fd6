"""The start of the torch worker, and its reports while it loads a model."""

from pathlib import Path
from typing import Any, cast

import pytest

from lmi_core.logs.loading_progress import LoadingProgress
from lmi_core.workers.messages import Progress
from lmi_plugins.torch_engine.client.client import EngineClient
from lmi_plugins.torch_engine.messages.protocol import decode_from_worker
from lmi_plugins.torch_engine.messages.requests import EngineOptions
from lmi_plugins.torch_engine.worker.start import Reporter, load_shared_libraries

HELLO = Path(__file__).parents[4] / "examples" / "hello"


class SentMessages:
    """The worker's end of a connection, which keeps what is sent."""

    def __init__(self) -> None:
        self.reports: list[tuple[str, int | None, int | None]] = []

    def send(self, message: bytes) -> None:
        report = decode_from_worker(message)
        assert isinstance(report, Progress)
        self.reports.append((report.what, report.done, report.total))


async def test_the_stages_of_a_start_and_every_byte_of_the_weights() -> None:
    reports: list[tuple[str, int | None, int | None]] = []
    client = EngineClient(EngineOptions(model=str(HELLO), device="cpu"), 0)
    progress = LoadingProgress()

    def report(what: str, done: int | None, total: int | None) -> None:
        reports.append((what, done, total))
        progress.report(what, done, total)

    client.report = report
    try:
        await client.start()
        assert client.max_length == 2048
    finally:
        await client.stop()
    size = (HELLO / "model.safetensors").stat().st_size
    assert [each for each in reports if each[0] == "reading weights"][-1] == ("reading weights", size, size)
    stages = list(dict.fromkeys(what for what, *_ in reports))
    assert sorted(stages[:2]) == ["importing PyTorch and transformers", "reading weights"]
    assert stages[2:] == ["loading the tokenizer", "loading the model"]


def test_reports_are_few_but_the_last_is_always_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    sent = SentMessages()
    reporter = Reporter(cast(Any, sent))
    reporter.begin("importing")
    for done in range(0, 1001, 10):
        reporter.report("reading weights", done, 1000)
    reporter.resume()
    reporter.resume()
    reads = [("reading weights", 0, 1000), ("reading weights", 1000, 1000)]
    assert sent.reports == [("importing", None, None), *reads, ("importing", None, None)]


def test_libraries_that_are_loaded_ahead_are_those_that_the_import_finds() -> None:
    load_shared_libraries("torch")
    import torch

    assert torch.ones(2).tolist() == [1.0, 1.0]
    maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libtorch_cpu.so" in line}
    assert len(maps) == 1
