"""The modules of DJLServing's Python package that exist here, and the reasons for missing ones."""

from collections.abc import Mapping

PACKAGE = "djl_python"

_HUGGINGFACE = "import it from djl_python.huggingface, which generates with the backend of option.rolling_batch"
_WITHOUT = "remove the import, and the `handle` function with it: the server does this automatically"
_BACKEND = "schedulers are backends: choose one with option.rolling_batch, or write one (docs/how_to/plugins.md)"
_PROPERTIES = "use inputs.get_properties(), or djl_python.properties_manager.properties"
_NEURON = "AWS Neuron devices are not supported"
_PREDICTIVE = "load the model in an @init_handler and answer in a @prediction_handler (docs/reference/djl_python.md)"
_IMAGES = "this server generates text, not images"

# The contents of the modules that exist here, described in words.
PRESENT_MODULES: Mapping[str, str] = {
    "djl_python": "`Input`, `Output`, `PairList`, `Session`, `SessionManager`",
    "djl_python.async_utils": "outputs of asynchronous model functions",
    "djl_python.chat_completions": "the two modules below",
    "djl_python.chat_completions.chat_properties": "`ChatProperties`: a chat's body; `Message`",
    "djl_python.chat_completions.chat_utils": "turns a chat's messages into a prompt with the tokenizer's chat "
    "template",
    "djl_python.encode_decode": "converts content types to and from Python objects",
    "djl_python.huggingface": "`HuggingFaceService` and `handle`, over the backend of option.rolling_batch; `StopWord`",
    "djl_python.input_parser": "`@input_formatter`, `@prediction_handler`, `@init_handler`; parsing of LMI's schema",
    "djl_python.inputs": "`Input`",
    "djl_python.np_util": "converts arrays to and from `tensor/ndlist`",
    "djl_python.output_formatter": "`@output_formatter`, the types that an output formatter receives, "
    "and LMI's own formatters",
    "djl_python.outputs": "`Output`",
    "djl_python.pair_list": "`PairList`",
    "djl_python.properties_manager": "the two modules below",
    "djl_python.properties_manager.hf_properties": "`HuggingFaceProperties`: the properties that this server reads",
    "djl_python.properties_manager.properties": "`Properties`, and the values of `rolling_batch` and "
    "`enable_streaming`",
    "djl_python.request": "`Request`: the requests of a `ParsedInput`",
    "djl_python.request_io": "the types that formatters receive and return",
    "djl_python.session_manager": "`Session`, `SessionManager`",
    "djl_python.streaming_utils": "`StreamingUtils`, over transformers' own generation",
    "djl_python.tensorrt_llm": "`TRTLLMService` and `handle`, over the backend `trtllm`",
    "djl_python.test_model": "`TestHandler`: a model function without a server; also `python -m djl_python.test_model`",
    "djl_python.utils": "small helpers",
}

# Why a module does not exist here, and what to do instead; a package's reason covers its modules.
MISSING_MODULES: Mapping[str, str] = {
    "djl_python.adapter_custom_code_manager": f"adapters with a model.py are loaded by the server: {_WITHOUT}",
    "djl_python.adapter_formatter_mixin": f"adapters with a model.py are loaded by the server: {_WITHOUT}",
    "djl_python.adapter_manager_mixin": f"adapters are managed by the server: {_WITHOUT}",
    "djl_python.arg_parser": "the server starts model functions itself; `python -m djl_python.test_model` calls one "
    "without a server",
    "djl_python.aws": "nothing is sent to CloudWatch; log_request_metric=true logs each request's figures",
    "djl_python.bedrock": "Bedrock's schema is not supported; LMI's, OpenAI's and TGI's are",
    "djl_python.chat_completions.vllm_chat_properties": "it was for vLLM; import "
    "djl_python.chat_completions.chat_utils",
    "djl_python.chat_completions.vllm_chat_utils": "it was for vLLM; import djl_python.chat_completions.chat_utils",
    "djl_python.custom_formatter_handling": f"formatters in model.py are found by the server: {_WITHOUT}",
    "djl_python.custom_handler_service": f"a `handle` function in model.py is found by the server: {_WITHOUT}",
    "djl_python.deepspeed": f"LMI itself dropped DeepSpeed after v0.27; instead of DeepSpeedService {_HUGGINGFACE}",
    "djl_python.download_util": "set option.model_id to the model's id or path: the server downloads it",
    "djl_python.fastertransformer": f"LMI itself dropped FasterTransformer; instead of its service {_HUGGINGFACE}",
    "djl_python.huggingface_dynamic_batch": "it has become HuggingFaceService: import that from djl_python.huggingface",
    "djl_python.huggingface_rolling_batch": "it has become HuggingFaceService: import that from djl_python.huggingface",
    "djl_python.import_utils": "it imports the packages of scikit-learn and XGBoost; import those directly",
    "djl_python.lmcache_utils": "LMCache works with vLLM: use option.kv_transfer_config with option.rolling_batch=vllm",
    "djl_python.lmi_trtllm": f"option.rolling_batch=trtllm replaces it: {_WITHOUT}",
    "djl_python.lmi_vllm": f"option.rolling_batch=vllm replaces it: {_WITHOUT}",
    "djl_python.multimodal": "the server reads images itself, on its chat routes; a `handle` function has get_as_image",
    "djl_python.neuron_utils": f"{_NEURON}; serve the model with option.rolling_batch=vllm or torch",
    "djl_python.partition": "models are loaded without partitioning beforehand",
    "djl_python.properties_manager.ds_properties": f"it was for DeepSpeed; {_PROPERTIES}",
    "djl_python.properties_manager.lmi_dist_rb_properties": f"it was for LMI-Dist; {_PROPERTIES}",
    "djl_python.properties_manager.lmi_dist_v2_rb_properties": f"it was for LMI-Dist; {_PROPERTIES}",
    "djl_python.properties_manager.scheduler_rb_properties": f"it was for the scheduler; {_PROPERTIES}",
    "djl_python.properties_manager.sd_inf2_properties": f"{_IMAGES}; {_PROPERTIES}",
    "djl_python.properties_manager.tnx_properties": f"{_NEURON}; {_PROPERTIES}",
    "djl_python.properties_manager.trt_properties": f"it was for TensorRT-LLM; {_PROPERTIES}",
    "djl_python.properties_manager.vllm_rb_properties": f"it was for vLLM; {_PROPERTIES}",
    "djl_python.python_async_engine": "the server runs model functions itself; djl_python.test_model runs one "
    "without a server",
    "djl_python.python_sync_engine": "the server runs model functions itself; djl_python.test_model runs one "
    "without a server",
    "djl_python.rolling_batch": _BACKEND,
    "djl_python.sagemaker": "the server has SageMaker's routes built in (docs/reference/sagemaker.md); "
    "write a `handle` function",
    "djl_python.scheduler": _BACKEND,
    "djl_python.seq_scheduler": _BACKEND,
    "djl_python.service_loader": "files are loaded by the server; import the file itself, or use TestHandler",
    "djl_python.session_utils": "it was for vLLM's handler; djl_python.session_manager has SessionManager",
    "djl_python.sklearn_handler": _PREDICTIVE,
    "djl_python.sm_log_filter": "log lines are not redirected; set the level with lmi serve --log-level",
    "djl_python.stable-diffusion": _IMAGES,
    "djl_python.stable_diffusion": _IMAGES,
    "djl_python.stable_diffusion_inf2": _IMAGES,
    "djl_python.telemetry": "no telemetry is sent",
    "djl_python.tensorrt_llm_python": f"TensorRT-LLM's encoder-decoder models are not supported; {_HUGGINGFACE}",
    "djl_python.tests": "they test DJLServing itself",
    "djl_python.three_p": "Bedrock's schema is not supported; LMI's, OpenAI's and TGI's are",
    "djl_python.transformers_neuronx": f"{_NEURON}; instead of TransformersNeuronXService {_HUGGINGFACE}",
    "djl_python.transformers_neuronx_scheduler": f"{_NEURON}; {_BACKEND}",
    "djl_python.ts_service_loader": "TorchServe's archives are not supported; write a `handle` function in model.py",
    "djl_python.xgboost_handler": _PREDICTIVE,
}

# Engines of LMI's containers that model.py files import and that may be missing here.
MISSING_PACKAGES: Mapping[str, str] = {
    "deepspeed": "DeepSpeed is not part of this server; load the model with transformers, or with "
    "HuggingFaceService of djl_python.huggingface",
    "fastertransformer": "FasterTransformer is not part of this server; use HuggingFaceService of "
    "djl_python.huggingface",
    "lmi_dist": "LMI-Dist is not part of this server; option.rolling_batch=lmi-dist uses vLLM instead",
    "neuronxcc": _NEURON,
    "tensorrt_llm": "TensorRT-LLM is not part of this server; option.rolling_batch=trtllm accepts its requests, and "
    "djl_python.tensorrt_llm has TRTLLMService",
    "tensorrt_llm_toolkit": "TensorRT-LLM is not part of this server; djl_python.tensorrt_llm has TRTLLMService",
    "torch_neuronx": _NEURON,
    "transformers_neuronx": f"{_NEURON}; load the model with transformers, or with HuggingFaceService of"
    " djl_python.huggingface",
    "tritontoolkit": "TensorRT-LLM is not part of this server; djl_python.tensorrt_llm has TRTLLMService",
}


def why_missing(module: str) -> str | None:
    """Return why a module of DJLServing's package or an engine's package is missing; None for other packages."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if (reason := MISSING_MODULES.get(name) or MISSING_PACKAGES.get(name)) is not None:
            return reason
    return f"there is no such module. {PACKAGE} has: {_known()}" if parts[0] == PACKAGE else None


def _known() -> str:
    return ", ".join(name.removeprefix(f"{PACKAGE}.") for name in PRESENT_MODULES if name != PACKAGE)
