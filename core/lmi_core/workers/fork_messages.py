"""The messages between a fork server and its clients.

A client passes one end of a socket pair for each fork, and writes a message to the other.
"""

import socket
import struct

LENGTH = struct.Struct(">Q")
PASSED = b"s"  # the byte that accompanies descriptors


def send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(LENGTH.pack(len(message)))
    connection.sendall(message)


def receive(connection: socket.socket) -> bytes | None:
    """Return the next message; None if the other end was closed before its last byte."""
    header = _receive_exactly(connection, LENGTH.size)
    return None if header is None else _receive_exactly(connection, LENGTH.unpack(header)[0])


def _receive_exactly(connection: socket.socket, size: int) -> bytes | None:
    message = bytearray()
    while len(message) < size:
        try:
            part = connection.recv(min(size - len(message), 1 << 20))
        except ConnectionError:
            return None
        if not part:
            return None
        message += part
    return bytes(message)
