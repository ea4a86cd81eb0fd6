"""`HuggingFaceService` and `handle`, over the backend of option.rolling_batch; `StopWord`."""

import inspect
import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from djl_python.input_parser import ParsedInput, parse_input_with_formatter
from djl_python.properties_manager.properties import Properties, is_rolling_batch_enabled, is_streaming_enabled
from djl_python.services.model_engine import ModelEngine, model_files
from djl_python.services.parsed_batch import BatchItem, ParsedBatch, generation_request, new_formatter, read_batch
from djl_python.services.rolling_answers import RollingAnswer, RollingAnswers
from djl_python.utils import InputFormatConfigs, StopWord
from lmi_core.decorators import INPUT_MARK, OUTPUT_MARK
from lmi_core.errors import LmiError
from lmi_core.generation.request import ValidRequest
from lmi_core.script.djl_names.encode_decode import encode
from lmi_core.script.djl_names.inputs import Input
from lmi_core.script.djl_names.outputs import Output

__all__ = ["HuggingFaceService", "StopWord", "handle", "register_adapter", "unregister_adapter", "update_adapter"]

logger = logging.getLogger(__name__)

JSON = "application/json"
CSV = "text/csv"


class HuggingFaceService:
    """A service that generates with the backend that the model's properties choose, in this process.

    `initialize` loads the model and `inference` answers a function's inputs: with a rolling batch, a piece of each
    answer per call; otherwise whole answers, or a stream. Files can replace `parse_input` to read their own bodies.
    """

    default_rolling_batch: ClassVar[str] = "disable"

    def __init__(self) -> None:
        self.initialized = False
        self.engine: ModelEngine | None = None
        self.hf_configs = Properties()
        self.tokenizer: Any = None
        self.rolling_batch: RollingAnswers | None = None
        self.adapter_registry: dict[str, Any] = {}
        self.adapters: Any = None
        self.peft_config: Any = None
        self.stopping_criteria_list: Any = None
        self.input_format_args: dict[str, Any] = {}
        self.input_format_configs: InputFormatConfigs | None = None
        self._model: Any = None

    def initialize(self, properties: Mapping[str, Any]) -> None:
        """Load the model. Raise ConfigurationError if it cannot be loaded."""
        given = {"rolling_batch": self.default_rolling_batch, **properties}
        self.engine = ModelEngine(given)
        own = own_formatters(self.engine.directory)
        self.hf_configs = Properties.model_validate({**own, **given})
        self.engine.start()
        self.tokenizer = self.engine.pretrained
        if is_rolling_batch_enabled(self.hf_configs.rolling_batch):
            self.rolling_batch = RollingAnswers(self.engine)
        self.adapter_registry |= dict.fromkeys(self.engine.backend.adapters)
        self.input_format_args = self.get_input_format_args()
        self.input_format_configs = InputFormatConfigs(
            self.rolling_batch is not None, True, self.hf_configs.output_formatter, self.tokenizer
        )
        self.initialized = True

    def inference(self, inputs: Input) -> Output:
        """Answer the inputs; an invalid request's answer is its error."""
        if self.rolling_batch is not None:
            return self._rolling(inputs, self.rolling_batch)
        batch = self._read(inputs)
        for item in batch:
            self._validate(item)
        if len(batch) == sum(item.error is not None for item in batch):
            return Output().error("; ".join(str(item.error) for item in batch))
        if is_streaming_enabled(self.hf_configs.enable_streaming):
            return self._stream(batch)
        return self._whole(batch)

    def parse_input(self, inputs: Input, tokenizer: Any = None, output_formatter: Any = None) -> ParsedBatch:
        """Return `(input_data, input_size, parameters, errors, batch)`, with the parameters of each prompt."""
        return _flat(parse_input_with_formatter(inputs, **self.get_input_format_args()))

    def get_input_format_args(self) -> dict[str, Any]:
        """Return the keyword arguments of an input formatter."""
        return {
            "configs": self.hf_configs,
            "tokenizer": self.tokenizer,
            "adapter_registry": self.adapter_registry,
            "model_config": None,
            "peft_config": None,
            "rolling_batch": self.rolling_batch,
        }

    def hf_pipeline(self, inputs: str | Sequence[str], **parameters: Any) -> list[dict[str, str]]:
        """Return an object with `generated_text` for each prompt: the prompt and its continuation."""
        prompts = [inputs] if isinstance(inputs, str) else list(inputs)
        engine = self._require_engine()
        requests = [generation_request(prompt, parameters, engine.backend) for prompt in prompts]
        valid = [engine.valid(request, str(index)) for index, request in enumerate(requests)]
        return [{"generated_text": text} for text in texts_after_prompts(engine, valid)]

    @property
    def model(self) -> Any:
        """The model as a transformers object, loaded on first use in addition to the engine's own."""
        if self._model is None and self.engine is not None:
            from transformers import AutoModelForCausalLM

            properties = self.engine.backend.setup.properties
            logger.warning(
                "the model function uses the transformers model itself, which is loaded in addition to the engine's"
            )
            self._model = AutoModelForCausalLM.from_pretrained(
                model_files(self.engine),
                revision=properties.revision,
                trust_remote_code=properties.trust_remote_code,
                use_safetensors=None if properties.allow_pickle else True,
            )
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        self._model = model

    @property
    def model_config(self) -> Any:
        """The model's configuration as a transformers object."""
        from transformers import AutoConfig

        return AutoConfig.from_pretrained(model_files(self._require_engine()))

    def add_lora(self, lora_name: str, lora_alias: str, lora_path: str) -> None:
        """Load a LoRA adapter. Raise InvalidAdapter if it cannot be loaded."""
        engine = self._require_engine()
        engine.run(engine.backend.load_adapter(lora_alias or lora_name, Path(lora_path)))

    def remove_lora(self, lora_name: str, lora_alias: str = "") -> None:
        """Unload a LoRA adapter. Raise AdapterNotFound for an unknown name."""
        engine = self._require_engine()
        engine.run(engine.backend.unload_adapter(lora_alias or lora_name))

    @staticmethod
    def parse_stop_sequence_input(stop_sequence: str) -> list[str]:
        """Return the texts in `option.stop_sequence`, which is written as a list."""
        if not (stop_sequence.startswith("[") and stop_sequence.endswith("]")):
            raise ValueError(f'option.stop_sequence must be a list, ["a", "b"]. Given: {stop_sequence}')
        return [each.strip()[1:-1] for each in stop_sequence[1:-1].split(",") if each.strip()]

    def _require_engine(self) -> ModelEngine:
        if self.engine is None:
            raise RuntimeError("the service is not initialized: call initialize(inputs.get_properties()) first")
        return self.engine

    def _read(self, inputs: Input) -> list[BatchItem]:
        takes = len(inspect.signature(self.parse_input).parameters)
        arguments = (inputs, self.tokenizer, self.hf_configs.output_formatter)[:takes]
        return read_batch(self.parse_input(*arguments), inputs)

    def _validate(self, item: BatchItem) -> None:
        """Create the item's requests, or set its error."""
        engine = self._require_engine()
        if item.error is not None:
            return
        stops = getattr(self.hf_configs, "stop_sequence", None)
        defaults = {"stop_sequences": self.parse_stop_sequence_input(stops)} if stops else {}
        try:
            for index, prompt in enumerate(item.prompts):
                parameters = defaults | item.parameters[index]
                request = generation_request(prompt, parameters, engine.backend)
                item.requests.append(engine.valid(request, f"{item.request_id}-{index}"))
        except (LmiError, ValueError) as error:
            item.error = str(error)

    def _whole(self, batch: list[BatchItem]) -> Output:
        engine = self._require_engine()
        texts = iter(
            texts_after_prompts(engine, [request for item in batch if item.error is None for request in item.requests])
        )
        output = Output()
        for index, item in enumerate(batch):
            key = f"batch_{index:03}.data" if len(batch) > 1 else "data"
            accept = CSV if CSV in (item.inputs.get_property("Accept") or "") else JSON
            answer: Any = [{"generated_text": next(texts)} for _ in item.requests] if item.error is None else None
            if answer is None:
                answer, accept = {"code": 424, "message": "prediction failure", "error": item.error}, JSON
            encode(output, answer, accept, key=key)
        return output

    def _stream(self, batch: list[BatchItem]) -> Output:
        if len(batch) > 1:
            return Output().error("streaming requires batch_size=1")
        (item,) = batch
        output = Output().add_property("content-type", "application/jsonlines")
        return output.add_stream_content(text_steps(self._require_engine(), item.requests))

    def _rolling(self, inputs: Input, rolling: RollingAnswers) -> Output:
        """Continue the running requests, which come first, and start the others."""
        if inputs.get_property("reset_rollingbatch"):
            rolling.reset()
        running = rolling.active[: inputs.get_batch_size()]
        new = inputs.get_batches()[len(running) :]
        begun = [self._begin(item, rolling) for each in new for item in self._read(each)]
        return rolling.advance([*running, *begun])

    def _begin(self, item: BatchItem, rolling: RollingAnswers) -> RollingAnswer | str:
        engine = self._require_engine()
        self._validate(item)
        if item.error is None and len(item.requests) != 1:
            item.error = f"with rolling batch `inputs` must be one prompt. Given: {len(item.requests)}"
        if item.error is not None:
            return item.error
        try:
            return rolling.begin(item.requests[0], new_formatter(engine, item, self.hf_configs))
        except LmiError as error:
            return error.message


def _flat(parsed: ParsedInput) -> ParsedBatch:
    data: list[Any] = []
    sizes: list[int] = []
    parameters: list[dict[str, Any]] = []
    requests = iter(parsed.requests)
    for index in range(len(parsed.batch)):
        if index in parsed.errors:
            sizes.append(0)
            continue
        request = next(requests)
        prompts = request.input_text if isinstance(request.input_text, list) else [request.input_text]
        adapters = request.adapter if isinstance(request.adapter, list) else [request.adapter] * len(prompts)
        data += prompts
        sizes.append(len(prompts))
        parameters += [
            request.parameters | {"adapters": adapter, "request_input": request.request_input}
            for adapter in adapters[: len(prompts)]
        ]
    return data, sizes, parameters, parsed.errors, parsed.batch


def texts_after_prompts(engine: ModelEngine, requests: Sequence[ValidRequest]) -> list[str]:
    """Return the text generated for each prompt, after the prompt unless `return_full_text` is false."""
    if not requests:
        return []
    output = engine.whole(requests)
    texts = []
    for index, request in enumerate(requests):
        (best,) = output.best_sequences(1, index)
        parameters = request.parameters
        whole = parameters.return_full_text or "return_full_text" not in parameters.model_fields_set
        texts.append(request.prompt + best.text if whole else best.text)
    return texts


def text_steps(engine: ModelEngine, requests: Sequence[ValidRequest]) -> Iterator[list[str]]:
    """Yield each prompt's new text in each step of the batch; "" after its end."""
    running = set(range(len(requests)))
    gained: dict[int, str] = {}
    for step in engine.steps(requests):
        if step.prompt_index in gained:
            yield [gained.get(index, "") for index in range(len(requests))]
            gained.clear()
        gained[step.prompt_index] = "".join([token.text for token in step.tokens])
        if step.finish_reason is not None:
            running.discard(step.prompt_index)
        if not running - gained.keys():
            yield [gained.get(index, "") for index in range(len(requests))]
            gained.clear()


def own_formatters(directory: Path) -> dict[str, Callable[..., Any]]:
    """Return the decorated formatters of the directory's imported files, by the property that selects each."""
    found: dict[str, Callable[..., Any]] = {}
    for module in _modules(directory.resolve()):
        for value in vars(module).values():
            if not callable(value) or isinstance(value, type):
                continue
            for mark, name in ((INPUT_MARK, "input_formatter"), (OUTPUT_MARK, "output_formatter")):
                if getattr(value, mark, None):
                    found.setdefault(name, value)
    return found


def _modules(directory: Path) -> Iterator[ModuleType]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).parent == directory:
            yield module


class ServiceFunctions:
    """The functions of a script's module, over one service that the first call initializes."""

    def __init__(self, service: HuggingFaceService) -> None:
        self.service = service

    def handle(self, inputs: Input) -> Output | None:
        """Load the model on the call without content, and answer other calls."""
        if not self.service.initialized:
            self.service.initialize(inputs.get_properties())
        return None if inputs.is_empty() else self.service.inference(inputs)

    def register_adapter(self, inputs: Input) -> Output:
        """Load the adapter `name` from the folder `src`. Raise ValueError or InvalidAdapter if this fails."""
        name, folder = inputs.get_property("name"), inputs.get_property("src")
        if not name or not folder or not Path(folder).is_dir():
            raise ValueError(f"an adapter needs a `name` and a folder as `src`. Given: {name!r}, {folder!r}")
        self.service.add_lora(name, name, folder)
        self.service.adapter_registry[name] = inputs
        return Output()

    def update_adapter(self, inputs: Input) -> Output:
        """Load the adapter `name` again, from the folder `src`."""
        return self.register_adapter(inputs)

    def unregister_adapter(self, inputs: Input) -> Output:
        """Unload the adapter `name`. Raise AdapterNotFound for an unknown name."""
        name = inputs.get_property("name") or ""
        self.service.remove_lora(name)
        self.service.adapter_registry.pop(name, None)
        return Output()


_functions = ServiceFunctions(HuggingFaceService())
_service = _functions.service
handle = _functions.handle
register_adapter = _functions.register_adapter
update_adapter = _functions.update_adapter
unregister_adapter = _functions.unregister_adapter
