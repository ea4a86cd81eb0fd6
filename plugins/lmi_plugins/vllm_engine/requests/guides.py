"""Guides, which constrain texts, for vLLM, whose core cannot be interrupted while it compiles them.

Each is compiled and tried beforehand, in a process with limits, so that costly guides are refused.
"""

import asyncio
import json
import logging
import threading
import time
from functools import partial

from lmi_core.errors import GenerationFailed, InvalidParameter
from lmi_core.texts.huggingface_tokenizer import HuggingFaceTokenizer
from lmi_plugins.torch_engine.guides.compilation import PATIENCE, Compilation, Compilations, guide_key, guide_size
from lmi_plugins.torch_engine.guides.grammar_cache import GrammarCache
from lmi_plugins.torch_engine.guides.isolated.compile_process import CompileProcess, Engine, too_costly
from lmi_plugins.torch_engine.messages.requests import Guide, GuideLimits
from lmi_plugins.vllm_engine.library import xgrammar_lacks
from lmi_plugins.vllm_engine.loading import note_exception

logger = logging.getLogger(__name__)

AUTO = "auto"
GUIDANCE = "guidance"  # vLLM's name for llguidance


def by_guidance(guide: Guide, library: str) -> bool:
    """Return whether vLLM uses llguidance first for a guide, because xgrammar would ignore a part of it."""
    if library != AUTO or guide.kind != "json":
        return library == GUIDANCE
    try:
        return xgrammar_lacks(json.loads(str(guide.content)))
    except (ValueError, RecursionError):  # vLLM will refuse it
        return False


class GuideTrials:
    """The trials of guides, each run once, in a process that starts with the first."""

    def __init__(self, tokenizer: HuggingFaceTokenizer, limits: GuideLimits) -> None:
        self._tokenizer = tokenizer
        self._limits = limits
        self._compilations = Compilations()
        self._cache = GrammarCache()
        self._lock = threading.Lock()
        self._process: CompileProcess | None = None
        self._stopped = False

    async def check(self, guide: Guide, vocabulary: int, library: str = AUTO) -> None:
        """Raise InvalidParameter for a guide that takes more than the limits, or allows no text.

        `library` is vLLM's name of the guide library. Raise Overloaded if others waited for it, and GenerationFailed if
        it could not be tried.
        """
        if guide_size(guide) > self._limits.size:
            raise too_costly(guide, "size", self._limits)
        key = guide_key(guide)
        if self._cache.has(key):
            self._cache.get(key)
            return
        compilation = self._compilations.submit(guide, partial(self._run, vocabulary=vocabulary, library=library))
        trial = asyncio.wrap_future(compilation.future)
        trial.add_done_callback(note_exception)
        try:
            while not (await asyncio.wait({trial}, timeout=PATIENCE))[0]:
                self._compilations.make_room()
        finally:
            self._compilations.leave(compilation)
        trial.result()

    async def stop(self) -> None:
        """End the process and its work."""
        self._stopped = True
        self._compilations.stop()
        if self._process is not None:
            await asyncio.to_thread(self._process.stop)

    def _run(self, compilation: Compilation, vocabulary: int, library: str) -> None:
        engine: Engine = "guidance" if by_guidance(compilation.guide, library) else "vllm"
        try:
            compilation.begun = None  # the first start takes long, and that does not count
            process = self._start(vocabulary)
            compilation.begun = time.monotonic()
            process.compile(compilation.guide, compilation.cancellation, engine)
        except InvalidParameter as error:
            self._cache.refuse(compilation.key, error.message)
            raise
        self._cache.keep(compilation.key, None)

    def _start(self, vocabulary: int) -> CompileProcess:
        with self._lock:
            if self._stopped:
                raise GenerationFailed("the engine was stopped")
            if self._process is None:
                from xgrammar import TokenizerInfo

                info = TokenizerInfo.from_huggingface(self._tokenizer.pretrained, vocab_size=vocabulary)
                self._process = CompileProcess(lambda: info.serialize_json().encode(), self._limits)
            return self._process
