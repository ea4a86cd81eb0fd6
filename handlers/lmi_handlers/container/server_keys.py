"""Keys of DJLServing's config.properties, each also read from the environment variable `SERVING_<KEY>`.

A config.properties may also hold server keys of serving.properties (job_queue_size, batch_size, ...), which are the
defaults of all models.
"""

from lmi_handlers.container.declarations import Declared, honoured, ignored, refused

INFERENCE_ADDRESS = "inference_address"
LOAD_MODELS = "load_models"
EVICT_MODELS = "evict_models"
MODEL_STORE = "model_store"
PORT = "port"
GRPC_PORT = "grpc_port"
PAGES = "pages"
PROMETHEUS = "prometheus"
OTLP_TRACES_ENDPOINT = "otlp_traces_endpoint"
MANAGEMENT_ADDRESS = "management_address"
MANAGEMENT_TOKEN = "management_token"
MANAGEMENT_TOKEN_FILE = "management_token_file"
CERTIFICATE_FILE = "certificate_file"
PRIVATE_KEY_FILE = "private_key_file"
API_KEYS = "api_keys"
API_KEYS_FILE = "api_keys_file"
KEY_REQUESTS = "key_requests_per_minute"
KEY_RUNNING = "key_max_concurrent_requests"
METRICS_NEED_KEY = "metrics_need_key"
CORS_ORIGIN = "cors_allowed_origin"
CORS_METHODS = "cors_allowed_methods"
CORS_HEADERS = "cors_allowed_headers"
CORS_CREDENTIALS = "cors_allow_credentials"
MAX_CONNECTIONS = "max_connections"
HEADER_TIMEOUT = "header_timeout"
BODY_TIMEOUT = "body_timeout"
WRITE_TIMEOUT = "write_timeout"
KEEP_ALIVE_TIMEOUT = "keep_alive_timeout"
MIN_TRANSFER_RATE = "min_transfer_rate"
MAX_PENDING_BODY_BYTES = "max_pending_body_bytes"

KEYSTORE = "certificate_file and private_key_file are the server's certificate and its key, in PEM"
NETTY = "it tunes Netty; this server has one event loop for all connections"

SERVER_KEYS: tuple[Declared, ...] = (
    honoured(
        INFERENCE_ADDRESS,
        "The address to listen on: `http://HOST[:PORT]`, or `https://` with a `certificate_file`; no Unix socket.",
    ),
    honoured(PORT, "The port to listen on; overrides the one in `inference_address`."),
    honoured(
        GRPC_PORT,
        "This server's own: the port of KServe's protocol over gRPC, on the same host. Without it there is no gRPC.",
    ),
    honoured(
        PAGES,
        "This server's own: `false` turns off the page at `/` on which people chat with the models. Default: `true`.",
    ),
    honoured(
        PROMETHEUS,
        "`false` turns off the metrics at `/metrics` and `/server/metrics`. Default: `true`, unlike DJLServing's.",
    ),
    honoured(
        OTLP_TRACES_ENDPOINT,
        "This server's own: URL of an OpenTelemetry collector, such as `http://localhost:4318/v1/traces`, which gets "
        "a span of each request over HTTP. Needs `pip install 'lmi-handlers[tracing]'`.",
    ),
    honoured(
        MAX_CONNECTIONS,
        "This server's own: the maximum number of clients' connections, 10000 by default. Beyond it, the one that has "
        "waited longest for its client is closed; where none waits, new ones get 503.",
    ),
    honoured(
        HEADER_TIMEOUT,
        "This server's own: the maximum time for the headers of a request, or for the first one of a new connection, "
        "in seconds; 30 by default.",
    ),
    honoured(
        BODY_TIMEOUT,
        "This server's own: the time in which `min_transfer_rate` must be reached by a request's body, in seconds; 30 "
        "by default. A body that is slower is refused with 408.",
    ),
    honoured(
        WRITE_TIMEOUT,
        "This server's own: the time in which `min_transfer_rate` must be reached by a client that reads its answer "
        "more slowly than it is made, in seconds; 60 by default. One that is slower is disconnected, and its request "
        "aborted.",
    ),
    honoured(
        KEEP_ALIVE_TIMEOUT,
        "This server's own: the time after which a connection without a request is closed, in seconds; 75 by default. "
        "Give more than the proxy or load balancer in front keeps its connections.",
    ),
    honoured(
        MIN_TRANSFER_RATE,
        "This server's own: the bytes per second that bodies and answers must move at, over a whole `body_timeout` or "
        "`write_timeout`; 1024 by default.",
    ),
    honoured(
        MAX_PENDING_BODY_BYTES,
        "This server's own: the maximum size of all bodies together whose rest is still to come; 536870912 by default. "
        "Beyond it, bodies of more than 64 KB get 503.",
    ),
    honoured(
        LOAD_MODELS,
        "The models to serve: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`, separated by commas; `ALL`, the default, "
        "means those of the model store; `NONE` means that requests load them later.",
    ),
    honoured(MODEL_STORE, "The folder of model directories to serve, or a single model directory."),
    honoured(
        MANAGEMENT_ADDRESS,
        "The address of the routes that manage the server, `http[s]://HOST:PORT` or `unix:PATH`: inference is not "
        "served there, and they are not served elsewhere. Without it they are for this host alone, where inference is.",
    ),
    honoured(
        MANAGEMENT_TOKEN,
        "This server's own: the secret for management routes, sent as `Authorization: Bearer`.",
        secret=True,
    ),
    honoured(
        MANAGEMENT_TOKEN_FILE, "This server's own: a file with the `management_token`, read again when it changes."
    ),
    honoured(
        API_KEYS,
        "This server's own: the keys of clients, separated by commas, each as in a line of `api_keys_file`. Without "
        "either, clients need none.",
        secret=True,
    ),
    honoured(
        API_KEYS_FILE,
        "This server's own: a file of clients' keys, read again when it changes: a line for each, `[NAME] KEY`, and "
        "perhaps its limits as `requests_per_minute=NUMBER` and `max_concurrent_requests=NUMBER`.",
    ),
    honoured(
        KEY_REQUESTS,
        "This server's own: the requests that a key may begin per minute, each sequence counted as one, if its line "
        "has no number of its own.",
    ),
    honoured(
        KEY_RUNNING,
        "This server's own: the requests that a key may have at the same time, each sequence counted as one, if its "
        "line has no number of its own.",
    ),
    honoured(METRICS_NEED_KEY, "This server's own: `true` has metrics ask for a key too. Default: `false`."),
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
    honoured(
        CORS_ORIGIN,
        "The origins of the web pages that may use the routes of clients, separated by commas, such as "
        "`https://app.example.com`, `https://*.example.com` or `http://localhost:*`; `*` admits every page. Without it "
        "pages of other web sites cannot read answers. Routes that manage the server are for none of them.",
    ),
    honoured(
        CORS_METHODS,
        "The methods that those pages may use, separated by commas; `*`, the default, means those of routes for "
        "clients, `GET, HEAD, POST, DELETE`.",
    ),
    honoured(
        CORS_HEADERS,
        "The headers that those pages may send, separated by commas; `*`, the default, means all, `Authorization` too.",
    ),
    honoured(
        CORS_CREDENTIALS,
        "This server's own: `true` lets those pages send cookies and certificates, for a proxy in front that asks for "
        "them; API keys do not need it. Not with `*` as origin. Default: `false`.",
    ),
    ignored("keystore", KEYSTORE),
    ignored("keystore_pass", KEYSTORE, secret=True),
    ignored("keystore_type", KEYSTORE),
    honoured(
        CERTIFICATE_FILE,
        "A certificate, with those that lead to its authority, in PEM, for HTTPS and gRPC over TLS; read again when it "
        "changes. Needs `private_key_file`, and `https://` in `inference_address` if that is set.",
    ),
    honoured(PRIVATE_KEY_FILE, "The private key of `certificate_file`, in PEM and without a password."),
    honoured(
        EVICT_MODELS,
        "This server's own: `true` unloads the least recently used models, until their next requests, where another "
        "one needs their memory. Default: `false`, with 507 for what does not fit.",
    ),
    ignored("model_url_pattern", "requests cannot make the server load a model"),
    ignored("plugin_folder", "it is a folder of Java plugins; --plugins-dir is the folder of Python plugins"),
    ignored("chunked_read_timeout", "option.inter_token_timeout bounds the wait for a request's next token"),
)
