"""Declarations of the environment variables of SageMaker and of DJLServing's containers.

Other modules declare `OPTION_*` and short names of options such as `HF_MODEL_ID` (with the options), and `SERVING_*`
(`server_keys.py` for config.properties, and the server keys of serving.properties).
"""

from lmi_handlers.container.declarations import Declared, honoured, ignored, noted, refused

BIND_TO_PORT = "SAGEMAKER_BIND_TO_PORT"
BASE_DIRECTORY = "SAGEMAKER_BASE_DIR"
MODEL_SERVER_HOME = "MODEL_SERVER_HOME"
MULTI_MODEL = "SAGEMAKER_MULTI_MODEL"

JVM = "there is no JVM"
LOG_LEVEL = f"{JVM}; --log-level sets the least serious messages to log"
CACHES = (
    "models from the Hugging Face hub are kept where HF_HOME says, copies of models in S3 and environments of models"
    " where LMI_CACHE says"
)
CACHED_ANSWERS = "answers are not kept for later requests"
ONE_MACHINE = "a server runs on one machine"
OTHER_TOOLKIT = (
    "it is read by SageMaker's Python inference toolkit, not by DJLServing: option.entryPoint names a script"
)
TGI_LENGTHS = "it is for Text Generation Inference; option.max_model_len bounds prompt and answer together"
BATCH = "it describes a batch transform, whose requests come one by one like any"
NEO = "SageMaker Neo prepares models ahead of time, which is neither done nor needed here: serve the model itself"

VARIABLES: tuple[Declared, ...] = (
    # SageMaker
    honoured(BIND_TO_PORT, "The port to listen on; the host is 0.0.0.0 then, unless one is given."),
    honoured(BASE_DIRECTORY, "The folder that holds `model`, the place of the model, in place of `/opt/ml`."),
    honoured("SAGEMAKER_NUM_MODEL_WORKERS", "Processes of a model function.", "minWorkers", "maxWorkers"),
    honoured("SAGEMAKER_STARTUP_TIMEOUT", "Seconds that loading may take.", "option.model_loading_timeout"),
    honoured("SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS", "Seconds to wait for the next token.", "option.predict_timeout"),
    honoured("SAGEMAKER_MAX_REQUEST_SIZE", "Most bytes in the body of a request.", "max_request_size"),
    honoured(
        "SAGEMAKER_MAX_PAYLOAD_IN_MB",
        "The same in mebibytes; 0 leaves it as it is.",
        "max_request_size",
        factor=1024 * 1024,
    ),
    ignored(MULTI_MODEL, "models are those found at the start: requests cannot load and unload them", "false"),
    noted("SAGEMAKER_SAFE_PORT_RANGE", "the server opens one port; VLLM_PORT says where vLLM's own begin"),
    refused("SAGEMAKER_SECURE_MODE", "the checks that it asks for are not made here", "false"),
    noted("SAGEMAKER_TRUSTED_CHANNELS", "it belongs to SAGEMAKER_SECURE_MODE"),
    noted("SAGEMAKER_UNTRUSTED_CHANNELS", "it belongs to SAGEMAKER_SECURE_MODE"),
    noted("SAGEMAKER_SECURITY_CONTROLS", "it belongs to SAGEMAKER_SECURE_MODE"),
    noted("SAGEMAKER_BATCH", BATCH),
    noted("SAGEMAKER_BATCH_STRATEGY", BATCH),
    noted("SAGEMAKER_MAX_CONCURRENT_TRANSFORMS", BATCH),
    noted("SAGEMAKER_REGION", "it says where the container runs"),
    noted("SAGEMAKER_ENV", "it says that SageMaker runs the container"),
    ignored("SAGEMAKER_CONTAINER_LOG_LEVEL", "--log-level sets the least serious messages to log"),
    ignored("SAGEMAKER_PROGRAM", OTHER_TOOLKIT),
    ignored("SAGEMAKER_SUBMIT_DIRECTORY", OTHER_TOOLKIT),
    ignored("SAGEMAKER_MODEL_SERVER_WORKERS", "SAGEMAKER_NUM_MODEL_WORKERS is the one that DJLServing reads", "1"),
    ignored(
        "SAGEMAKER_MODEL_SERVER_TIMEOUT", "SAGEMAKER_MODEL_SERVER_TIMEOUT_SECONDS is the one that DJLServing reads"
    ),
    ignored(
        "SAGEMAKER_DEFAULT_INVOCATIONS_ACCEPT",
        "it is for scikit-learn and XGBoost; option.output_formatter is for text",
    ),
    refused("SM_NEO_EXECUTION_CONTEXT", NEO),
    # DJLServing
    honoured(MODEL_SERVER_HOME, "The folder whose `conf/config.properties` or `config.properties` is read."),
    honoured("DJL_ENTRY_POINT", "The model's Python file, or a built-in module of LMI.", "option.entryPoint"),
    noted("SERVING_FEATURES", "it tells what an image holds; option.rolling_batch=auto looks for itself"),
    ignored("SERVING_OPTS", LOG_LEVEL),
    ignored("DEFAULT_JVM_OPTS", LOG_LEVEL),
    noted("JAVA_OPTS", JVM),
    noted("JAVA_HOME", JVM),
    honoured("SERVING_DOWNLOAD_DIR", "The folder of what is downloaded from S3; `default` leaves it as it is."),
    ignored("DJL_CACHE_DIR", CACHES),
    ignored("ENGINE_CACHE_DIR", CACHES),
    ignored("DJL_VENV_DIR", CACHES),
    ignored("DJL_OFFLINE", "HF_HUB_OFFLINE=1 keeps the server from the Hugging Face hub", "false"),
    ignored("DJL_DEFAULT_ENGINE", "option.rolling_batch chooses the engine", "python"),
    ignored("PYTHON_EXECUTABLE", "a model's code runs in the Python that runs the server; see option.enable_venv"),
    ignored("SERVING_PROMETHEUS", "there is no route for Prometheus", "false"),
    ignored("SERVING_ROLLING_BATCH_BUFFER", "option.max_stream_delay says how long tokens gather"),
    ignored("SERVING_CACHE_BATCH", CACHED_ANSWERS),
    ignored("SERVING_DDB_CACHE", CACHED_ANSWERS, "false"),
    ignored("SERVING_DDB_TABLE_NAME", CACHED_ANSWERS),
    ignored("SERVING_S3_CACHE", CACHED_ANSWERS, "false"),
    ignored("DJL_CLUSTER_SIZE", ONE_MACHINE, "1"),
    ignored("DJL_LEADER_ADDR", ONE_MACHINE),
    ignored("DJL_WORKER_ADDR_FORMAT", ONE_MACHINE),
    noted("NO_OMP_NUM_THREADS", "OMP_NUM_THREADS is left as it is"),
    noted("OPT_OUT_TRACKING", "nothing is tracked"),
    # variables of other containers, left over on endpoints that moved from them
    noted("MODEL_CACHE_ROOT", "SageMaker JumpStart sets it for other containers"),
    noted("ENDPOINT_SERVER_TIMEOUT", "SageMaker JumpStart sets it for other containers"),
    ignored("ENABLE_CUDA_GRAPHS", "option.enforce_eager=true turns CUDA graphs off", "true", "1"),
    ignored("MAX_INPUT_LENGTH", TGI_LENGTHS),
    ignored("MAX_INPUT_TOKENS", TGI_LENGTHS),
    ignored("MAX_TOTAL_TOKENS", TGI_LENGTHS),
    ignored("MAX_BATCH_TOTAL_TOKENS", "the engine finds out how many tokens fit in its memory"),
)
