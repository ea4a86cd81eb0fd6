"""The work of one process that compiles one guide, within limits that the system holds it to."""

import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NoReturn

from xgrammar import GrammarCompiler, GrammarMatcher, TokenizerInfo

from lmi_core.generation.structural_tag import grammar_mistake
from lmi_core.workers.fork_messages import send
from lmi_plugins.torch_engine.guides.grammars import compile_guide
from lmi_plugins.torch_engine.guides.isolated.compile_protocol import (
    Compiled,
    Exceeded,
    Job,
    Mistake,
    Outcome,
    decode_job,
    encode,
)
from lmi_plugins.torch_engine.guides.isolated.expansion import expanded_size
from lmi_plugins.torch_engine.guides.isolated.guidance import guidance_matcher
from lmi_plugins.torch_engine.guides.isolated.trial import STEPS, STEPS_FOR_VLLM, Lengths, Matcher, try_masks
from lmi_plugins.torch_engine.guides.isolated.vllm_guides import compile_as_vllm
from lmi_plugins.torch_engine.messages.guide_limits import GuideLimits

STATUS = Path("/proc/self/status")
NO_MEMORY = "bad_alloc"  # in errors of xgrammar


@dataclass(frozen=True)
class CompileJob:
    """What is the same for all guides of a model."""

    tokenizer: TokenizerInfo
    lengths: Lengths
    base_bytes: int | None  # of data before a guide is there; None: unknown

    def run(self, connection: socket.socket, message: bytes) -> NoReturn:
        """Compile the guide in a message, send the outcome, and end the process."""
        status = 1
        try:
            job = decode_job(message)
            self._limit(job.limits)
            answer = encode(self._outcome(job))
            resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            send(connection, answer)
            status = 0
        except MemoryError:
            status = _tell_of_memory(connection)
        except OSError:  # the client has given up
            status = 0
        except BaseException as error:
            if NO_MEMORY in str(error):  # as when what was compiled is written
                status = _tell_of_memory(connection)
            else:
                print(f"compiling a guide failed: {error!r}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)

    def _limit(self, limits: GuideLimits) -> None:
        """Set the limits at which the system ends this process."""
        signal.signal(signal.SIGXCPU, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (limits.compile_seconds, resource.RLIM_INFINITY))
        if self.base_bytes is not None:
            data = self.base_bytes + limits.memory
            resource.setrlimit(resource.RLIMIT_DATA, (data, data))

    def _outcome(self, job: Job) -> Outcome:
        guide, limits = job.guide, job.limits
        if guide.kind == "regex" and expanded_size(str(guide.content)) > limits.size:
            return Exceeded("size")
        compiler = GrammarCompiler(self.tokenizer, max_threads=1, cache_enabled=False)
        if job.engine != "torch":
            return self._outcome_for_vllm(compiler, job)
        try:
            compiled = compile_guide(compiler, guide)
            try_masks(partial(GrammarMatcher, compiled), self.lengths, limits.mask_seconds, STEPS)
        except (RuntimeError, ValueError, TypeError, AttributeError) as error:  # the last two: of a schema's own form
            if NO_MEMORY in str(error):
                return Exceeded("memory")
            return Mistake(grammar_mistake(error))
        return Compiled(compiled.serialize_json())

    def _outcome_for_vllm(self, compiler: GrammarCompiler, job: Job) -> Outcome:
        """Return the reason to keep a guide from vLLM, which compiles it itself and reports mistakes, except those
        in structural tags. It may pass guides that xgrammar refuses to llguidance.
        """
        guide = job.guide
        matcher: Callable[[], Matcher] | None = None
        if job.engine == "guidance":
            matcher = guidance_matcher(self.tokenizer, guide)
        try:
            matcher = matcher or partial(GrammarMatcher, compile_as_vllm(compiler, guide))
        except (RuntimeError, ValueError, TypeError, AttributeError, KeyError) as error:
            if NO_MEMORY in str(error):
                return Exceeded("memory")
            if guide.kind == "structural_tag":
                return Mistake(grammar_mistake(error))
            matcher = guidance_matcher(self.tokenizer, guide)
        if matcher is None:
            return Compiled("")
        try:
            try_masks(matcher, self.lengths, job.limits.mask_seconds, STEPS_FOR_VLLM)
        except (RuntimeError, ValueError) as error:
            return Exceeded("memory") if NO_MEMORY in str(error) else Mistake(grammar_mistake(error))
        return Compiled("")


def _tell_of_memory(connection: socket.socket) -> int:
    """Send that memory was not enough; return the exit status."""
    with suppress(OSError, MemoryError):
        resource.setrlimit(resource.RLIMIT_CPU, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        send(connection, encode(Exceeded("memory")))
        return 0
    return 1


def data_bytes() -> int | None:
    """Return the size of this process's data, as limited by the system; None if unknown."""
    with suppress(OSError):
        for line in STATUS.read_text(encoding="ascii").splitlines():
            if line.startswith("VmData:"):
                return int(line.split()[1]) * 1024
    return None
