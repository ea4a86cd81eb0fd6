"""The start and the end of vLLM's engine: its client in this process, and its processes."""

import asyncio
import logging
import multiprocessing
import os
import signal
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ValidationError

from lmi_core.errors import ConfigurationError, OutOfMemory
from lmi_core.host.out_of_memory import is_out_of_memory
from lmi_plugins.vllm_engine.library import (
    AsyncEngineArgs,
    AsyncLLM,
    PoolingParams,
    RequestOutputKind,
    SamplingParams,
    core_process_ids,
    token_prompt,
    traces,
)
from lmi_plugins.vllm_engine.processes import announce_end, hold_back_sigterm, kill_with_children, send_spans
from lmi_plugins.vllm_engine.requests.logits_processors import LOGITS_PROCESSORS
from lmi_plugins.vllm_engine.socket_folder import remove_meeting_files
from lmi_plugins.vllm_engine.statistics import create_with_statistics

logger = logging.getLogger(__name__)

POOLING = "pooling"  # vLLM's name of the runner
EMBED: Final = "embed"  # vLLM's name of the task
SCORE: Final = "classify"
ABANDON_SECONDS = 5.0  # after which an engine whose processes were killed during loading is abandoned

THREAD = "vllm-loading"  # the name of each thread that loads an engine

_loading = defaultdict[int, asyncio.Lock](asyncio.Lock)  # by GPU

SOCKETS = ("input_socket", "output_socket", "first_req_send_socket", "first_req_rcv_socket", "stats_update_socket")
TERM_SECONDS = 5.0  # for ZeroMQ, whose context waits for open sockets


@asynccontextmanager
async def alone_on(gpus: Sequence[int]) -> AsyncIterator[None]:
    """Wait until no other engine is loaded on these GPUs: vLLM would count the memory of both as that of one."""
    async with AsyncExitStack() as stack:
        for gpu in sorted(gpus):  # in one order, so that two do not wait for each other
            await stack.enter_async_context(_loading[gpu])
        yield


async def load_engine(create: Callable[[], AsyncLLM]) -> AsyncLLM:
    """Create an engine in a thread, and run one token.

    Raise ConfigurationError if that fails; cancelling ends its processes. The token also makes vLLM listen to its core,
    so that its death is noticed immediately.
    """
    engine = await _in_own_thread(create)
    try:
        await _warm_up(engine)
    except BaseException:
        await shut_down_and_release(engine)
        raise
    return engine


def embeds(engine: AsyncLLM) -> bool:
    """Return whether the engine runs a pooling model, which does not generate."""
    return str(engine.model_config.runner_type) == POOLING


async def pooling_task(engine: AsyncLLM) -> Literal["embed", "classify"]:
    """Return the task of a pooling model. Raise ConfigurationError if it neither embeds texts nor scores pairs."""
    tasks = await engine.get_supported_tasks()
    if EMBED in tasks:
        return EMBED
    if SCORE in tasks and engine.model_config.hf_config.num_labels == 1:
        return SCORE
    raise ConfigurationError(
        f"vLLM makes no embeddings, and no scores of one label, with this model, whose tasks are {', '.join(tasks)}"
    )


def shut_down(engine: AsyncLLM) -> None:
    """End the engine by SIGINT; its processes ignore the SIGTERM that vLLM sends."""
    for process_id in core_process_ids(engine):
        announce_end(process_id)
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGINT)
    engine.shutdown()
    if traces(engine):
        send_spans()  # the server may exit without warning


async def _warm_up(engine: AsyncLLM) -> None:
    """Run one token. Raise ConfigurationError for a pooling model that neither embeds texts nor scores pairs."""
    outputs: AsyncGenerator[object, None]
    if embeds(engine):
        outputs = engine.encode(token_prompt([0]), PoolingParams(task=await pooling_task(engine)), "warm-up")
    else:
        parameters = SamplingParams(max_tokens=1, detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY)
        outputs = engine.generate(token_prompt([0]), parameters, "warm-up")
    async for _ in outputs:
        pass


def fit_to_model(arguments: AsyncEngineArgs) -> None:
    """Leave out the logits processors for a pooling model, for which vLLM refuses them."""
    chosen = arguments.create_model_config().runner_type if arguments.runner == "auto" else arguments.runner
    if str(chosen) == POOLING:
        of_others = [each for each in arguments.logits_processors or () if each not in LOGITS_PROCESSORS]
        arguments.logits_processors = of_others or None


def from_arguments(arguments: AsyncEngineArgs) -> AsyncLLM:
    """Create an engine. Raise ConfigurationError if that fails."""
    with loading_errors():
        fit_to_model(arguments)
        return create_with_statistics(arguments)


@contextmanager
def loading_errors() -> Iterator[None]:
    """Convert the errors of vLLM, or of the model's code, into ConfigurationError or OutOfMemory."""
    try:
        yield
    except ValidationError as error:
        raise ConfigurationError(f"vLLM cannot load the model: {_complaints(error)}") from error
    except Exception as error:  # vLLM or the model's own code may raise anything
        found = OutOfMemory if is_out_of_memory(error) else ConfigurationError
        raise found(f"vLLM cannot load the model: {' '.join(str(error).split())}") from error


def _complaints(error: ValidationError) -> str:
    """Return one complaint about each argument, although a union reports an error for each member."""
    lines: dict[str, str] = {}
    for details in error.errors():
        option = f"option.{details['loc'][0]}: " if details["loc"] else ""
        own = details.get("ctx", {}).get("error", details["msg"])  # raised by vLLM, or found by pydantic
        lines.setdefault(option, f"{option}{own}")
    return "; ".join(lines.values())


async def _in_own_thread(create: Callable[[], AsyncLLM]) -> AsyncLLM:
    """Create the engine in a thread, because vLLM waits for its processes; if cancelled, kill them, which ends most
    waits.

    It does not end the wait for a core that started to load but does not connect. Nothing else needs the thread, so
    it is left to vLLM's own timeout.
    """
    result: Future[AsyncLLM] = Future()
    thread = threading.Thread(target=_run, args=(create, result), name=THREAD, daemon=True)
    thread.start()
    loading = asyncio.wrap_future(result)
    try:
        return await asyncio.shield(loading)
    except asyncio.CancelledError:
        for process_id in _started_by(thread):
            kill_with_children(process_id)  # SIGTERM is delayed, and nothing would be lost yet
        await asyncio.wait({loading}, timeout=ABANDON_SECONDS)
        loading.add_done_callback(note_exception)
        result.add_done_callback(_discard)
        raise


def _run(create: Callable[[], AsyncLLM], result: "Future[AsyncLLM]") -> None:
    hold_back_sigterm()
    try:
        engine = create()
    except BaseException as error:
        result.set_exception(error)
    else:
        result.set_result(engine)


def note_exception(abandoned: "asyncio.Future[Any]") -> None:
    """Retrieve the exception of a possibly abandoned future, so that asyncio does not log it."""
    if not abandoned.cancelled():
        abandoned.exception()


def _discard(loaded: "Future[AsyncLLM]") -> None:
    """End an abandoned engine."""
    if not loaded.cancelled() and loaded.exception() is None:
        shut_down(loaded.result())


def _started_by(thread: threading.Thread) -> set[int]:
    """Return the processes of an engine that a thread still loads; other threads may load engines at the same time."""
    if not thread.is_alive():
        return set()
    with suppress(OSError):  # only Linux reports the thread; elsewhere, the engine is ended once it has loaded
        children = Path(f"/proc/self/task/{thread.native_id}/children").read_text(encoding="ascii")
        started = {int(process_id) for process_id in children.split()}
        return started & {process.pid for process in multiprocessing.active_children() if process.pid is not None}
    return set()


async def shut_down_and_release(engine: AsyncLLM) -> None:
    """End the engine and free its resources."""
    await asyncio.to_thread(shut_down, engine)
    await release(engine)


async def release(engine: AsyncLLM) -> None:
    """Free the remaining resources of a shut-down engine:

    ZeroMQ's context with its threads, pipes, and files. Call this on the event loop that reads its sockets.
    """
    resources: Any = getattr(engine.engine_core, "resources", None)
    for socket in [getattr(resources, name, None) for name in SOCKETS]:
        if socket is not None:
            socket.close(linger=0)
    if (context := getattr(resources, "ctx", None)) is not None:
        ending = threading.Thread(target=context.term, name="vllm-release", daemon=True)
        ending.start()
        await asyncio.to_thread(ending.join, TERM_SECONDS)
    processes: list[Any] = getattr(getattr(resources, "engine_manager", None), "processes", [])
    for process in processes:
        remove_meeting_files(process.pid)
    processes.clear()  # also closes their pipes
