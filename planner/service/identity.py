"""Who calls, and what they may do.

The identities file (YAML)::

    identities:
      - name: scheduler
        role: plan                       # read | plan | admin
        token_sha256: 5e884898da280471…  # or a list of them, while a token is being replaced
        expires: 2027-01-31T00:00:00Z    # optional
        weight: 4                        # optional: share of the slots when all are wanted
        rate_per_s: 50                   # optional: replaces caller_rate_per_s
        burst: 200                       # optional: replaces caller_burst
      - name: dashboard
        role: read
        certificate: dashboard.example.org   # common name or a SAN of its client certificate

Each entry has ``token_sha256`` or ``certificate``. Tokens are sent as the metadata
``authorization: Bearer TOKEN``, over TLS or from the same machine; the file holds their SHA-256
alone (`new_token`). The file may change while the server runs.

Without a file, a verified client certificate (mutual TLS) names a caller of role ``plan``; and
without either, callers are anonymous, told apart by their address, and may do everything if they
are on this machine or the server was started as ``insecure``.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import urllib.parse
from collections.abc import Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Final, Literal

import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from planner.errors import FileFormatError
from planner.service.errors import permission_denied, unauthenticated
from planner.service.reloading import ReloadingFiles
from planner.service.settings import ServiceSettings

__all__ = [
    "LEAST_ROLES",
    "Caller",
    "Identities",
    "Role",
    "authorise",
    "current_caller",
    "is_local",
    "new_token",
]


class Role(IntEnum):
    """What a caller may do; each role may do what those before it may."""

    READ = 1
    """Look at what is kept: plans, the catalog, one's own operations."""
    PLAN = 2
    """Ask for work, and end what one began."""
    ADMIN = 3
    """Also see and end what others began."""


_PLANNER = "/planner.v1.PlannerService/"
_OPERATIONS = "/google.longrunning.Operations/"

LEAST_ROLES: Final[Mapping[str, Role | None]] = {
    **{
        _PLANNER + name: Role.PLAN
        for name in (
            "SolvePlan",
            "StreamPlan",
            "PartitionStages",
            "EvaluatePlan",
            "ExplainPlan",
            "SimulateSchedule",
            "ComputeScalingCurve",
            "BatchComputeScalingCurves",
            "CreatePlan",
            "PutModel",
        )
    },
    **{_PLANNER + name: Role.READ for name in ("GetPlan", "ListPlans", "ListCatalog")},
    # Of one's own operations; those of others need `Caller.may_touch`.
    **{_OPERATIONS + n: Role.READ for n in ("GetOperation", "ListOperations", "WaitOperation")},
    **{_OPERATIONS + name: Role.PLAN for name in ("CancelOperation", "DeleteOperation")},
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Role.READ,
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": Role.READ,
    # Probes of a cluster have no token.
    "/grpc.health.v1.Health/Check": None,
    "/grpc.health.v1.Health/List": None,
    "/grpc.health.v1.Health/Watch": None,
}
"""Of each method; a method that is not listed needs `Role.ADMIN`, None needs nobody."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody whose name is known; quotas and shares are kept by name."""

    name: str
    role: Role
    weight: float = 1.0
    rate_per_s: float | None = None
    burst: int = 100

    def may_touch(self, owner: str) -> bool:
        """Whether what ``owner`` began is theirs to see and to end."""
        return self.name == owner or self.role is Role.ADMIN


current_caller: ContextVar[Caller] = ContextVar("current_caller")
"""Who made the call that this code runs for (absent in health checks)."""


def new_token() -> tuple[str, str]:
    """A new bearer token and its SHA-256, which goes into the identities file.

    Examples
    --------
    >>> token, sha256 = new_token()
    >>> token.startswith("plt_"), len(sha256)
    (True, 64)
    """
    token = "plt_" + secrets.token_urlsafe(32)
    return token, _sha256(token)


def _sha256(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# The file


_Digest = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
_Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[\w.@:/+-]+$")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    name: _Name
    role: Literal["read", "plan", "admin"]
    token_sha256: Annotated[tuple[_Digest, ...], Field(max_length=8)] = ()
    certificate: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    expires: AwareDatetime | None = None
    weight: Annotated[float, Field(gt=0, le=1_000)] = 1.0
    rate_per_s: Annotated[float, Field(gt=0, le=1e6)] | None = None
    burst: Annotated[int, Field(ge=1, le=1_000_000)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_token_is_a_list(cls, data: object) -> object:
        if isinstance(data, dict) and isinstance(data.get("token_sha256"), str):
            return {**data, "token_sha256": [data["token_sha256"]]}
        return data

    @model_validator(mode="after")
    def _one_way_to_be_known(self) -> _Entry:
        if bool(self.token_sha256) == (self.certificate is not None):
            raise ValueError("give one of token_sha256 and certificate")
        if self.name.startswith("anonymous@"):
            raise ValueError("names that begin with anonymous@ are the server's own")
        return self


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    identities: Annotated[tuple[_Entry, ...], Field(min_length=1, max_length=10_000)]


@dataclass(frozen=True, slots=True)
class _Known:
    tokens: tuple[tuple[str, _Entry], ...]
    certificates: Mapping[str, _Entry]


def _parse(path: Path, content: bytes) -> _Known:
    try:
        data = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The parser's own message quotes lines of the file, which may hold a token by mistake.
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark is not None else None
        raise FileFormatError("is no YAML", file=str(path), line=line) from None
    try:
        found = _File.model_validate(data)
    except ValidationError as error:
        raise _problem(path, error) from None
    tokens: dict[str, _Entry] = {}
    certificates: dict[str, _Entry] = {}
    names: set[str] = set()
    for position, entry in enumerate(found.identities):
        key = f"identities[{position}]"
        if entry.name in names:
            raise FileFormatError("is there twice", file=str(path), key=key, value=entry.name)
        names.add(entry.name)
        for digest in entry.token_sha256:
            if digest.lower() in tokens:
                raise FileFormatError("the same token twice", file=str(path), key=key)
            tokens[digest.lower()] = entry
        if entry.certificate is not None:
            if entry.certificate in certificates:
                raise FileFormatError(
                    "is there twice", file=str(path), key=key, value=entry.certificate
                )
            certificates[entry.certificate] = entry
    return _Known(tuple(tokens.items()), certificates)


def _problem(path: Path, error: ValidationError) -> FileFormatError:
    """The first problem, with its key; what stands for a token is not repeated."""
    first = error.errors(include_url=False)[0]
    key = ""
    for part in first["loc"]:
        key += f"[{part}]" if isinstance(part, int) else f".{part}"
    given = first.get("input")
    secret = "token" in key or not isinstance(given, str | int | float)
    problem = first["msg"].removeprefix("Value error, ")
    return FileFormatError(
        problem[:1].lower() + problem[1:],
        file=str(path),
        key=key.lstrip(".") or None,
        value=None if secret else given,
    )


# Who it is


class Identities:
    """Finds out who calls.

    Parameters
    ----------
    file
        The identities file, or None.
    certificates
        Whether client certificates are verified (mutual TLS); others are not looked at.
    insecure
        Accept tokens in plaintext and anonymous callers from elsewhere.
    rate_per_s, burst
        Quota of those who have none of their own.

    Raises
    ------
    planner.errors.InputError
        The file cannot be used.
    """

    def __init__(
        self,
        file: Path | None = None,
        *,
        certificates: bool = False,
        insecure: bool = False,
        rate_per_s: float | None = None,
        burst: int = 100,
        reload_s: float = 10.0,
    ) -> None:
        self._known = (
            ReloadingFiles([file], lambda contents: _parse(file, contents[0]), reload_s)
            if file is not None
            else None
        )
        self._certificates = certificates
        self._insecure = insecure
        self._rate_per_s = rate_per_s
        self._burst = burst

    @classmethod
    def from_settings(cls, settings: ServiceSettings) -> Identities:
        """As the operator set it."""
        return cls(
            settings.identities_file,
            certificates=settings.tls_client_ca_file is not None,
            insecure=settings.insecure,
            rate_per_s=settings.caller_rate_per_s,
            burst=settings.caller_burst,
            reload_s=settings.tls_reload_s,
        )

    def caller_of(
        self,
        metadata: Iterable[tuple[str, str | bytes]],
        peer: str,
        auth_context: Mapping[str, Iterable[bytes]],
    ) -> Caller:
        """Who sent a call with these metadata, from this peer (as gRPC's context has them).

        Raises
        ------
        planner.service.errors.ServiceError
            UNAUTHENTICATED, with the reason why.
        """
        sent = [value for key, value in metadata if key.lower() == "authorization"]
        if self._known is not None:
            known = self._known.current()
            if sent:
                return self._of_token(known, sent, peer, auth_context)
            return self._of_entry(_of_certificate(known, self._subjects(auth_context)))
        if self._certificates:
            subjects = self._subjects(auth_context)
            return Caller(subjects[0], Role.PLAN, 1.0, self._rate_per_s, self._burst)
        if self._insecure or is_local(peer):
            name = f"anonymous@{_address(peer)}"
            return Caller(name, Role.ADMIN, 1.0, self._rate_per_s, self._burst)
        raise unauthenticated("MISSING_CREDENTIALS", "this server does not know who calls")

    def _of_token(
        self,
        known: _Known,
        sent: Sequence[str | bytes],
        peer: str,
        auth_context: Mapping[str, Iterable[bytes]],
    ) -> Caller:
        encrypted = b"ssl" in auth_context.get("transport_security_type", ())
        if not (encrypted or is_local(peer) or self._insecure):
            raise unauthenticated(
                "TOKEN_OVER_PLAINTEXT",
                "a token came without TLS: use TLS, and replace the token, which others may have",
            )
        bad = unauthenticated("BAD_TOKEN", "the bearer token is not one of this server's")
        text = sent[0] if isinstance(sent[0], str) else sent[0].decode("utf-8", "replace")
        scheme, _, token = text.strip().partition(" ")
        if len(sent) != 1 or scheme.lower() != "bearer" or not 0 < len(token) <= 4_096:
            raise bad
        digest = _sha256(token.strip())
        found = None
        for expected, entry in known.tokens:  # all of them, so that time says nothing
            if hmac.compare_digest(expected, digest):
                found = entry
        if found is None:
            raise bad
        return self._of_entry(found)

    def _subjects(self, auth_context: Mapping[str, Iterable[bytes]]) -> list[str]:
        """Names in the verified client certificate, the common name first."""
        keys = ("x509_common_name", "x509_subject_alternative_name") if self._certificates else ()
        found = [
            name.decode("utf-8", "replace") for key in keys for name in auth_context.get(key, ())
        ]
        if not [name for name in found if name]:
            ways = "a bearer token" + (" or a client certificate" if self._certificates else "")
            raise unauthenticated("MISSING_CREDENTIALS", f"{ways} is needed")
        return [name for name in found if name]

    def _of_entry(self, entry: _Entry) -> Caller:
        if entry.expires is not None and datetime.now(UTC) >= entry.expires:
            raise unauthenticated("CREDENTIALS_EXPIRED", "these credentials have expired")
        return Caller(
            entry.name,
            Role[entry.role.upper()],
            entry.weight,
            self._rate_per_s if entry.rate_per_s is None else entry.rate_per_s,
            self._burst if entry.burst is None else entry.burst,
        )


def _of_certificate(known: _Known, subjects: Sequence[str]) -> _Entry:
    for subject in subjects:
        if subject in known.certificates:
            return known.certificates[subject]
    raise unauthenticated("UNKNOWN_CERTIFICATE", "no identity has this client certificate")


def authorise(caller: Caller, method: str) -> None:
    """Refuse a method (``/package.Service/Method``) that needs a higher role.

    Raises
    ------
    planner.service.errors.ServiceError
        PERMISSION_DENIED, ROLE_TOO_LOW.
    """
    least = LEAST_ROLES.get(method, Role.ADMIN)
    if least is not None and caller.role < least:
        has, needs = caller.role.name.lower(), least.name.lower()
        name = method.rpartition("/")[2]
        raise permission_denied(
            "ROLE_TOO_LOW",
            f"{name} needs the role {needs}; {caller.name} has {has}",
            method=name,
            needed_role=needs,
            caller=caller.name,
            role=has,
        )


# Where it comes from


def _address(peer: str) -> str:
    """Address of a gRPC peer (``ipv4:1.2.3.4:567``), without the port.

    Examples
    --------
    >>> _address("ipv6:%5B::1%5D:50051"), _address("unix:")
    ('::1', 'unix')
    """
    kind, _, rest = urllib.parse.unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return kind
    return rest.rpartition(":")[0].strip("[]").partition("%")[0]


def is_local(peer: str) -> bool:
    """Whether a gRPC peer is on this machine.

    Examples
    --------
    >>> [is_local(p) for p in ("ipv4:127.0.0.1:9", "unix:/x", "ipv4:10.0.0.1:9")]
    [True, True, False]
    """
    address = _address(peer)
    if address in ("unix", "unix-abstract"):
        return True
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
