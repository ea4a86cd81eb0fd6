"""The access rules of routes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from lmi_core.calls.access import Access, Reach
from lmi_core.configuration.host_patterns import is_loopback
from lmi_core.errors import Forbidden, LmiError, Unauthorized
from lmi_core.handler import READING_METHODS, Route
from lmi_core.served_model import ServedModels
from lmi_handlers.access.api_keys import ApiKey
from lmi_handlers.access.credentials import digest_of, find_credentials
from lmi_handlers.access.cross_origin import CrossOrigin
from lmi_handlers.access.key_usage import UNLIMITED, CountedRequest, KeyUsage
from lmi_handlers.access.options import DEFAULT_ACCESS, AccessOptions, Scope

# Headers of proxies. Behind a proxy, every client has the proxy's address. A client that adds such a header only loses
# rights.
FORWARDED = ("Forwarded", "X-Forwarded-For", "X-Real-IP")
OPERATOR = "operator"


class Caller(NamedTuple):
    """The sender of a request, according to the connection and the headers."""

    address: str  # IP address; "" for a Unix socket
    headers: Mapping[str, str]

    @property
    def is_local(self) -> bool:
        """Whether the request comes from this host, and not through a proxy on it."""
        return is_loopback(self.address) and not any(name in self.headers for name in FORWARDED)


@dataclass(frozen=True, slots=True)
class Permit:
    """A permission, and the credential that grants it."""

    client: str  # the holder of the API key or, without one, the address
    key: ApiKey | None = None
    is_operator: bool = False  # by the token
    key_holder: str | None = None  # of the API key; None without one
    sharing_key: str | None = None  # the same if there are other holders, who share the queues

    @property
    def is_proven(self) -> bool:
        """Whether a credential grants it; pages of other web sites cannot add one to a request."""
        return self.key is not None or self.is_operator


class AccessControl:
    """The access rules of one address of the server."""

    def __init__(
        self,
        models: ServedModels,
        options: AccessOptions = DEFAULT_ACCESS,
        scope: Scope = Scope.ALL,
        usages: dict[str, KeyUsage] | None = None,
    ) -> None:
        self.options = options
        self._models = models
        self._scope = scope
        self._usages = {} if usages is None else usages  # by the keys' holders, so that reading keys again keeps them

    def for_scope(self, scope: Scope) -> "AccessControl":
        """Return the rules of another address, with shared counts."""
        return AccessControl(self._models, self.options, scope, self._usages)

    @property
    def cross_origin(self) -> CrossOrigin | None:
        """The rules for pages of other web sites, which apply only to client routes."""
        return None if self._scope is Scope.MANAGEMENT else self.options.cross_origin

    def check(self, route: Route, caller: Caller, model: str | None = None) -> Permit:
        """Return the permission to use a route. Raise Unauthorized or Forbidden.

        `model` is the model in the path.
        """
        match route.access:
            case Access.EVERYBODY:
                return Permit(caller.address)
            case Access.CONSOLE:
                self._check_place(caller)
                return Permit(caller.address)
            case _ if self._scope is Scope.MANAGEMENT:
                return self._check_managing(route, caller)
            case Access.OPERATORS:
                self._check_place(caller, model)
                permit = self._check_token(caller)
                self._check_change(route)
                return permit
            case Access.MONITORING if not self.options.metrics_need_key:
                return Permit(caller.address)
            case _:
                return self.check_client(caller)

    def reach(self, caller: Caller) -> Reach:
        """Return the routes that a client can reach here with credentials."""
        try:
            self._check_place(caller)
        except Forbidden:
            return Reach(generates=True, manages=False)
        return Reach(generates=self._scope is not Scope.MANAGEMENT, manages=True)

    def check_client(self, caller: Caller) -> Permit:
        """Return the permission of a client. Raise Unauthorized if API keys are in use and it has none."""
        keys = self.options.api_keys
        if keys is None and self.options.management_token is None:
            return Permit(caller.address)
        credentials = [*find_credentials(caller.headers)]
        if keys is None:
            return Permit(caller.address, is_operator=self._has_token(credentials))
        if (key := keys.find(credentials)) is not None:
            return Permit(key.holder, key, False, key.holder, key.holder if keys.num_holders > 1 else None)
        if self._has_token(credentials):
            return Permit(OPERATOR, is_operator=True)
        fault = "the one given is not known" if credentials else "none was given"
        raise Unauthorized(f"an API key is needed, as `Authorization: Bearer` or `x-api-key`: {fault}")

    def counted(self, permit: Permit) -> CountedRequest:
        """Return a generation request to count while it runs."""
        key = permit.key
        return UNLIMITED if key is None else CountedRequest(self._usages.setdefault(key.holder, KeyUsage()), key)

    def _check_managing(self, route: Route, caller: Caller) -> Permit:
        """Check a request at the management address, which the operator has chosen to open."""
        if route.answer is None:
            raise Forbidden(f"{route.path} is not served here: management_address serves no inference")
        permit = self._check_token(caller)
        self._check_change(route)
        return permit

    def _check_change(self, route: Route) -> None:
        """Raise Forbidden for an operator's route that changes the server, if it cannot be changed."""
        fixed = self.options.fixed
        if fixed is not None and route.access is Access.OPERATORS and route.method not in READING_METHODS:
            raise Forbidden(fixed)

    def _check_place(self, caller: Caller, model: str | None = None) -> None:
        """Raise Forbidden if management is not allowed at this address or from the client's."""
        if self._scope is Scope.MANAGEMENT:
            return
        if self._scope is Scope.INFERENCE:
            raise Forbidden("this route is only served at the server's management_address")
        if not caller.is_local and not self._is_open(model):
            what = "the server" if model is None else f"model {model}"
            raise Forbidden(
                f"{what} can only be managed from the server's own host; open_management=true allows other hosts"
            )

    def _check_token(self, caller: Caller) -> Permit:
        """Return the permission of an operator. Raise Unauthorized if there is a token and the request lacks it."""
        credentials = [*find_credentials(caller.headers)]
        if self.options.management_token is None:
            return Permit(caller.address)
        if self._has_token(credentials):
            return Permit(OPERATOR, is_operator=True)
        fault = "the one given is wrong" if credentials else "none was given"
        raise Unauthorized(f"management needs the management_token, as `Authorization: Bearer`: {fault}")

    def _has_token(self, credentials: list[str]) -> bool:
        token = self.options.management_token
        return token is not None and any(token.matches(digest_of(each)) for each in credentials)

    def _is_open(self, model: str | None) -> bool:
        """Return whether other hosts may manage a model or, without one, the server."""
        if self.options.multi_model:
            return True
        served = self._models.models.values()
        everywhere = self.options.open_management or (
            bool(served) and all(each.server.open_management for each in served)
        )
        if model is None:
            return everywhere
        try:
            return self._models.find(model).server.open_management
        except LmiError:  # not a known model
            return everywhere
