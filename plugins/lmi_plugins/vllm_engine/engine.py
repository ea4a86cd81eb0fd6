"""vLLM's engine: its asynchronous client in this process, whose core and workers are child processes."""

import asyncio
import itertools
import logging
import multiprocessing
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager

from pydantic import ValidationError

from lmi_core.engines.restarts import Restarts
from lmi_core.engines.supervisor import Supervisor
from lmi_core.errors import BackendUnhealthy, ConfigurationError, GenerationFailed, InvalidParameter, LmiError
from lmi_plugins.vllm_engine.arguments.parsing import engine_arguments
from lmi_plugins.vllm_engine.library import (
    AsyncEngineArgs,
    AsyncLLM,
    EngineDeadError,
    LoRARequest,
    MultiModalInput,
    PoolingParams,
    PoolingRequestOutput,
    RequestOutput,
    RequestOutputKind,
    SamplingParams,
    TokensInput,
    VLLMClientError,
    generation_eos_token_ids,
    token_prompt,
)
from lmi_plugins.vllm_engine.outputs.stream_intervals import StreamIntervals
from lmi_plugins.vllm_engine.requests.logits_processors import LOGITS_PROCESSORS
from lmi_plugins.vllm_engine.versions import installed_version, warn_if_untested

logger = logging.getLogger(__name__)

POOLING = "pooling"  # vLLM's name of the runner
EMBED = "embed"  # and of the task
LOST = "the request was lost: vLLM's engine died"


class VllmEngine:
    """vLLM's engine, which is started again when it dies."""

    def __init__(self, arguments: Mapping[str, str], retry_threshold: int, max_stream_delay: float = 0.0) -> None:
        """`max_stream_delay`: in seconds; see StreamIntervals."""
        self._arguments = arguments
        self._stream_intervals = StreamIntervals(max_stream_delay)
        self._supervisor: Supervisor[AsyncLLM] = Supervisor(self._create, _watch, _end, retry_threshold)
        self._ids = itertools.count()

    @property
    def restarts(self) -> Restarts:
        return self._supervisor.restarts

    @property
    def vllm(self) -> AsyncLLM:
        """The engine while it takes requests. Raise BackendUnhealthy otherwise."""
        engine = self._supervisor.running
        if engine.errored:
            raise BackendUnhealthy(self._supervisor.why_unhealthy)
        return engine

    @property
    def max_length(self) -> int:
        """Most tokens of a prompt and its answer together."""
        return int(self.vllm.model_config.max_model_len)

    def eos_token_ids(self) -> frozenset[int]:
        """Return those of the model's generation configuration; the tokenizer may have one more."""
        return generation_eos_token_ids(self.vllm.model_config)

    async def start(self) -> None:
        """Load the model, and watch over the engine from then on. Raise ConfigurationError where loading fails."""
        warn_if_untested(installed_version())
        await self._supervisor.start()

    async def stop(self) -> None:
        """End the engine and its processes."""
        await self._supervisor.stop()

    async def generate(
        self,
        prompt: TokensInput | MultiModalInput,
        parameters: SamplingParams,
        adapter: LoRARequest | None = None,
        *,
        coalesces: bool = False,
        priority: int = 0,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Yield the outputs of vLLM's engine, each of several tokens where it `coalesces` and many requests run.

        Closing the generator aborts the request. Raise LmiError where the engine fails.
        """
        engine, request_id = self.vllm, str(next(self._ids))
        finished = False
        try:
            with self._stream_intervals.stream() as clock:
                if coalesces:
                    parameters.stream_interval = self._stream_intervals.choose()
                with translated_errors():
                    collector = await engine.add_request(
                        request_id, prompt, parameters, lora_request=adapter, priority=priority
                    )
                while not finished:
                    output = collector.get_nowait() or await collector.get()
                    clock.read(len(output.outputs[0].token_ids))
                    finished = output.finished
                    if finished:
                        self.restarts.worked()
                    yield output
        except EngineDeadError:
            raise GenerationFailed(LOST) from None
        except LmiError:
            raise
        except Exception as error:  # of whatever class vLLM's reading of its outputs raises
            raise GenerationFailed(f"vLLM failed to process the request: {error}") from error
        finally:
            if not finished and not engine.errored:
                await engine.abort(request_id)

    async def embed(
        self, prompt: TokensInput, parameters: PoolingParams, adapter: LoRARequest | None = None
    ) -> PoolingRequestOutput:
        """Return the vector of a prompt; cancelling aborts the request. Raise LmiError where the engine fails."""
        engine, request_id = self.vllm, str(next(self._ids))
        try:
            with translated_errors():
                async with aclosing(engine.encode(prompt, parameters, request_id, lora_request=adapter)) as outputs:
                    output = await anext(outputs)  # the only one
            self.restarts.worked()
            return output
        except EngineDeadError:
            raise GenerationFailed(LOST) from None
        except LmiError:
            raise
        except Exception as error:
            raise GenerationFailed(f"vLLM failed at this request: {error}") from error

    async def _create(self) -> AsyncLLM:
        arguments = await asyncio.to_thread(engine_arguments, self._arguments)
        engine = await _in_own_thread(lambda: _from_arguments(arguments))
        try:
            await _warm_up(engine)
        except BaseException:
            await asyncio.to_thread(engine.shutdown)
            raise
        return engine


async def _warm_up(engine: AsyncLLM) -> None:
    """Run one token; that is also what makes vLLM listen to its core, whose death is then seen at once.

    Raise ConfigurationError for a pooling model that makes no vectors of texts.
    """
    outputs: AsyncGenerator[object, None]
    if embeds(engine):
        tasks = await engine.get_supported_tasks()
        if EMBED not in tasks:
            raise ConfigurationError(f"vLLM makes no embeddings with this model, whose tasks are {', '.join(tasks)}")
        outputs = engine.encode(token_prompt([0]), PoolingParams(task=EMBED), "warm-up")
    else:
        parameters = SamplingParams(max_tokens=1, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY)
        outputs = engine.generate(token_prompt([0]), parameters, "warm-up")
    async for _ in outputs:
        pass


def embeds(engine: AsyncLLM) -> bool:
    """Return whether the engine runs a pooling model, which generates nothing."""
    return str(engine.model_config.runner_type) == POOLING


async def _watch(engine: AsyncLLM) -> str:
    """Wait until the core has died, and return that it has."""
    await asyncio.wait({engine.output_handler})  # ends when the core has died, or with the engine
    logger.error("vLLM's engine died; its log above says why")
    return "vLLM's engine died"


async def _end(engine: AsyncLLM) -> None:
    engine.output_handler.cancel()  # which otherwise logs that the core is gone
    await asyncio.shield(asyncio.to_thread(engine.shutdown))


def _from_arguments(arguments: AsyncEngineArgs) -> AsyncLLM:
    try:
        if _pools(arguments):  # vLLM refuses logits processors then
            of_others = [each for each in arguments.logits_processors or () if each not in LOGITS_PROCESSORS]
            arguments.logits_processors = of_others or None
        return AsyncLLM.from_engine_args(arguments)
    except ValidationError as error:
        raise ConfigurationError(f"vLLM cannot load the model: {_complaints(error)}") from error
    except Exception as error:  # of whatever class vLLM or the model's own code raises
        raise ConfigurationError(f"vLLM cannot load the model: {' '.join(str(error).split())}") from error


def _pools(arguments: AsyncEngineArgs) -> bool:
    """Return whether vLLM will choose its pooling runner."""
    chosen = arguments.create_model_config().runner_type if arguments.runner == "auto" else arguments.runner
    return str(chosen) == POOLING


def _complaints(error: ValidationError) -> str:
    """Return one complaint about each argument: a union reports an error for each of its members."""
    lines: dict[str, str] = {}
    for details in error.errors():
        option = f"option.{details['loc'][0]}: " if details["loc"] else ""
        own = details.get("ctx", {}).get("error", details["msg"])  # what vLLM raised, or pydantic found
        lines.setdefault(option, f"{option}{own}")
    return "; ".join(lines.values())


async def _in_own_thread(create: Callable[[], AsyncLLM]) -> AsyncLLM:
    """Create the engine in a thread, as vLLM waits for its processes; if cancelled, end them, which ends the wait."""
    loading = asyncio.ensure_future(asyncio.to_thread(create))
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        for process in multiprocessing.active_children():
            process.kill()  # SIGTERM is only noted until the model is loaded, and nothing is lost yet
        await asyncio.wait({loading})
        if not loading.cancelled() and loading.exception() is None:
            loading.result().shutdown()
        raise


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translate the errors that vLLM raises at a request that it does not take into InvalidParameter."""
    try:
        yield
    except (VLLMClientError, ValueError) as error:
        raise InvalidParameter(f"vLLM refuses the request: {' '.join(str(error).split())}") from error
