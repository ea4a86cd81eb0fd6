"""Keys of DJLServing's config.properties, each also read from the environment variable `SERVING_<KEY>`.

A config.properties may also hold server keys of serving.properties (job_queue_size, batch_size, ...), which are the
defaults of all models.
"""

from lmi_handlers.container.declarations import Declared, honoured, ignored, refused

INFERENCE_ADDRESS = "inference_address"
LOAD_MODELS = "load_models"
MODEL_STORE = "model_store"
PORT = "port"

ONE_ADDRESS = "all routes are on the one address that the server listens on"
PROXY = "HTTPS is left to a proxy in front of the server"
CORS = "answers have no CORS headers, so that pages of other origins cannot read them; a proxy in front can add them"
MEMORY = "no memory is set aside by it; option.gpu_memory_utilization says how much of a GPU's an engine takes"
NETTY = "it tunes Netty, which is not here: one event loop serves every connection"

SERVER_KEYS: tuple[Declared, ...] = (
    honoured(INFERENCE_ADDRESS, "The address to listen on: `http://HOST[:PORT]`. HTTPS and Unix sockets are refused."),
    honoured(PORT, "The port to listen on, in place of the one that `inference_address` has."),
    honoured(
        LOAD_MODELS,
        "The models to serve: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`, with commas between; `ALL`, the default, "
        "means those of the model store.",
    ),
    honoured(MODEL_STORE, "The folder of model directories to serve, or the one model directory."),
    ignored(
        "management_address",
        f"{ONE_ADDRESS}; management is for this host only, and with open_management=true for others",
    ),
    ignored("cluster_address", "a server runs on one machine"),
    refused("load_workflows", "workflows are not served here: name their models in load_models"),
    ignored(
        "wait_model_loading",
        "the server listens while models load, and /ping answers 503 until they are ready",
        "true",
    ),
    ignored("allow_multi_status", "/ping answers 503 while a model loads", "false"),
    ignored("number_of_netty_threads", NETTY, "0"),
    ignored("use_native_io", NETTY),
    ignored("io_ratio", NETTY),
    ignored("reserved_memory_mb", MEMORY, "0"),
    ignored("cors_allowed_origin", CORS),
    ignored("cors_allowed_methods", CORS),
    ignored("cors_allowed_headers", CORS),
    ignored("keystore", PROXY),
    ignored("keystore_pass", PROXY, secret=True),
    ignored("keystore_type", PROXY),
    ignored("certificate_file", PROXY),
    ignored("private_key_file", PROXY),
    ignored("model_url_pattern", "no request makes the server load a model"),
    ignored("plugin_folder", "it holds Java plugins; --plugins-dir names a folder of Python plugins"),
    ignored("chunked_read_timeout", "option.predict_timeout says how long a request waits for its next token"),
)
