"""A process that compiles guides, each in a fork with limits, because nothing else can interrupt a compilation."""

import logging
import signal
from collections.abc import Callable
from typing import Literal

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.forks.forked_function import (
    CallEndedError,
    CallFailedError,
    CallTooCostlyError,
    Cancellation,
    ForkedFunction,
)
from lmi_plugins.torch_engine.messages.requests import Guide, GuideLimits

logger = logging.getLogger(__name__)

Engine = Literal["torch", "vllm", "guidance"]  # the last one is vLLM with llguidance instead of xgrammar

PREPARE = "lmi_plugins.torch_engine.guides.isolated.compile_job:prepare"
PATIENCE = 1.0  # seconds after which a guide is compiled only on idle cores
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)


class CompileProcess:
    """A process that starts with the first guide. Use it from any thread."""

    def __init__(self, tokenizer: Callable[[], bytes], limits: GuideLimits) -> None:
        """`tokenizer` returns xgrammar's serialized TokenizerInfo, while the process imports xgrammar."""
        self._function = ForkedFunction(PREPARE, tokenizer, PATIENCE)
        self._limits = limits

    def compile(self, guide: Guide, cancellation: Cancellation, engine: Engine = "torch") -> str:
        """Return the grammar of a guide in xgrammar's serialized form; "" for vLLM, for which it is only tried.

        Raise InvalidParameter for an invalid or too costly guide, and GenerationFailed if the compilation fails
        otherwise.
        """
        limits = self._limits
        try:
            grammar, refusal = self._function.call(
                limits.compile_seconds, guide, limits, engine, memory=limits.memory, cancellation=cancellation
            )
        except CallTooCostlyError as error:
            raise too_costly(guide, "memory" if error.limit == "memory" else "compile_seconds", limits) from None
        except CallFailedError as error:
            raise failure(guide, error, limits) from None
        if refusal:
            raise InvalidParameter(refusal)
        return str(grammar)

    def stop(self) -> None:
        """End the process and its work; no more guides are compiled."""
        self._function.stop()


def failure(guide: Guide, error: CallFailedError, limits: GuideLimits) -> InvalidParameter | GenerationFailed:
    """Return the error for a guide whose process has failed or ended, whether or not the guide is to blame."""
    number = -error.code if isinstance(error, CallEndedError) else 0
    if number == signal.SIGVTALRM:
        return too_costly(guide, "mask_seconds", limits)
    if number in CRASHES:
        reason = "it makes xgrammar crash, for example with groups that are nested too deeply"
        return InvalidParameter(f"`guided_{guide.kind}` cannot be used: {reason}")
    logger.error("a guide (%s) could not be compiled: %s", guide.kind, error)
    return GenerationFailed(f"`guided_{guide.kind}` could not be compiled: {error}")


def too_costly(guide: Guide, limit: str, limits: GuideLimits) -> InvalidParameter:
    """Return the error for a guide that exceeds a limit."""
    reasons = {
        "size": f"must have at most {limits.size} bytes",
        "compile_seconds": f"must compile within {limits.compile_seconds} seconds of CPU time",
        "memory": f"must compile within {limits.memory // 2**20} MiB of memory",
        "mask_seconds": "must need at most "
        f"{limits.mask_seconds * 1000:g} ms of CPU time to determine the next allowed tokens",
    }
    return InvalidParameter(f"`guided_{guide.kind}` {reasons[limit]}: simplify it, or use fewer repetitions")
