"""Scripts that are loaded in the server's process and never end: they are interrupted, and told in a sentence."""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lmi_core.errors import ConfigurationError
from lmi_core.script import time_limits
from lmi_core.script.formatters.model_script import ModelScript, load_script
from lmi_core.script.time_limits import unless

ENDLESS = {
    "loop": "value = 1\nwhile True:\n    pass\n",
    "loop that catches errors": "while True:\n    try:\n        value = 1\n    except Exception:\n        pass\n",
    "wait": "import threading\nthreading.Event().wait()\n",
    "recursion that waits": "import time\ndef wait():\n    time.sleep(3600)\nwait()\n",
}


def write(folder: Path, code: str) -> Path:
    path = folder / "model.py"
    path.write_text(code)
    return path


def in_a_thread(load: Callable[[], ModelScript]) -> ModelScript:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(load).result(60)


def modules() -> set[str]:
    return {name for name in sys.modules if name.startswith("lmi_script_")}


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_script_in_the_main_thread(tmp_path: Path, name: str) -> None:
    before = modules()
    with pytest.raises(ConfigurationError) as raised:
        load_script(write(tmp_path, ENDLESS[name]), seconds=0.2)
    message = raised.value.message
    assert "cannot be loaded: its code did not end within option.model_loading_timeout=0.2 seconds" in message
    assert f'File "{tmp_path / "model.py"}", line ' in message
    assert "TimeLimitExceeded" not in message
    assert modules() == before


@pytest.mark.parametrize("name", ENDLESS)
def test_endless_script_in_another_thread(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "GRACE_SECONDS", 0.5)  # for those that wait, and cannot be interrupted here
    before = modules()
    with pytest.raises(ConfigurationError, match=r"model\.py cannot be loaded: its code did not end within"):
        in_a_thread(lambda: load_script(write(tmp_path, ENDLESS[name]), seconds=0.2))
    assert modules() == before


def test_a_script_that_nobody_wants_any_more(tmp_path: Path) -> None:
    unwanted = threading.Event()

    def load() -> ModelScript:
        with unless(unwanted):
            return load_script(write(tmp_path, "import threading, builtins\nwhile True:\n    pass\n"))

    with ThreadPoolExecutor(1) as threads:
        loading = threads.submit(load)
        with pytest.raises(TimeoutError):
            loading.result(0.2)
        unwanted.set()
        with pytest.raises(ConfigurationError):
            loading.result(60)


@pytest.mark.parametrize("run", [lambda load: load(), in_a_thread], ids=["main", "thread"])
@pytest.mark.parametrize("raised", ["SystemExit(3)", "GeneratorExit", "type('Own', (BaseException,), {})('x')"])
def test_whatever_a_script_raises_is_told(
    tmp_path: Path, run: Callable[[Callable[[], ModelScript]], ModelScript], raised: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"model\.py cannot be loaded\n(.|\n)*line 1, in <module>"):
        run(lambda: load_script(write(tmp_path, f"raise {raised}\n")))


def test_an_interrupt_that_a_script_raises_does_not_end_the_server(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"model\.py cannot be loaded\n"):
        in_a_thread(lambda: load_script(write(tmp_path, "raise KeyboardInterrupt\n")))


@pytest.mark.parametrize("run", [lambda load: load(), in_a_thread], ids=["main", "thread"])
def test_a_script_that_ends_in_time(tmp_path: Path, run: Callable[[Callable[[], ModelScript]], ModelScript]) -> None:
    before = set(threading.enumerate())  # with those of the tests above that wait
    path = write(tmp_path, "def custom_output_formatter(output):\n    return b''\n")
    script = run(lambda: load_script(path, seconds=60))
    assert list(script.outputs) == ["custom_output_formatter"]
    script.importer.unload()
    assert set(threading.enumerate()) <= before
