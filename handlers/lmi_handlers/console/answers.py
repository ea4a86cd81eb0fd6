"""The forms of the console's answers, in the spelling of the management routes."""

from typing import NotRequired

from typing_extensions import TypedDict


class Worker(TypedDict):
    """A process that runs a model's engine or function."""

    processId: int


class ShownProgress(TypedDict):
    """The current stage of loading a model, and the share of the bytes that is done, if known."""

    what: str
    share: float | None


class ShownModel(TypedDict):
    """The current state of a version of a model; numbers of requests and tokens count since it was added."""

    modelName: str
    version: NotRequired[str]
    modelUrl: str
    state: str
    default: bool
    loadedAtStartup: bool
    loadedAt: float | None
    backend: NotRequired[str]
    reason: NotRequired[str]
    progress: NotRequired[ShownProgress]
    running: int
    waiting: int
    queueSize: int
    promptTokens: int
    generatedTokens: int
    requests: int
    failedRequests: int
    cacheUsage: float | None
    restarts: int
    workers: list[Worker]
    memory: int | None
    adapters: list[str]
    warnings: list[str]


class MainMemory(TypedDict):
    """Bytes of the host's main memory, within the container's limit."""

    total: int | None
    free: int | None


class Gpu(TypedDict):
    """A GPU's memory in bytes, including what other processes use."""

    number: int
    name: str
    used: int
    total: int


class ShownMemory(TypedDict):
    """The memory of the host, of its GPUs if known, and of the server with all its processes."""

    main: MainMemory
    gpus: list[Gpu]
    server: int | None


class ConsoleState(TypedDict):
    """Everything that the console shows except errors; the times are seconds since 1970.

    `unchangeable` is the reason why models can be neither loaded nor unloaded; null if they can be.
    """

    time: float
    clock: float
    startedAt: float
    version: str
    latestError: int
    unchangeable: str | None
    memory: ShownMemory
    models: list[ShownModel]


class ShownError(TypedDict):
    """An error of a request, or the last of several equal ones in a row."""

    number: int
    time: float
    model: str
    requestId: str
    path: str
    status: int
    kind: str
    ofServer: bool
    message: str
    count: int


class ConsoleErrors(TypedDict):
    """The latest errors, newest first."""

    errors: list[ShownError]
