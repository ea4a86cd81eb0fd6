"""Declarations of the environment variables of SageMaker and of DJLServing's containers.

Other modules declare `OPTION_*` and short names of options such as `HF_MODEL_ID` (with the options), and `SERVING_*`
(`server_keys.py` for config.properties, and the server keys of serving.properties).
"""

from lmi_handlers.container.declarations import Declared, honoured, ignored, noted, refused

BIND_TO_PORT = "SAGEMAKER_BIND_TO_PORT"
BASE_DIRECTORY = "SAGEMAKER_BASE_DIR"
MODEL_SERVER_HOME = "MODEL_SERVER_HOME"
MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"

JVM = "this server has no JVM"
LOG_LEVEL = f"{JVM}; --log-level sets the lowest level of messages to log"
CACHES = (
    "HF_HOME sets the folder of models from the Hugging Face hub, and LMI_CACHE the folder of models from S3 and of "
    "virtual environments"
)
CACHED_ANSWERS = "answers are not cached"
ONE_MACHINE = "a server runs on one machine"
OTHER_TOOLKIT = "SageMaker's Python inference toolkit reads it, DJLServing does not: option.entryPoint names a script"
TGI_LENGTHS = "it is for Text Generation Inference; option.max_model_len bounds prompt and answer together"
BATCH = "it describes a batch transform, whose requests arrive one by one like any other"
NEO = "SageMaker Neo compiles models ahead of time, which this server does not support: serve the original model"

VARIABLES: tuple[Declared, ...] = (
    # SageMaker
    honoured(BIND_TO_PORT, "The port to listen on; it also makes 0.0.0.0 the default address."),
    honoured(BASE_DIRECTORY, "The parent folder of `model`, the default model directory; overrides `/opt/ml`."),
    honoured(
        "SAGEMAKER_NUM_MODEL_WORKERS", "The number of processes that run a model function.", "minWorkers", "maxWorkers"
    ),
    honoured(
        "SAGEMAKER_STARTUP_TIMEOUT", "Maximum time for loading a model, in seconds.", "option.model_loading_timeout"
    ),
    honoured(
        "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS",
        "Maximum time for a whole answer, in seconds.",
        "option.predict_timeout",
    ),
    honoured("SAGEMAKER_MAX_REQUEST_SIZE", "Maximum size of a request body, in bytes.", "max_request_size"),
    honoured(
        "SAGEMAKER_MAX_PAYLOAD_IN_MB",
        "Maximum size of a request body, in mebibytes; 0 means the default.",
        "max_request_size",
        factor=1024 * 1024,
    ),
    honoured(MULTI_MODEL, "`true` starts the server even if there are no models: SageMaker's requests load them."),
    noted("SAGEMAKER_SAFE_PORT_RANGE", "the server opens one port; VLLM_PORT is the first of vLLM's own ports"),
    refused("SAGEMAKER_SECURE_MODE", "the checks that it asks for are not supported", "false"),
    noted("SAGEMAKER_TRUSTED_CHANNELS", "it belongs to SAGEMAKER_SECURE_MODE"),
    noted("SAGEMAKER_UNTRUSTED_CHANNELS", "it belongs to SAGEMAKER_SECURE_MODE"),
    noted("SAGEMAKER_SECURITY_CONTROLS", "it belongs to SAGEMAKER_SECURE_MODE"),
    noted("SAGEMAKER_BATCH", BATCH),
    noted("SAGEMAKER_BATCH_STRATEGY", BATCH),
    noted("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", BATCH),
    noted("SAGEMAKER_REGION", "it names the region of the container"),
    noted("SAGEMAKER_ENV", "it marks containers that SageMaker runs"),
    ignored("SAGEMAKER_CONTAINER_LOG_LEVEL", "--log-level sets the lowest level of messages to log"),
    ignored("SAGEMAKER_PROGRAM", OTHER_TOOLKIT),
    ignored("SAGEMAKER_SUBMIT_DIRECTORY", OTHER_TOOLKIT),
    ignored("SAGEMAKER_MODEL_SERVER_WORKERS", "DJLServing reads SAGEMAKER_NUM_MODEL_WORKERS instead", "1"),
    ignored("SAGEMAKER_MODEL_SERVER_TIMEOUT", "DJLServing reads SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS instead"),
    ignored(
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
        "it is for scikit-learn and XGBoost; option.output_formatter is for text",
    ),
    refused("SM_NEO_EXECUTION_CONTEXT", NEO),
    # DJLServing
    honoured(MODEL_SERVER_HOME, "The folder of `conf/config.properties` or `config.properties`."),
    honoured("DJL_ENTRY_POINT", "The model's Python file, or a built-in module of LMI.", "option.entryPoint"),
    noted("SERVING_FAIL_FAST", "the server always exits when no model is left; see retry_threshold"),
    noted("SERVING_FEATURES", "it lists the contents of an image; option.rolling_batch=auto detects them"),
    ignored("SERVING_OPTS", LOG_LEVEL),
    ignored("DEFAULT_JVM_OPTS", LOG_LEVEL),
    noted("JAVA_OPTS", JVM),
    noted("JAVA_HOME", JVM),
    honoured("SERVING_DOWNLOAD_DIR", "The folder for downloads from S3; `default` means the default folder."),
    honoured("SERVING_LOG_FORMAT", "The form of log lines, `text` or `json`; `--log-format` sets it."),
    honoured("SERVING_ACCESS_LOG", "`false` turns off the access log; `--no-access-log` sets it."),
    honoured(
        "SERVING_DRAIN_TIMEOUT", "Time for requests to finish after SIGTERM, in seconds; `--drain-seconds` sets it."
    ),
    ignored("DJL_CACHE_DIR", CACHES),
    ignored("ENGINE_CACHE_DIR", CACHES),
    ignored("DJL_VENV_DIR", CACHES),
    ignored("DJL_OFFLINE", "set HF_HUB_OFFLINE=1 to disable access to the Hugging Face hub", "false"),
    ignored("DJL_DEFAULT_ENGINE", "option.rolling_batch chooses the engine", "python"),
    ignored("PYTHON_EXECUTABLE", "a model's code runs in the server's Python; see option.enable_venv"),
    ignored("SERVING_ROLLING_BATCH_BUFFER", "option.max_stream_delay bounds the delay of the stream"),
    ignored("SERVING_CACHE_BATCH", CACHED_ANSWERS),
    ignored("SERVING_DDB_CACHE", CACHED_ANSWERS, "false"),
    ignored("SERVING_DDB_TABLE_NAME", CACHED_ANSWERS),
    ignored("SERVING_S3_CACHE", CACHED_ANSWERS, "false"),
    ignored("DJL_CLUSTER_SIZE", ONE_MACHINE, "1"),
    ignored("DJL_LEADER_ADDR", ONE_MACHINE),
    ignored("DJL_WORKER_ADDR_FORMAT", ONE_MACHINE),
    noted("NO_OMP_NUM_THREADS", "OMP_NUM_THREADS is not changed"),
    noted("OPT_OUT_TRACKING", "there is no tracking"),
    # Variables of other containers, often left over on endpoints that used them before
    noted("MODEL_CACHE_ROOT", "SageMaker JumpStart sets it for other containers"),
    noted("ENDPOINT_SERVER_TIMEOUT", "SageMaker JumpStart sets it for other containers"),
    ignored("ENABLE_CUDA_GRAPHS", "option.enforce_eager=true turns CUDA graphs off", "true", "1"),
    ignored("MAX_INPUT_LENGTH", TGI_LENGTHS),
    ignored("MAX_INPUT_TOKENS", TGI_LENGTHS),
    ignored("MAX_TOTAL_TOKENS", TGI_LENGTHS),
    ignored("MAX_BATCH_TOTAL_TOKENS", "the engine determines how many tokens fit in its memory"),
)
