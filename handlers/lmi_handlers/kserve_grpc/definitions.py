"""The protocol's published definitions, from Triton's client library."""

from tritonclient.grpc import model_config_pb2, service_pb2

__all__ = ["model_config_pb2", "service_pb2"]
