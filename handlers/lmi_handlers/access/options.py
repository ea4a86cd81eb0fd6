"""The access options of the server."""

from dataclasses import dataclass
from enum import StrEnum

from lmi_handlers.access.address import ListenAddress
from lmi_handlers.access.api_keys import ApiKeys
from lmi_handlers.access.certificate import Certificate
from lmi_handlers.access.credentials import Secret
from lmi_handlers.access.cross_origin import CrossOrigin
from lmi_handlers.access.token_file import TokenFile
from lmi_handlers.access.watched_files import Watched


class Scope(StrEnum):
    """The routes of an address."""

    ALL = "all"  # the server has only one address
    INFERENCE = "inference"  # management has a separate address
    MANAGEMENT = "management"


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """The operator's access rules; by default, everybody may use the server, and only this host may manage it."""

    api_keys: ApiKeys | None = None  # None: clients do not need keys
    metrics_need_key: bool = False
    certificate: Certificate | None = None  # None: no TLS
    management_address: ListenAddress | None = None  # None: the inference address
    management_token: Secret | TokenFile | None = None
    open_management: bool = False  # other hosts may use management routes that do not name a model
    cross_origin: CrossOrigin | None = None  # None: pages of other web sites cannot read responses
    fixed: str | None = None  # why management routes cannot change anything; None: they can
    multi_model: bool = False  # SageMaker manages the models from another host, and no one lists their names

    @property
    def watched(self) -> list[Watched]:
        """The objects that are reloaded when their files change."""
        keys, certificate, token = self.api_keys, self.certificate, self.management_token
        watched = [] if certificate is None else [Watched(certificate.files, certificate.read_again)]
        if keys is not None and keys.file is not None:
            watched.append(Watched([keys.file], keys.read_again))
        if isinstance(token, TokenFile):
            watched.append(Watched([token.file], token.read_again))
        return watched


DEFAULT_ACCESS = AccessOptions()
