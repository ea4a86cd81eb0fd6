"""The keys of `serving.properties`: declarations, and the keys of the core."""

from lmi_core.configuration.properties.declaration import (
    NO_MPI,
    OPTION_PREFIX,
    DeclaredKey,
    JsonObject,
    Names,
    NoEffect,
    Properties,
    environment_variable,
    keys_of,
)
from lmi_core.configuration.properties.model import ModelProperties
from lmi_core.configuration.properties.request import RequestProperties
from lmi_core.configuration.properties.server import ServerProperties, check_engine

__all__ = [
    "NO_MPI",
    "OPTION_PREFIX",
    "DeclaredKey",
    "JsonObject",
    "ModelProperties",
    "Names",
    "NoEffect",
    "Properties",
    "RequestProperties",
    "ServerProperties",
    "check_engine",
    "environment_variable",
    "keys_of",
]
