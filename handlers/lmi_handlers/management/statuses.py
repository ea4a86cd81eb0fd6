"""The statuses of the management routes' errors, by kind, as DJLServing and SageMaker have them."""

STATUSES = {
    "unauthorized": 401,
    "forbidden": 403,
    "model_not_found": 404,
    "payload_too_large": 413,
    "body_timeout": 408,
    "unsupported_encoding": 415,
    "model_exists": 409,
    "model_not_ready": 503,
    "overloaded": 503,
    "backend_unhealthy": 503,
    "out_of_memory": 507,
    "internal": 500,
}
