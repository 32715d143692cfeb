"""Settings of the server: flags over ``PLANNER_*`` variables over a file over defaults."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from planner.errors import InputError
from planner.formats.plan_file import plain_problem
from planner.formats.spelling import did_you_mean

__all__ = ["ServiceSettings", "load_settings"]

Seconds = Annotated[float, Field(gt=0, le=30 * 86_400)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Bytes = Annotated[int, Field(ge=1 << 16, le=1 << 40)]

_GIB, _MIB = 1 << 30, 1 << 20


class ServiceSettings(BaseSettings):
    """Everything that an operator may set."""

    model_config = SettingsConfigDict(
        env_prefix="PLANNER_",
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    # --- where it listens
    host: str = "127.0.0.1"
    """Address to listen on, or unix:PATH."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 50_051
    """0 picks a free one, which the first line of the log says."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] | None = None
    """Prometheus text over HTTP at /metrics; None: not served."""
    reflection: bool = True
    """Whether generic clients may ask what the service offers."""
    max_connection_age_s: Seconds = 300.0
    """Connections are asked to reconnect after this, so that new replicas get traffic."""
    max_concurrent_calls: Count = 2_000
    """Calls in flight; the next one is refused."""

    # --- processes
    slots: Count = Field(default_factory=lambda: max(1, os.cpu_count() or 1))
    """Searches that run at the same time, each in its own process."""
    quick_slots: Count = 1
    """Processes for small questions alone, which never wait behind a search."""
    spare_workers: Annotated[int, Field(ge=0, le=100)] = 1
    """Started ahead, so that a slot whose worker was killed goes on at once."""
    worker_memory_bytes: Bytes = 2 * _GIB
    """Address space that a worker may take beyond what it holds when idle."""
    worker_max_questions: Count = 2_000
    """A worker is replaced after so many."""
    soft_stop_s: Seconds = 0.15
    """How long a worker that was told to stop may take before it is killed."""
    drain_s: Seconds = 20.0
    """After SIGTERM: how long what runs may take before it has to give what it holds."""

    # --- admission
    queue_size: Count = 1_000
    """Requests that may wait for a slot; the next one is refused."""
    caller_queue_size: Count = 500
    """Of one caller."""
    caller_rate_per_s: Annotated[float, Field(gt=0)] | None = None
    """Requests a second and caller, on average; None: no quota."""
    caller_burst: Count = 100
    """How far a caller may run ahead of that."""
    answer_margin_s: Annotated[float, Field(ge=0.01, le=10)] = 0.1
    """How long before the caller's deadline an answer leaves (at least 50 ms are promised)."""

    # --- what a request may ask
    max_message_bytes: Bytes = 16 * _MIB
    """Of one request; clients have a limit of their own for answers."""
    max_layers: Count = 20_000
    """Of one model."""
    max_jobs: Count = 2_000
    """Of one BatchComputeScalingCurves."""
    max_sizes: Count = 1_000
    """Of one scaling curve."""
    max_work_nodes: Count = 1_000_000
    """Deterministic work that a request may ask for."""
    default_wall_time_s: Seconds = 60.0
    """Of a request with neither a deadline nor a limit."""
    max_wall_time_s: Seconds = 3_600.0
    """Of any request, whatever its deadline."""

    # --- what is kept
    store: str = "memory://"
    """``memory://``, ``sqlite:///file`` or ``postgresql+psycopg://...``."""
    plan_ttl_s: Seconds = 86_400.0
    """How long a plan is kept."""
    model_ttl_s: Seconds = 86_400.0
    """How long a model is kept after it was last used."""
    operation_ttl_s: Seconds = 86_400.0
    """How long an operation is kept once it is done."""
    request_ttl_s: Seconds = 3_600.0
    """How long a ``request_id`` is remembered."""
    lease_s: Seconds = 15.0
    """An operation whose replica has not been heard of for this long is taken over."""
    cache_bytes: Bytes = 256 * _MIB
    """Memory for finished answers."""

    # --- who may call
    tls_certificate_file: Path | None = None
    """PEM chain of the server; asks for TLS."""
    tls_key_file: Path | None = None
    """PEM key of the certificate."""
    tls_client_ca_file: Path | None = None
    """Clients must show a certificate of this authority (mutual TLS)."""
    tls_reload_s: Seconds = 10.0
    """How often certificate files are looked at again."""
    identities_file: Path | None = None
    """YAML of who may do what: bearer tokens (as SHA-256) and client certificates with roles."""
    insecure: bool = False
    """Listen beyond loopback without TLS, or without asking who calls."""

    # --- what it says
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """What is logged at least."""
    log_format: Literal["json", "text"] = "json"
    """Lines for machines or for people."""
    otlp_endpoint: str | None = None
    """Where OpenTelemetry spans go (the ``telemetry`` extra)."""

    @model_validator(mode="after")
    def _together(self) -> ServiceSettings:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file go together")
        if self.tls_client_ca_file is not None and self.tls_certificate_file is None:
            raise ValueError("tls_client_ca_file needs tls_certificate_file")
        loopback = self.host in ("127.0.0.1", "::1", "localhost") or self.host.startswith("unix:")
        if not loopback and not self.insecure:
            if self.tls_certificate_file is None:
                raise ValueError(
                    f"host {self.host} is reached from outside and there is no TLS; "
                    "give tls_certificate_file and tls_key_file, or insecure"
                )
            if self.tls_client_ca_file is None and self.identities_file is None:
                raise ValueError(
                    f"host {self.host} is reached from outside and anybody may call; "
                    "give identities_file or tls_client_ca_file, or insecure"
                )
        return self

    @property
    def address(self) -> str:
        """What the server binds to."""
        if self.host.startswith("unix:"):
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    if first["type"] == "extra_forbidden":
        return f"setting {'.'.join(map(str, first['loc']))}: is not known here"
    return f"setting {plain_problem(error)}"


def _nearest_setting(error: ValidationError) -> str | None:
    """A hint at the setting that may have been meant instead of an unknown one."""
    first = error.errors(include_url=False)[0]
    if first["type"] != "extra_forbidden":
        return None
    return did_you_mean(str(first["loc"][0]), ServiceSettings.model_fields)


def load_settings(file: Path | None = None, **flags: object) -> ServiceSettings:
    """Settings from a YAML file, the environment and flags; what is None was not given.

    Raises
    ------
    InputError
        A setting that cannot be used, in one sentence.

    Examples
    --------
    >>> load_settings(port=0, slots=2).slots
    2
    """

    class _WithFile(ServiceSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            if file is None:
                return init_settings, env_settings
            return init_settings, env_settings, YamlConfigSettingsSource(settings_cls, file)

    if file is not None and not file.is_file():
        raise InputError("no such settings file", file=str(file))
    try:
        found = _WithFile(**{name: value for name, value in flags.items() if value is not None})  # type: ignore[arg-type]
    except ValidationError as error:
        raise InputError(_problem(error), fix=_nearest_setting(error)) from None
    except Exception as error:  # a YAML error, whose class belongs to the YAML library
        raise InputError("cannot be read", file=str(file), expected=str(error)) from None
    return ServiceSettings.model_construct(**found.model_dump())
