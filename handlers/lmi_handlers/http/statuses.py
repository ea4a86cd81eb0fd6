"""The HTTP statuses of what fails for reasons that are not the request's own; dialects add what they have otherwise."""

STATUSES = {
    "forbidden": 403,
    "payload_too_large": 413,
    "model_not_found": 404,
    "adapter_not_found": 404,
    "model_not_ready": 503,
    "overloaded": 503,
    "backend_unhealthy": 503,
    "generation_failed": 500,
    "generation_timeout": 504,
    "aborted": 499,  # nobody's number but nginx's, and Triton's
    "formatter_failed": 424,  # what raised is the model directory's own code
    "internal": 500,
}
