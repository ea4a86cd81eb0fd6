"""Default HTTP statuses of errors that are not the request's fault; dialects override some."""

STATUSES = {
    "forbidden": 403,
    "payload_too_large": 413,
    "model_not_found": 404,
    "response_not_found": 404,
    "adapter_not_found": 404,
    "model_not_ready": 503,
    "overloaded": 503,
    "backend_unhealthy": 503,
    "generation_failed": 500,
    "generation_timeout": 504,
    "aborted": 499,  # no standard status: nginx and Triton use it
    "formatter_failed": 424,  # the model directory's own code raised
    "internal": 500,
}
