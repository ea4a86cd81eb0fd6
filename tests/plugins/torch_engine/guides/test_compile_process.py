"""The process that compiles guides, and what ends it."""

import json
import signal
import threading
from collections.abc import Iterator

import pytest
from xgrammar import TokenizerInfo

from lmi_core.errors import GenerationFailed, InvalidParameter, LmiError
from lmi_core.forks.forked_function import CallEndedError, Cancellation
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.guides.isolated.compile_process import CompileProcess, failure
from lmi_plugins.torch_engine.messages.requests import MIB, Guide, GuideLimits
from tests.plugins.torch_engine.tiny_models import VOCABULARY

SLOW = Guide("grammar", "root ::= " + " ".join(f'"{"abcdefghij"[i % 10]}"?' for i in range(10_000)))
SMALL = Guide("regex", "[ab]{3}")


@pytest.fixture(scope="module")
def compiling(tokenizer: HuggingFaceTokenizer) -> Iterator[CompileProcess]:
    info = TokenizerInfo.from_huggingface(tokenizer.pretrained, vocab_size=VOCABULARY, stop_token_ids=[1])
    process = CompileProcess(lambda: info.serialize_json().encode(), GuideLimits())
    yield process
    process.stop()


def with_limits(compiling: CompileProcess, limits: GuideLimits) -> CompileProcess:
    """Return a client of the same process with other limits."""
    other = CompileProcess(bytes, limits)
    other._function = compiling._function
    return other


@pytest.mark.parametrize(
    ("guide", "limits", "message"),
    [
        (SLOW, GuideLimits(compile_seconds=1, memory=2048 * MIB), "must compile within 1 seconds of CPU time"),
        (SLOW, GuideLimits(compile_seconds=600, memory=40 * MIB), "must compile within 40 MiB of memory"),
        (Guide("regex", "((.{1,99}){1,99}){1,99}"), GuideLimits(), "at most 50 ms of CPU time"),
        (Guide("grammar", "root ::= root"), GuideLimits(), "it does not allow any text"),
    ],
)
def test_limits(guide: Guide, limits: GuideLimits, message: str, compiling: CompileProcess) -> None:
    process = with_limits(compiling, limits)
    with pytest.raises(InvalidParameter, match=message):
        process.compile(guide, Cancellation())
    assert compiling.compile(SMALL, Cancellation())


WIDE = Guide("json", json.dumps({"properties": {f"p{i}": {"description": "d" * 300} for i in range(500)}}))


@pytest.mark.parametrize("memory", [8, 16, 24, 32])
def test_memory_may_end_at_any_place(memory: int, compiling: CompileProcess) -> None:
    """Memory ends while a guide is read, compiled or written, none of which is the failure of an engine."""
    process = with_limits(compiling, GuideLimits(memory=memory * MIB))
    with pytest.raises(InvalidParameter, match=f"must compile within {memory} MiB of memory"):
        process.compile(WIDE, Cancellation())
    assert compiling.compile(SMALL, Cancellation())


LARK = "start: %s\nT: /[a-z]/ & /[a-y]/\n"  # xgrammar knows no intersections


def test_what_only_vllms_second_library_takes_is_tried_with_that(tokenizer: HuggingFaceTokenizer) -> None:
    info = TokenizerInfo.from_huggingface(tokenizer.pretrained, vocab_size=VOCABULARY, stop_token_ids=[1])
    process = CompileProcess(lambda: info.serialize_json().encode(), GuideLimits())
    try:
        assert process.compile(Guide("grammar", LARK % "T T T"), Cancellation(), "vllm") == ""
        with pytest.raises(InvalidParameter, match="at most 50 ms of CPU time"):
            process.compile(Guide("grammar", LARK % "e\ne: e e | T"), Cancellation(), "vllm")
        patient = with_limits(process, GuideLimits(mask_seconds=60))
        with pytest.raises(InvalidParameter, match="cannot be used: "):  # by a limit of the library
            patient.compile(Guide("grammar", LARK % ('T "' + '"? "'.join("abcde" * 400) + '"')), Cancellation(), "vllm")
        for mistake in (Guide("grammar", LARK % "("), Guide("regex", "[a"), Guide("json", '{"type": "wrong"}')):
            assert process.compile(mistake, Cancellation(), "vllm") == ""  # of which vLLM tells
    finally:
        process.stop()


def test_others_do_not_wait_and_cancelling_ends_the_work(compiling: CompileProcess) -> None:
    process, cancellation = with_limits(compiling, GuideLimits(compile_seconds=600, memory=4096 * MIB)), Cancellation()
    errors: list[BaseException] = []

    def compile_slowly() -> None:
        with pytest.raises(GenerationFailed) as raised:
            process.compile(SLOW, cancellation)
        errors.append(raised.value)

    thread = threading.Thread(target=compile_slowly)
    thread.start()
    assert compiling.compile(SMALL, Cancellation())
    assert thread.is_alive()
    cancellation.cancel()
    thread.join(20)  # less than it would take
    assert len(errors) == 1


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (-signal.SIGVTALRM, InvalidParameter, "at most 50 ms of CPU time"),
        (
            -signal.SIGSEGV,
            InvalidParameter,
            "it makes xgrammar crash, for example with groups that are nested too deeply",
        ),
        (1, GenerationFailed, "could not be compiled: its process ended with exit code 1"),
    ],
)
def test_what_the_end_of_a_process_says(
    code: int, kind: type[LmiError], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = failure(SMALL, CallEndedError(code), GuideLimits())
    assert type(error) is kind
    assert message in error.message
    assert (message in caplog.text) is (kind is GenerationFailed)
