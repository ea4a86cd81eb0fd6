"""The member `options` of Ollama's requests: sampling parameters, and members without effect here."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import Field

from lmi_core.errors import InvalidPayload
from lmi_core.payloads.tolerant_payload import TolerantPayload
from lmi_core.served_model import ServedModel
from lmi_handlers.fields.own_parameters import take_own
from lmi_handlers.fields.parameter_fields import with_parameters
from lmi_handlers.fields.sampling import SEEDS
from lmi_handlers.fields.vocabulary import translate

NAMES = MappingProxyType(
    {
        "num_predict": "max_new_tokens",
        "repeat_penalty": "repetition_penalty",
        "stop": "stop_sequences",
        **{name: name for name in ("min_p", "typical_p", "presence_penalty", "frequency_penalty")},
    }
)
# Ollama's defaults.
DEFAULTS: Mapping[str, Any] = MappingProxyType({"temperature": 0.8, "top_k": 40, "top_p": 0.9})
RANDOM_SEED = -1

_LOADING_OPTIONS = (
    "draft_num_predict",
    "embedding_only",
    "f16_kv",
    "logits_all",
    "low_vram",
    "main_gpu",
    "num_batch",
    "num_gpu",
    "num_thread",
    "numa",
    "use_mlock",
    "use_mmap",
    "vocab_only",
)
_LOADING = "the model is loaded when the server starts, with the keys of its serving.properties"
_CONTEXT = "the model and option.max_model_len determine the context length, and nothing is cut from the context"
_MIROSTAT = "no backend has this sampler"
# Options without effect: the "off" value is accepted silently, any other is reported as ignored.
WITHOUT_EFFECT: Mapping[str, tuple[str, tuple[object, ...]]] = MappingProxyType(
    {
        "num_ctx": (_CONTEXT, ()),
        "num_keep": (_CONTEXT, (0,)),
        "repeat_last_n": ("repeat_penalty applies to the whole text", (-1,)),
        "penalize_newline": ("penalties apply to all tokens", (True,)),
        "mirostat": (_MIROSTAT, (0,)),
        "mirostat_tau": (_MIROSTAT, (5,)),
        "mirostat_eta": (_MIROSTAT, (0.1,)),
        "tfs_z": (_MIROSTAT, (1,)),
        **dict.fromkeys(_LOADING_OPTIONS, (_LOADING, ())),
    }
)


@with_parameters(NAMES)
class OllamaOptions(TolerantPayload):
    """Ollama's parameters of sampling; the backend checks the bounds that are not declared here."""

    num_predict: int | None = Field(
        None,
        ge=-2,
        description="The maximum number of tokens to generate; -1, -2 and 0 mean as many as fit. Default: -1.",
    )
    temperature: float | None = Field(None, description="Sampling temperature; 0 means greedy decoding. Default: 0.8.")
    top_k: int | None = Field(None, description="Sample from the k most likely tokens; 0 means all. Default: 40.")
    top_p: float | None = Field(None, description="Top-p sampling: the probability mass to keep. Default: 0.9.")
    seed: int | None = Field(
        None, description="Seed of the random choices: the same seed gives the same text; -1 means random. Default: -1."
    )
    stop: str | list[str] | None = Field(None, description="A string, or several, that end the generation.")

    def parameters(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Return LMI's parameters, and the client's name of each."""
        given = {**DEFAULTS, **self.model_dump(exclude_none=True)}
        if given.get("num_predict", 0) <= 0:
            given.pop("num_predict", None)
        if "stop" in given:
            texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
            given["stop"] = [text for text in texts if text] or None
        if (seed := given.get("seed")) is not None:
            given["seed"] = None if seed == RANDOM_SEED else seed % SEEDS
        parameters, spellings = translate(given, NAMES)
        parameters["do_sample"] = given["temperature"] > 0
        return parameters, {name: f"options.{spelling}" for name, spelling in spellings.items()}


def take_own_options(body: Mapping[str, Any], model: ServedModel) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Split the backend's own parameters from the body's `options`."""
    options = body.get("options")
    if not isinstance(options, dict):
        return body, {}
    rest, own = take_own(options, model, OllamaOptions)
    return {**body, "options": rest}, own


def without_effect(given: Mapping[str, Any], strict: bool) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """Return the effective options, and the names of others to report.

    Raise InvalidPayload for one of these if strict.
    """
    kept = {name: value for name, value in given.items() if name not in WITHOUT_EFFECT}
    told = tuple(name for name in given.keys() - kept.keys() if not _is_off(name, given[name]))
    for name in sorted(told) if strict else ():
        reason, _ = WITHOUT_EFFECT[name]
        raise InvalidPayload(f"`options.{name}` has no effect: {reason}. option.strict_parameters refuses it")
    return kept, tuple(sorted(told))


def _is_off(name: str, value: object) -> bool:
    _, off = WITHOUT_EFFECT[name]
    return value is None or any(value == each and isinstance(value, bool) == isinstance(each, bool) for each in off)
