"""`lmi chat`, as a person types in it."""

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.conftest import SCRIPTED, ModelDirectory
from tests.lmi_process import LMI, run_lmi

SAYS = SCRIPTED + "option.scripted_text=It is warm.\n"


def chat(directory: Path, *lines: str, arguments: tuple[object, ...] = ()) -> list[str]:
    """Return the lines that are printed in a chat of these lines, with the last as `END: ` and the exit status."""
    typed = "".join(f"{line}\n" for line in lines)
    result = run_lmi(("chat", directory, *arguments), os.environ, typed)
    assert result.stderr == ""
    return [*result.stdout.splitlines(), f"END: {result.returncode}"]


def saved(file: Path) -> object:
    return json.loads(file.read_text())


def test_conversation(model_dir: ModelDirectory, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    arguments = ("--system", "Be brief.", "--max-tokens", 20)
    printed = chat(model_dir({"serving.properties": SAYS}), "Hello", "And you?", f"/save {file}", arguments=arguments)
    assert [printed[0], printed[2], printed[-1]] == ["It is warm.", "It is warm.", "END: 0"]
    assert printed[1].startswith("3 tokens, ")
    assert saved(file) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "It is warm."},
            {"role": "user", "content": "And you?"},
            {"role": "assistant", "content": "It is warm."},
        ],
        "max_tokens": 20,
    }


def test_commands(model_dir: ModelDirectory, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    typed = ("/retry", "Hello", "/set max_tokens 2", "/retry", "/system Be brief.", "/set user=me", f"/save {file}")
    printed = chat(model_dir({"serving.properties": SAYS}), *typed, "/exit", "not read")
    assert printed[0] == "there is nothing to answer yet"
    assert (printed[1], printed[3], printed[-1], len(printed)) == ("It is warm.", "It is", "END: 0", 6)
    assert saved(file) == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "It is"},
        ],
        "max_tokens": 2,
        "user": "me",
    }


def test_fields_are_shown(model_dir: ModelDirectory) -> None:
    typed = ("/set nonsense", "/set top_k 3", "/set", "/set top_k")
    printed = chat(model_dir({"serving.properties": SAYS}), *typed)
    assert printed[:3] == [
        "nonsense has no value: /set nonsense VALUE gives it one. Sent with each message: nothing else",
        "Sent with each message: top_k=3",
        "top_k is no longer sent",
    ]


def test_fields_that_the_server_ignores_are_told_once(model_dir: ModelDirectory) -> None:
    result = run_lmi(("chat", model_dir({"serving.properties": SAYS})), os.environ, "/set zzz 1\nHello\nHello\n")
    assert result.stdout.count("the server ignores zzz: /set zzz removes it\n") == 1
    assert result.stderr == ""


def test_what_does_not_work_ends_no_conversation(model_dir: ModelDirectory, tmp_path: Path) -> None:
    typed = (
        "/unknown",
        "/set max_tokens -2",
        "Hello",
        "/set max_tokens",
        f"/save {tmp_path}",
        "/save",
        "/clear",
        "Hello",
        "/help",
    )
    printed = chat(model_dir({"serving.properties": SAYS}), *typed)
    assert printed[0] == "there is no /unknown; /help lists the commands"
    assert printed[1].startswith("error: `max_tokens` must be ")
    assert f"{tmp_path} cannot be written: Is a directory" in printed
    assert "/save needs the name of a file" in printed
    assert "It is warm." in printed
    assert any(line.startswith("/retry ") for line in printed)


def test_ctrl_c_ends_the_answer_and_not_the_conversation(model_dir: ModelDirectory) -> None:
    words = "one two " + "three " * 500
    directory = model_dir(
        {"serving.properties": SCRIPTED + f"option.scripted_text={words}\noption.scripted_delay=0.05\n"}
    )
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [LMI, "chat", directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("Hello\n")
    process.stdin.flush()
    said = process.stdout.read(len("one two"))
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate("/set max_tokens 1\n/retry\n", timeout=60)
    assert (said, process.returncode) == ("one two", 0)
    assert rest.rstrip().splitlines()[-2] == "one"
    assert " ..." in rest
