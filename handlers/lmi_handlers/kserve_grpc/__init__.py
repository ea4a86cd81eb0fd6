"""The gRPC server of Triton's dialect."""

import os

# gRPC reads the variable on import. With its fork support, child processes of a server with calls in progress crash
# before they run their program, because uvloop forks to start processes. Every other restart of an engine would then
# fail.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
