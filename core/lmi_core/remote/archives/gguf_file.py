"""Conversion of a GGUF file, llama.cpp's format, into a model directory, as transformers reads it.

Weights become bfloat16. The engine quantizes the weights again, to the nearest type that it has, as set in
serving.properties.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lmi_core.errors import ConfigurationError
from lmi_core.errors.sizes import readable
from lmi_core.remote.report import Report
from lmi_core.remote.space import check_space

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

BYTES = 2  # per weight in bfloat16
ENDS = ("eos", "eot", "eom")  # kinds of end-of-answer tokens in the metadata
QUANTIZED = re.compile(r"Q(\d)")  # in the names of llama.cpp's types, such as Q4_K_M and IQ3_XS
INT8_FROM = 5  # bits
# Llama 3.1's scaling of positions; the file contains only the resulting factor of each frequency.
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
SCALINGS = {"linear": ("factor",), "yarn": ("factor", "original_context_length")}


def convert(file: Path, folder: Path, report: Report) -> None:
    """Write the model directory of a GGUF file into a new folder. Raise ConfigurationError if this fails."""
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        metadata = Metadata(reader)
    except (ValueError, KeyError, IndexError, OverflowError) as error:
        raise ConfigurationError(f"this is not a GGUF file, or it is damaged: {error}") from None
    if metadata.get("split.count", 1) > 1:
        raise ConfigurationError("this is one of several parts: join them with llama.cpp's llama-gguf-split --merge")
    folder.mkdir(parents=True)
    size = BYTES * sum(int(tensor.n_elements) for tensor in reader.tensors)
    check_space(file.name, folder, size)
    report.begin(file.stat().st_size, 0, 0, folder, unpacks=True)
    try:
        _write(file, folder, metadata)
    except Exception as error:  # unsupported architectures and tokenizers raise exceptions of many kinds
        if isinstance(error, ConfigurationError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        raise ConfigurationError(f"transformers cannot read the model: {' '.join(str(error).split())}") from error
    quantization = metadata.quantization
    (folder / "serving.properties").write_text(f"option.quantize={quantization}\n" if quantization else "")
    report.note(
        f"{file.name}: its weights ({metadata.type_name}) become bfloat16, which takes {readable(size)} of memory"
        + (f", or {quantization} if the engine supports it (option.quantize)" if quantization else "")
    )


class Metadata:
    """The facts about a model in its GGUF file."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self.architecture = str(self.get("general.architecture"))

    def get(self, key: str, default: Any = None) -> Any:
        field = self._reader.get_field(key)
        return default if field is None else field.contents()

    @property
    def type_name(self) -> str:
        """llama.cpp's name for the type of most weights."""
        from gguf import LlamaFileType

        number = self.get("general.file_type")
        with suppress(ValueError):
            return LlamaFileType(number).name.removeprefix("MOSTLY_")
        return f"type {number}"

    @property
    def quantization(self) -> str | None:
        """The nearest value of option.quantize; None for weights that are not quantized."""
        match = QUANTIZED.search(self.type_name)
        return None if match is None else "int8" if int(match[1]) >= INT8_FROM else "int4"

    def rope(self, theta: float) -> dict[str, Any] | None:
        """Return the scaling of positions in transformers' form, which transformers itself would omit; None without
        one.

        Raise ConfigurationError if the scaling is unknown, because answers would be wrong.
        """
        factors = next((each.data for each in self._reader.tensors if each.name == "rope_freqs.weight"), None)
        if factors is not None:
            return self._llama3(theta, [float(each) for each in factors])
        kind = self.get(f"{self.architecture}.rope.scaling.type", "none")
        if kind == "none":
            return None
        values = {key: self.get(f"{self.architecture}.rope.scaling.{key}") for key in SCALINGS.get(kind, ())}
        if not values or None in values.values():
            raise ConfigurationError(f"its scaling of positions, {kind}, is not supported")
        renamed = {"original_max_position_embeddings": values.pop("original_context_length")} if kind == "yarn" else {}
        return {"rope_type": kind, "rope_theta": theta, **values, **renamed}

    def _llama3(self, theta: float, factors: list[float]) -> dict[str, Any]:
        from transformers import LlamaConfig
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

        size = 2 * len(factors)
        found = {"rope_type": "llama3", "rope_theta": theta, "factor": max(factors), **LLAMA3}
        config = LlamaConfig(head_dim=size, rope_parameters=found)
        scaled, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
        for place, (factor, frequency) in enumerate(zip(factors, scaled.tolist(), strict=True)):
            if abs(frequency * factor * theta ** (2 * place / size) - 1) > 1e-3:
                raise ConfigurationError("its scaling of positions is neither Llama 3.1's nor a known one")
        return found


def _write(file: Path, folder: Path, metadata: Metadata) -> None:
    import torch
    import transformers

    of_file = {"gguf_file": file.name}
    config: PreTrainedConfig = transformers.AutoConfig.from_pretrained(file.parent, **of_file)
    parameters = getattr(config, "rope_parameters", None) or {}
    if parameters.get("rope_type", "default") == "default" and (
        scaled := metadata.rope(parameters.get("rope_theta", 10000.0))
    ):
        config.rope_parameters = scaled
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(file.parent, **of_file)
    has_bos = metadata.get("tokenizer.ggml.bos_token_id") is not None
    by_default = metadata.get("tokenizer.ggml.model") == "llama"
    if has_bos and metadata.get("tokenizer.ggml.add_bos_token", by_default):  # transformers does not read it
        tokenizer.add_bos_token = True
    tokenizer.save_pretrained(folder)
    whole = getattr(transformers, "GgufConfig", None)  # earlier versions have none, and read weights like this anyway
    quantized = {} if whole is None else {"quantization_config": whole(dequantize=True)}
    with _without_accelerate(vars(transformers.modeling_utils)):
        model = transformers.AutoModelForCausalLM.from_pretrained(
            file.parent, config=config, dtype=torch.bfloat16, **of_file, **quantized
        )
    ends = (metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ENDS)
    if found := sorted({int(each) for each in ends if each is not None}):
        model.generation_config.eos_token_id = found
    model.save_pretrained(folder)


@contextmanager
def _without_accelerate(loading: dict[str, Any]) -> Iterator[None]:
    """Let transformers read a GGUF file without a library that it requires but does not use; importing that would slow
    down every start.
    """
    name = "is_accelerate_available"
    before = loading[name]
    loading[name] = lambda: True
    try:
        yield
    finally:
        loading[name] = before
