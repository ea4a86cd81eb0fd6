"""The forms of the console's answers, in the spelling of the management routes."""

from typing import NotRequired

from typing_extensions import TypedDict


class Worker(TypedDict):
    """A process that runs a model's engine or function."""

    processId: int


class ShownProgress(TypedDict):
    """What is done to load a model: in words, and as a share of all bytes where they are known."""

    what: str
    share: float | None


class ShownModel(TypedDict):
    """A version of a model as it is now; numbers of requests and tokens count from the time when it came."""

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
    """Bytes of the host's main memory, or of those that the container may use."""

    total: int | None
    free: int | None


class Gpu(TypedDict):
    """A GPU's memory in bytes, including what other processes use."""

    number: int
    name: str
    used: int
    total: int


class ShownMemory(TypedDict):
    """The memory of the host, of its GPUs as far as they tell, and of the server with all its processes."""

    main: MainMemory
    gpus: list[Gpu]
    server: int | None


class ConsoleState(TypedDict):
    """Everything that the console shows, but for the errors; the times are seconds since 1970."""

    time: float
    clock: float
    startedAt: float
    version: str
    latestError: int
    memory: ShownMemory
    models: list[ShownModel]


class ShownError(TypedDict):
    """An error that a request got, or the last of several the same ones behind each other."""

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
    """The latest errors, the last one first."""

    errors: list[ShownError]
