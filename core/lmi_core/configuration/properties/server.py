"""The keys without a prefix, which configure how the server handles a model."""

from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveInt, field_validator

from lmi_core.configuration.properties.declaration import NO_MPI, Names, NoEffect, Properties
from lmi_core.serving.hosts import Host

PYTHON_ENGINES = ("Python", "MPI", "DeepSpeed", "FasterTransformer")
# DJLServing's engines for models without Python code.
OTHER_ENGINES = (
    "PyTorch", "OnnxRuntime", "TensorFlow", "TensorRT", "MXNet", "Rust", "Llama", "PaddlePaddle", "TFLite",
    "XGBoost", "LightGBM", "fastText", "SentencePiece",
)  # fmt: skip
ALL_DEVICES = "the environment variable CUDA_VISIBLE_DEVICES selects the devices"


def _words(value: str | None) -> list[str]:
    """Return the words of a list separated by blanks or commas."""
    return (value or "").replace(",", " ").split()


class ServerProperties(Properties):
    """How the server treats a model, whichever engine runs it."""

    prefix = ""

    engine: Annotated[str, Names(environment=("OPTION_ENGINE",)), NoEffect(NO_MPI)] = Field(
        default="Python",
        description="DJLServing's engine: Python, MPI, DeepSpeed and FasterTransformer are all served in the same way; "
        "engines for other kinds of models are refused.",
    )
    job_queue_size: Annotated[PositiveInt, Names(environment=("MAX_CONCURRENT_REQUESTS",))] = Field(
        default=1000,
        description="Maximum number of waiting requests, in addition to those that generate; further requests are "
        "refused.",
    )
    batch_size: Annotated[PositiveInt, Names(aliases=("max_dynamic_batch_size",))] = Field(
        default=1,
        description="Maximum number of requests in one dynamic batch; above 1 implies option.rolling_batch=disable "
        "unless that is set.",
    )
    max_batch_delay: NonNegativeInt = Field(
        default=100,
        description="Maximum time that a dynamic batch waits for further requests before it starts, in milliseconds.",
    )
    min_workers: Annotated[
        NonNegativeInt,
        Names(key="minWorkers", aliases=("min_workers", "minworkers"), environment=("SERVING_MIN_WORKERS",)),
    ] = Field(default=1, description="Minimum number of processes that run the model function; 0 means 1.")
    max_workers: Annotated[
        PositiveInt,
        Names(
            key="maxWorkers",
            aliases=("max_workers", "maxworkers"),
            environment=("SERVING_MAX_WORKERS",),
        ),
    ] = Field(
        default=1,
        description="Maximum number of processes that run the model function; more are started when all are busy. "
        "At least minWorkers.",
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
        default=60, description="Time after which an idle process beyond minWorkers is stopped, in seconds."
    )
    load_on_devices: Annotated[str | None, Names(aliases=("option.load_on_devices",)), NoEffect(ALL_DEVICES)] = None
    log_request_metric: bool = Field(default=False, description="Log each request's token counts and times.")
    max_request_size: PositiveInt = Field(default=6553500, description="Maximum size of a request body, in bytes.")
    throttle_error_http_code: Annotated[int, Field(ge=400, le=599)] = Field(
        default=503, description="HTTP status of requests that are refused because the queue is full."
    )
    open_management: bool = Field(
        default=False, description="Allow other hosts, not only the server's own, to manage the model's adapters."
    )
    allowed_hosts: str | None = Field(
        default=None,
        description="Host names by which clients and proxies reach this server, separated by commas, with or without a "
        "port. Routes that change the server refuse other names; *.example.com allows all subdomains, * any "
        "name.",
    )

    @property
    def host_patterns(self) -> frozenset[Host]:
        return frozenset(Host.parse_pattern(text) for text in _words(self.allowed_hosts))

    @field_validator("allowed_hosts")
    @classmethod
    def _hosts(cls, value: str | None) -> str | None:
        for text in _words(value):
            try:
                Host.parse_pattern(text)
            except ValueError:
                example = "models.example.com, 10.0.0.5:9000 or *.example.com"
                raise ValueError(f"must be host names, such as {example}, without http:// or a path") from None
        return value

    @field_validator("engine")
    @classmethod
    def _of_python(cls, value: str) -> str:
        if value in OTHER_ENGINES:
            raise ValueError(
                f"must be one of {', '.join(PYTHON_ENGINES)}: DJLServing's other engines are for kinds of models "
                "that this server does not support"
            )
        if value not in PYTHON_ENGINES:
            raise ValueError(f"must be one of {', '.join(PYTHON_ENGINES)}")
        return value

    def workers(self, gpus: int) -> tuple[int, int]:
        """Return the minimum and maximum numbers of model function processes on a host with `gpus` GPUs."""
        own_min, own_max = (
            (self.gpu_min_workers, self.gpu_max_workers) if gpus else (self.cpu_min_workers, self.cpu_max_workers)
        )
        minimum = max(1, self.min_workers if own_min is None else own_min)
        return minimum, max(minimum, self.max_workers if own_max is None else own_max)
