"""Keys of DJLServing's config.properties, each also read from the environment variable `SERVING_<KEY>`.

A config.properties may also hold server keys of serving.properties (job_queue_size, batch_size, ...), which are the
defaults of all models.
"""

from lmi_handlers.container.declarations import Declared, honoured, ignored, refused

KEYSTORE = "certificate_file and private_key_file are the server's certificate and its key, in PEM"
NETTY = "it tunes Netty; this server has one event loop for all connections"

SERVER_KEYS: tuple[Declared, ...] = (
    honoured(
        "inference_address",
        "The address to listen on: `http://HOST[:PORT]`, or `https://` with a `certificate_file`; no Unix socket.",
    ),
    honoured("port", "The port to listen on; overrides the one in `inference_address`."),
    honoured(
        "grpc_port",
        "The port of KServe's protocol over gRPC, on the same host. Without it there is no gRPC.",
    ),
    honoured(
        "pages",
        "`false` turns off the chat page at `/`. Default: `true`.",
    ),
    honoured(
        "prometheus",
        "`false` turns off the metrics at `/metrics` and `/server/metrics`. Default: `true`, unlike in DJLServing.",
    ),
    honoured(
        "otlp_traces_endpoint",
        "URL of an OpenTelemetry collector, such as `http://localhost:4318/v1/traces`, which gets a span "
        "for each request over HTTP. Needs `pip install 'lmi-handlers[tracing]'`.",
    ),
    honoured(
        "max_connections",
        "The maximum number of client connections, 10000 by default. Beyond it, the connection that has "
        "waited longest for its client is closed; if none is waiting, new ones get 503.",
    ),
    honoured(
        "header_timeout",
        "The maximum time for the headers of a request, or for the first one of a new connection, in "
        "seconds; 30 by default.",
    ),
    honoured(
        "body_timeout",
        "The time over which a request body must average `min_transfer_rate`, in seconds; 30 by default. "
        "A slower body is refused with 408.",
    ),
    honoured(
        "write_timeout",
        "The time over which a client must read an answer at `min_transfer_rate` on average, unless the "
        "answer itself is slower, in seconds; 60 by default. A slower client is disconnected, and its request "
        "aborted.",
    ),
    honoured(
        "keep_alive_timeout",
        "The time after which a connection without a request is closed, in seconds; 75 by default. Set "
        "it higher than the keep-alive time of the proxy or load balancer in front.",
    ),
    honoured(
        "min_transfer_rate",
        "The minimum rate of request bodies and answers, in bytes per second, averaged over "
        "`body_timeout` or `write_timeout`; 1024 by default.",
    ),
    honoured(
        "max_pending_body_bytes",
        "The maximum total size of all request bodies that are being received, in bytes; 536870912 by "
        "default. Beyond it, bodies of more than 64 KB get 503.",
    ),
    honoured(
        "load_models",
        "The models to serve: `[NAME[:VERSION[:ENGINE[:DEVICES]]]=]URL`, separated by commas. `ALL`, the "
        "default, means the models of the model store; `NONE` means that requests load models later.",
    ),
    honoured("model_store", "The folder of model directories to serve, or a single model directory."),
    honoured(
        "management_address",
        "The address of the routes that manage the server, `http[s]://HOST:PORT` or `unix:PATH`; it "
        "serves no inference. Without it, these routes are at the inference address, for this host only.",
    ),
    honoured(
        "management_token",
        "The secret for management routes, sent as `Authorization: Bearer`.",
        secret=True,
    ),
    honoured("management_token_file", "A file with the `management_token`, read again when it changes."),
    honoured(
        "api_keys",
        "API keys of clients, separated by commas, each in the form of a line of `api_keys_file`. "
        "Without either, clients need no key.",
        secret=True,
    ),
    honoured(
        "api_keys_file",
        "A file of API keys, read again when it changes. Each line is `[NAME] KEY`, optionally followed "
        "by the limits `requests_per_minute=NUMBER` and `max_concurrent_requests=NUMBER`.",
    ),
    honoured(
        "key_requests_per_minute",
        "The maximum number of requests per minute for each key whose line sets no limit; each "
        "sequence counts as a request.",
    ),
    honoured(
        "key_max_concurrent_requests",
        "The maximum number of concurrent requests for each key whose line sets no limit; each "
        "sequence counts as a request.",
    ),
    honoured("metrics_need_key", "`true` makes metrics require a key too. Default: `false`."),
    ignored("cluster_address", "a server runs on one machine"),
    refused("load_workflows", "workflows are not supported: name their models in load_models"),
    ignored(
        "wait_model_loading",
        "the server already listens while models load; /ping answers 503 until they are ready",
        "true",
    ),
    *(
        ignored(f"error_rate_{what}", "/ping does not count failed requests")
        for what in ("any", "model", "server", "wlm")
    ),
    *(
        ignored(f"{what}_http_code", "only throttle_error_http_code sets a status")
        for what in ("bad_request", "server_error", "timeout", "wlm_error")
    ),
    ignored("request_id_header_key", "the header of a request's id is x-request-id"),
    ignored("allow_multi_status", "/ping answers 503 while a model loads", "false"),
    ignored("number_of_netty_threads", NETTY, "0"),
    ignored("use_native_io", NETTY),
    ignored("io_ratio", NETTY),
    honoured(
        "cors_allowed_origin",
        "The origins of the web pages that may use client routes, separated by commas, such as "
        "`https://app.example.com`, `https://*.example.com` or `http://localhost:*`; `*` allows every page. "
        "Without it, pages of other web sites cannot read answers. Management routes are never available to pages.",
    ),
    honoured(
        "cors_allowed_methods",
        "The methods that those pages may use, separated by commas; `*`, the default, means those of "
        "client routes, `GET, HEAD, POST, DELETE`.",
    ),
    honoured(
        "cors_allowed_headers",
        "The headers that those pages may send, separated by commas; `*`, the default, means all, "
        "including `Authorization`.",
    ),
    honoured(
        "cors_allow_credentials",
        "`true` lets those pages send cookies and certificates, for a proxy in front that requires them; "
        "API keys do not need it. Cannot be used with `*` as origin. Default: `false`.",
    ),
    ignored("keystore", KEYSTORE),
    ignored("keystore_pass", KEYSTORE, secret=True),
    ignored("keystore_type", KEYSTORE),
    honoured(
        "certificate_file",
        "A certificate in PEM, followed by its intermediate certificates, for HTTPS and gRPC over TLS; "
        "read again when it changes. Needs `private_key_file`, and `https://` in `inference_address` if that is "
        "set.",
    ),
    honoured("private_key_file", "The private key of `certificate_file`, in PEM and without a password."),
    honoured(
        "evict_models",
        "`true` unloads the least recently used models when another one needs their memory; their next "
        "requests load them again. Default: `false`, and a model that does not fit gets 507.",
    ),
    ignored("model_url_pattern", "requests cannot make the server load a model"),
    ignored("plugin_folder", "it is a folder of Java plugins; --plugins-dir is the folder of Python plugins"),
    ignored("chunked_read_timeout", "option.inter_token_timeout bounds the wait for a request's next token"),
)
