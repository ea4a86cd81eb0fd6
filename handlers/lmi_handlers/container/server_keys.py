"""Keys of DJLServing's config.properties, each also read from the environment variable `SERVING_<KEY>`.

A config.properties may also hold server keys of serving.properties (job_queue_size, batch_size, ...), which are the
defaults of all models.
"""

from lmi_handlers.container.declarations import Declared, honoured, ignored, refused

INFERENCE_ADDRESS = "inference_address"
LOAD_MODELS = "load_models"
MODEL_STORE = "model_store"
PORT = "port"
GRPC_PORT = "grpc_port"

ONE_ADDRESS = "the server listens on one address, with all routes"
PROXY = "put a proxy in front of the server for HTTPS"
CORS = "responses have no CORS headers, so pages of other origins cannot read them; a proxy in front can add them"
MEMORY = "it reserves no memory; option.gpu_memory_utilization sets an engine's share of a GPU's memory"
NETTY = "it tunes Netty; this server has one event loop for all connections"

SERVER_KEYS: tuple[Declared, ...] = (
    honoured(INFERENCE_ADDRESS, "The address to listen on: `http://HOST[:PORT]`. HTTPS and Unix sockets are refused."),
    honoured(PORT, "The port to listen on; overrides the one in `inference_address`."),
    honoured(
        GRPC_PORT,
        "This server's own: the port of KServe's protocol over gRPC, on the same host. Without it there is no gRPC.",
    ),
    honoured(
        LOAD_MODELS,
        "The models to serve: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`, separated by commas; `ALL`, the default, "
        "means those of the model store.",
    ),
    honoured(MODEL_STORE, "The folder of model directories to serve, or a single model directory."),
    ignored(
        "management_address",
        f"{ONE_ADDRESS}; only this host may manage adapters, with open_management=true others too",
    ),
    ignored("cluster_address", "a server runs on one machine"),
    refused("load_workflows", "workflows are not supported: name their models in load_models"),
    ignored(
        "wait_model_loading",
        "the server already listens while models load; /ping answers 503 until they are ready",
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
    ignored("model_url_pattern", "requests cannot make the server load a model"),
    ignored("plugin_folder", "it is a folder of Java plugins; --plugins-dir is the folder of Python plugins"),
    ignored("chunked_read_timeout", "option.predict_timeout bounds the wait for a request's next token"),
)
