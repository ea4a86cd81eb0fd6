"""The gRPC server of Triton's dialect."""

import os

# gRPC reads it when it is imported. With its support of forks, which uvloop makes to start a process, the children of a
# server with calls in progress crash before they run their program, and with them every other restart of an engine.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
