"""The environment variables of text-generation-launcher, which are read with `--tgi-environment`."""

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from lmi_core.configuration.configuration import Setting
from lmi_core.configuration.properties import environment_variable
from lmi_handlers.access.api_keys import HASHED

FLAG = "--tgi-environment"
MODEL_ID = "MODEL_ID"
PORT = "PORT"
API_KEY = "API_KEY"
ORIGINS = "CORS_ALLOW_ORIGIN"
DEFAULT_HOST = "0.0.0.0"  # the launcher's default
DEFAULT_PORT = "3000"
OFF = frozenset({"false", "f", "no", "n", "off", "0"})  # the launcher reads any other value as true


QUANTIZE = "QUANTIZE"
# TGI's quantization methods that have the same name in vLLM; the others quantize while loading, or have their own
# kernels.
QUANTIZATIONS = frozenset({"awq", "compressed-tensors", "fp8", "gptq"})
CACHE_TYPES = {"fp8_e4m3fn": "fp8_e4m3"}  # from PyTorch's name to vLLM's


class Conversion(NamedTuple):
    """The key that a variable sets for all models, and the conversion of its value."""

    key: str
    written: Callable[[str], str] = lambda value: value


READ: Final[Mapping[str, Conversion]] = MappingProxyType(
    {
        "REVISION": Conversion("option.revision"),
        "NUM_SHARD": Conversion("option.tensor_parallel_degree"),
        "DTYPE": Conversion("option.dtype"),
        QUANTIZE: Conversion("option.quantize"),
        "KV_CACHE_DTYPE": Conversion("option.kv_cache_dtype", lambda value: CACHE_TYPES.get(value, value)),
        "TRUST_REMOTE_CODE": Conversion(
            "option.trust_remote_code", lambda value: "false" if value.lower() in OFF else "true"
        ),
        "MAX_TOTAL_TOKENS": Conversion("option.max_model_len"),
        "PAYLOAD_LIMIT": Conversion("max_request_size"),
    }
)
# Variables whose absence matters, with the reason; MAX_INPUT_TOKENS and others are reported even without the flag.
NOT_READ: Final[Mapping[str, str]] = MappingProxyType(
    {
        "SPECULATE": "option.speculative_draft_model and option.speculative_length draft tokens",
        "ROPE_SCALING": "write rope_scaling into the model's config.json",
        "ROPE_FACTOR": "write rope_scaling into the model's config.json",
        "LORA_ADAPTERS": "put the adapters into the folder `adapters` of the model directory",
        "TOKENIZER_CONFIG_PATH": "option.chat_template replaces the chat template",
        "WATERMARK_GAMMA": "texts cannot be watermarked",
        "WATERMARK_DELTA": "texts cannot be watermarked",
        "MAX_BEST_OF": "the engine's batch bounds the number of sequences",
        "MAX_STOP_SEQUENCES": "the number of stop sequences has its own limit",
        "MAX_TOP_N_TOKENS": "the parameter has its own limit",
        "OTLP_ENDPOINT": "SERVING_OTLP_TRACES_ENDPOINT is the URL of a collector, which gets spans over HTTP",
        "OTLP_SERVICE_NAME": "OTEL_SERVICE_NAME is the name of the service in spans",
        "JSON_OUTPUT": "--log-format json writes the log in JSON",
        "HUGGINGFACE_HUB_CACHE": "HF_HUB_CACHE is the folder of models of the hub",
        "WEIGHTS_CACHE_OVERRIDE": "HF_HUB_CACHE is the folder of models of the hub",
    }
)
NO_SUCH_QUANTIZATION = (
    f"of TGI's methods there are {', '.join(sorted(QUANTIZATIONS))} here, all with vLLM. The weights are loaded as the "
    "model's config.json says"
)


class TgiEnvironment(NamedTuple):
    """The settings in the launcher's variables, and the environment without these variables."""

    model: str | None
    port: Setting
    common: tuple[Setting, ...]  # keys for all models
    warnings: tuple[str, ...]
    rest: Mapping[str, str]


def read_tgi_environment(environment: Mapping[str, str]) -> TgiEnvironment:
    """Read the launcher's variables."""
    given = {name: value.strip() for name, value in environment.items() if value.strip()}
    unknown = given.keys() & {QUANTIZE} if given.get(QUANTIZE) not in QUANTIZATIONS else set()
    reasons = {**NOT_READ, **dict.fromkeys(unknown, NO_SUCH_QUANTIZATION)}
    common = [
        Setting(read.key, read.written(given[name]), f"environment {name}")
        for name, read in READ.items()
        if name in given and name not in unknown
    ]
    if "NUM_SHARD" not in given and given.get("SHARDED", "").lower() in OFF - {""}:
        common.append(Setting("option.tensor_parallel_degree", "1", "environment SHARDED"))
    common.append(Setting("option.tgi_compat", "true", FLAG))
    return TgiEnvironment(
        model=given.get(MODEL_ID),
        port=Setting("port", *((given[PORT], f"environment {PORT}") if PORT in given else (DEFAULT_PORT, FLAG))),
        common=tuple(common),
        warnings=tuple(
            f"environment {name} has no effect: {reason}. Given: {given[name]}"
            for name, reason in reasons.items()
            if name in given
        ),
        rest={name: value for name, value in environment.items() if name not in READ} | _keys(given),
    )


def _keys(given: Mapping[str, str]) -> dict[str, str]:
    """Return this server's variables for API keys and origins, including the values set for this server itself.

    The launcher's key is added as a digest, because it may contain any character.
    """
    found: dict[str, str] = {}
    if API_KEY in given:
        own = environment_variable("api_keys")
        key = f"tgi {HASHED}{hashlib.sha256(given[API_KEY].encode()).hexdigest()}"
        found[own] = ",".join(filter(None, (given.get(own), key)))
    if ORIGINS in given:
        own = environment_variable("cors_allowed_origin")
        found[own] = given.get(own, given[ORIGINS])
    return found
