"""The keys without a prefix, which configure how the server handles a model."""

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt

from lmi_core.configuration.host_patterns import Host
from lmi_core.configuration.properties.declaration import NO_MPI, Names, NoEffect, Properties, checked_by
from lmi_core.host.devices import parse_devices

# DJLServing's engines. Rust's and ONNX Runtime's models of the hub have files that show what they are for.
SERVED_ENGINES = ("Python", "MPI", "DeepSpeed", "FasterTransformer", "Rust", "OnnxRuntime")
EMBEDDING_ENGINE = "PyTorch"  # only its embedding models are served
OTHER_ENGINES = (
    EMBEDDING_ENGINE, "TensorFlow", "TensorRT", "MXNet", "Llama", "PaddlePaddle", "TFLite", "XGBoost", "LightGBM",
    "fastText", "SentencePiece",
)  # fmt: skip


def check_engine(name: str) -> None:
    """Raise ValueError unless models for DJLServing's engine of that name can be served."""
    lower = name.lower()
    if lower in (each.lower() for each in SERVED_ENGINES):
        return
    others = "DJLServing's other engines are for kinds of models that this server does not support"
    reason = f": {others}" if lower in (each.lower() for each in OTHER_ENGINES) else ""
    raise ValueError(f"must be one of {', '.join(SERVED_ENGINES)}{reason}")


def _check_engine_name(name: str) -> None:
    if name.lower() != EMBEDDING_ENGINE.lower():  # this depends on option.task
        check_engine(name)


def _host_patterns(value: str) -> frozenset[Host]:
    try:
        return frozenset(map(Host.parse_pattern, value.replace(",", " ").split()))
    except ValueError:
        example = "models.example.com, 10.0.0.5:9000 or *.example.com"
        raise ValueError(f"must be host names, such as {example}, without http:// or a path") from None


class ServerProperties(Properties):
    """How the server treats a model, whichever engine runs it."""

    prefix = ""

    engine: Annotated[str, Names(environment=("OPTION_ENGINE",)), NoEffect(NO_MPI), checked_by(_check_engine_name)] = (
        Field(
            default="Python",
            description="DJLServing's engine. Python, MPI, DeepSpeed, FasterTransformer, Rust and OnnxRuntime are "
            "treated alike; PyTorch is accepted with option.task=text-embedding or reranking; other engines are "
            "refused.",
        )
    )
    reranking: bool = Field(
        default=False, description="DJLServing's key for rerankers; true is the same as option.task=reranking."
    )
    job_queue_size: Annotated[PositiveInt, Names(environment=("MAX_CONCURRENT_REQUESTS",))] = Field(
        default=1000,
        description="Maximum number of waiting requests; further ones are refused. Running requests do not count: up "
        "to option.max_rolling_batch_size, batch_size with dynamic batching, or batch_size for each of maxWorkers "
        "processes of a model function. A request counts once for each sequence of each of its prompts.",
    )
    batch_size: Annotated[PositiveInt, Names(aliases=("max_dynamic_batch_size",))] = Field(
        default=1,
        description="Maximum number of requests in a dynamic batch. A value above 1 implies "
        "option.rolling_batch=disable unless option.rolling_batch is set.",
    )
    max_batch_delay: NonNegativeInt = Field(
        default=100,
        description="Maximum time that a dynamic batch waits for more requests, in milliseconds.",
    )
    min_workers: Annotated[
        NonNegativeInt,
        Names(key="minWorkers", aliases=("min_workers", "minworkers"), environment=("SERVING_MIN_WORKERS",)),
    ] = Field(
        default=1,
        description="Minimum number of engines on each group of devices that one engine needs, or of processes that "
        "run the model function. With 0, the last one is stopped, too, after max_idle_time without requests; the next "
        "request starts one.",
    )
    max_workers: Annotated[
        PositiveInt,
        Names(
            key="maxWorkers",
            aliases=("max_workers", "maxworkers"),
            environment=("SERVING_MAX_WORKERS",),
        ),
    ] = Field(
        default=1,
        description="Maximum number of engines or processes, at least minWorkers. More are started when all are busy.",
    )
    gpu_min_workers: Annotated[NonNegativeInt | None, Names(key="gpu.minWorkers")] = Field(
        default=None, description="Overrides minWorkers on a host with GPUs."
    )
    gpu_max_workers: Annotated[PositiveInt | None, Names(key="gpu.maxWorkers")] = Field(
        default=None, description="Overrides maxWorkers on a host with GPUs."
    )
    cpu_min_workers: Annotated[NonNegativeInt | None, Names(key="cpu.minWorkers")] = Field(
        default=None, description="Overrides minWorkers on a host without GPUs."
    )
    cpu_max_workers: Annotated[PositiveInt | None, Names(key="cpu.maxWorkers")] = Field(
        default=None, description="Overrides maxWorkers on a host without GPUs."
    )
    retry_threshold: NonNegativeInt = Field(
        default=10,
        description="Maximum number of consecutive restarts of a crashed engine or worker before its model is "
        "marked as failed. When no model is left, the server exits with status 1.",
    )
    max_idle_time: PositiveInt = Field(
        default=60,
        description="Time after which an idle engine or process beyond minWorkers is stopped and, with unload_idle or "
        "minWorkers=0, an idle model is unloaded, in seconds.",
    )
    unload_idle: bool = Field(
        default=False,
        description="Unload the model after max_idle_time without requests. The next request loads it again and "
        "waits for it.",
    )
    load_on_devices: Annotated[str | None, Names(aliases=("option.load_on_devices",)), checked_by(parse_devices)] = (
        Field(
            default=None,
            description="The model's devices: cpu, or GPU numbers separated by semicolons; by default, or with *, all. "
            "They are divided into groups of as many as an engine needs, or of one for a process of a model function; "
            "minWorkers and maxWorkers apply to each group.",
        )
    )
    ray_address: str | None = Field(
        default=None,
        description="Run the engines on a Ray cluster: auto, local (a cluster on this machine that ends with the "
        "server), host:port or ray://host:port. Needs the extra `ray`.",
    )
    ray_shared: bool = Field(
        default=False,
        description="Share the engines on the Ray cluster with all servers that serve the same files with the same "
        "options. The model's adapters cannot be changed while it is served. For the backends torch and trtllm.",
    )
    required_memory_mb: PositiveInt | None = Field(
        default=None,
        description="Memory needed to load the model, in MiB. Default: the size of its weights, if they are on this "
        "host. A model that does not fit is not loaded, and its requests get status 507.",
    )
    reserved_memory_mb: NonNegativeInt = Field(
        default=0, description="Memory that must be free for inference in addition to required_memory_mb, in MiB."
    )
    gpu_required_memory_mb: Annotated[PositiveInt | None, Names(key="gpu.required_memory_mb")] = Field(
        default=None, description="Overrides required_memory_mb for a model on GPUs; the value applies to each GPU."
    )
    gpu_reserved_memory_mb: Annotated[NonNegativeInt | None, Names(key="gpu.reserved_memory_mb")] = Field(
        default=None, description="Overrides reserved_memory_mb for a model on GPUs."
    )
    log_prompts: bool = Field(
        default=False,
        description="Log each request's prompts when the request ends. Anyone who can read the log can read them.",
    )
    log_request_metric: bool = Field(default=False, description="Log each request's token counts and times.")
    max_request_size: PositiveInt = Field(
        default=16 * 1024 * 1024,
        description="Maximum size of a request body, in bytes. The default fits a base64-encoded image of the "
        "default option.max_image_size.",
    )
    max_request_members: PositiveInt = Field(
        default=50_000,
        description="Maximum total number of objects, lists and members of objects in the JSON of a request body.",
    )
    throttle_error_http_code: Annotated[int, Field(ge=400, le=599)] = Field(
        default=503, description="HTTP status of requests that are refused because the queue is full."
    )
    open_management: bool = Field(
        default=False, description="Allow hosts other than the server's own to manage the model and its adapters."
    )
    allowed_hosts: Annotated[str | None, checked_by(_host_patterns)] = Field(
        default=None,
        description="Host names, with or without a port, by which clients and proxies reach this server, separated "
        "by commas. Routes that change the server refuse other names; *.example.com allows all subdomains, * any "
        "name.",
    )

    @property
    def devices(self) -> tuple[str, ...]:
        """`cpu`, or the numbers of GPUs; empty if the model may use all devices."""
        return parse_devices(self.load_on_devices or "")

    @property
    def shares_on_ray(self) -> bool:
        """Whether other servers can share the engines on the cluster."""
        return self.ray_shared and self.ray_address not in (None, "local")

    @property
    def host_patterns(self) -> frozenset[Host]:
        return _host_patterns(self.allowed_hosts or "")

    def workers(self, gpus: int) -> tuple[int, int]:
        """Return the minimum and maximum numbers of engines or processes on a host with `gpus` GPUs.

        A minimum of 0 means that a model in use has at least one.
        """
        minimum, maximum = self.given_workers(gpus)
        return minimum, max(minimum, maximum)

    def given_workers(self, gpus: int) -> tuple[int, int]:
        """Return the same numbers as they are given: the maximum may be less than the minimum, unless it is the
        default.
        """
        own_min, own_max = (
            (self.gpu_min_workers, self.gpu_max_workers) if gpus else (self.cpu_min_workers, self.cpu_max_workers)
        )
        minimum = self.min_workers if own_min is None else own_min
        if own_max is not None:
            return minimum, own_max
        return minimum, self.max_workers if "max_workers" in self.model_fields_set else max(minimum, self.max_workers)
