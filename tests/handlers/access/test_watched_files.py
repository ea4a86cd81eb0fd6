"""Files that are read again when they change."""

import asyncio
import os
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_handlers.access.options import WatchedFiles, watch

SECONDS = 60


async def test_changed_replaced_and_wrong_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, read = tmp_path / "file", asyncio.Queue[str]()
    file.write_text("first")

    def take() -> None:
        text = file.read_text()
        read.put_nowait(text)
        if text == "wrong":
            raise ConfigurationError("it is wrong")
        if text == "odd":
            raise ValueError("nobody has thought of it")

    task = asyncio.create_task(watch([WatchedFiles([file], take)], interval=0.01))
    try:
        await asyncio.sleep(0.05)
        assert read.empty()
        file.write_text("wrong")
        assert await asyncio.wait_for(read.get(), SECONDS) == "wrong"
        file.write_text("odd")
        while await asyncio.wait_for(read.get(), SECONDS) != "odd":
            pass
        (tmp_path / "new").write_text("right")
        os.replace(tmp_path / "new", file)  # as Kubernetes and editors do
        while (text := await asyncio.wait_for(read.get(), SECONDS)) != "right":
            assert text in ("", "odd")  # again, where it was looked at while it was written
    finally:
        task.cancel()
    assert "it is wrong. The previous contents stay in use" in caplog.text
