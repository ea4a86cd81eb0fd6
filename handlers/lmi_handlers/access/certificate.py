"""The server's certificate, which can be replaced while connections are open."""

import logging
import os
import ssl
from pathlib import Path

from lmi_core.errors import ConfigurationError

logger = logging.getLogger(__name__)


class Certificate:
    """The current certificate and private key in PEM files."""

    def __init__(self, certificate: Path, private_key: Path) -> None:
        """Read both files. Raise ConfigurationError unless they are a certificate and its key."""
        self.files = (certificate, private_key)
        self.context = _new_context()
        self.pem = self._load(self.context)

    def reload(self) -> None:
        """Use the files' current contents for new connections. Raise ConfigurationError if they are invalid."""
        # First into a new context: a load that fails halfway would combine one file's certificate with the other's key.
        self._load(_new_context())
        self.pem = self._load(self.context)
        logger.info("%s was read again: new connections get this certificate", self.files[0])

    def _load(self, context: ssl.SSLContext) -> tuple[bytes, bytes]:
        """Load the certificate and the key into the context, and return them."""
        certificate, private_key = self.files
        try:
            context.load_cert_chain(certificate, private_key, _no_password)
            return certificate.read_bytes(), private_key.read_bytes()
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            raise ConfigurationError(
                f"certificate_file {certificate} and private_key_file {private_key} must be a certificate and its "
                f"private key in PEM: {reason}"
            ) from None
        except OSError as error:
            name = error.filename or f"{certificate} or {private_key}"
            raise ConfigurationError(
                f"certificate_file or private_key_file {name} cannot be read: {os.strerror(error.errno or 0)}"
            ) from None
        except ValueError as error:  # raised by `_no_password`
            raise ConfigurationError(str(error)) from None


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> bytes:
    raise ValueError(
        "private_key_file must be a key without a password, because no one can type it when the file is read again"
    )
