"""An address to listen on."""

from typing import NamedTuple

from lmi_core.configuration.host_patterns import is_loopback

UNIX = "unix:"


class ListenAddress(NamedTuple):
    """A host and a port, or the path of a Unix socket."""

    host: str = ""
    port: int = 0
    path: str | None = None
    is_secure: bool = False  # uses TLS with the server's certificate

    @property
    def is_for_this_host(self) -> bool:
        """Whether only programs on this host can reach the address."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        if self.path is not None:
            return f"{UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
