"""The server's certificate, which can be replaced while connections are open."""

import base64
import logging
import os
import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from lmi_core.errors import ConfigurationError

logger = logging.getLogger(__name__)

SOON = timedelta(days=14)
SHARE = 3  # of a shorter-lived certificate, the last third is soon
PEM = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----([^-]+)-----END")
MISMATCH = "_MISMATCH"  # ends OpenSSL's reasons for a key of another certificate
# The elements of a certificate in DER (RFC 5280, section 4.1).
VERSION, VALIDITY = 0xA0, 3  # the tag of the optional first field; the place of the dates among the others
FORMS = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}  # of dates, by tag


class Validity(NamedTuple):
    """The dates between which a certificate is valid."""

    begin: datetime
    end: datetime

    @classmethod
    def of(cls, pem: bytes) -> "Validity | None":
        """Return the dates of the first certificate in a file; None if they are written in a form not known here.

        Python's `ssl` returns the dates only of certificates that it trusts. OpenSSL accepts more forms than the
        standard's.
        """
        try:
            _, certificate = next(_elements(base64.b64decode(PEM.findall(pem)[0])))
            _, signed = next(_elements(certificate))
            fields = [content for tag, content in _elements(signed) if tag != VERSION]
            begin, end = (datetime.strptime(text.decode(), FORMS[tag]) for tag, text in _elements(fields[VALIDITY]))
        except (LookupError, StopIteration, ValueError):
            return None
        return cls(begin.replace(tzinfo=UTC), end.replace(tzinfo=UTC))

    def fault(self, now: datetime) -> str | None:
        """Return why clients refuse the certificate now; None if it is valid."""
        if now > self.end:
            return f"it expired at {_date(self.end)}"
        return f"it is not valid before {_date(self.begin)}" if now < self.begin else None

    def ends_soon(self, now: datetime) -> bool:
        """Return whether the certificate should have been replaced by now."""
        return self.end - now < min(SOON, (self.end - self.begin) / SHARE)


class Certificate:
    """The current certificate and private key in PEM files."""

    def __init__(self, certificate: Path, private_key: Path) -> None:
        """Read both files. Raise ConfigurationError unless they are a certificate and its key."""
        self.files = (certificate, private_key)
        self.context = _new_context()
        self.pem = self._load(self.context)
        self._reported = self.warning or self.note  # by the caller

    @property
    def warning(self) -> str | None:
        """The reason why clients refuse the certificate at this time; None if it is valid."""
        validity = Validity.of(self.pem[0])
        fault = validity and validity.fault(datetime.now(UTC))
        return None if fault is None else f"clients refuse the certificate_file {self.files[0]}: {fault}"

    @property
    def note(self) -> str | None:
        """The date of a valid certificate that ends soon; None for others."""
        now, validity = datetime.now(UTC), Validity.of(self.pem[0])
        if validity is None or validity.fault(now) is not None or not validity.ends_soon(now):
            return None
        return f"the certificate_file {self.files[0]} expires at {_date(validity.end)}: replace it"

    def reload(self) -> None:
        """Use the files' current contents for new connections. Raise ConfigurationError if they are invalid."""
        # First into a new context: a load that fails halfway would combine one file's certificate with the other's key.
        self._load(_new_context())
        self.pem = self._load(self.context)
        logger.info("%s was read again: new connections get this certificate", self.files[0])
        self._reported = None
        self.report()

    def report(self) -> None:
        """Log a new problem with the dates."""
        problem = self.warning or self.note
        if problem not in (None, self._reported):
            logger.warning("%s", problem)
        self._reported = problem

    def _load(self, context: ssl.SSLContext) -> tuple[bytes, bytes]:
        """Load the certificate and the key into the context, and return them."""
        certificate, private_key = self.files
        try:
            context.load_cert_chain(certificate, private_key, _no_password)
            return certificate.read_bytes(), private_key.read_bytes()
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            if reason.endswith(MISMATCH):
                raise ConfigurationError(
                    f"private_key_file {private_key} does not belong to the certificate in certificate_file "
                    f"{certificate}"
                ) from None
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


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the tag and the content of each element."""
    place = 0
    while place < len(der):
        tag, length = der[place], der[place + 1]
        place += 2
        if length & 0x80:  # the length of the length follows
            start, place = place, place + (length & 0x7F)
            length = int.from_bytes(der[start:place])
        yield tag, der[place : place + length]
        place += length


def _date(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"


def _new_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _no_password() -> bytes:
    raise ValueError(
        "private_key_file must be a key without a password, because no one can type it when the file is read again"
    )
