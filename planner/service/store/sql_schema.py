"""Tables of the plan store, for SQLite and PostgreSQL alike."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    func,
    insert,
    select,
    text,
)

from planner.errors import InputError

__all__ = ["METADATA", "MODELS", "OPERATIONS", "PLANS", "REQUESTS", "create_schema"]

SCHEMA_VERSION = 1
_CREATION_LOCK = 0x7374_6167_6570
"""Key of the PostgreSQL advisory lock under which tables are made."""

METADATA = MetaData()
# Keys are compared byte by byte, whatever the database's language, as Python compares them.
_KEY = Text().with_variant(Text(collation="C"), "postgresql")
_UNFINISHED = text("state IN ('pending', 'running')")

_SCHEMA = Table("stageplan_schema", METADATA, Column("version", Integer, primary_key=True))

OPERATIONS = Table(
    "stageplan_operations",
    METADATA,
    Column("name", _KEY, primary_key=True),
    Column("caller", _KEY, nullable=False),
    Column("method", _KEY, nullable=False),
    Column("request_id", _KEY),
    Column("request_hash", _KEY, nullable=False),
    Column("request_bytes", LargeBinary, nullable=False),
    Column("state", _KEY, nullable=False),
    Column("progress_bytes", LargeBinary, nullable=False),
    Column("result_bytes", LargeBinary, nullable=False),
    Column("error_code", Integer, nullable=False),
    Column("error_bytes", LargeBinary, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("owner", _KEY),
    Column("lease_until", Double),
    Column("created_at", Double, nullable=False),
    Column("updated_at", Double, nullable=False),
    Column("ttl_s", Double, nullable=False),
    Column("expires_at", Double),
    UniqueConstraint("caller", "request_id", name="stageplan_operations_request"),
    Index("stageplan_operations_listed", "created_at", "name"),
    Index("stageplan_operations_of_caller", "caller", "created_at", "name"),
    Index("stageplan_operations_expiry", "expires_at"),
    Index(
        "stageplan_operations_unfinished",
        "created_at",
        "name",
        sqlite_where=_UNFINISHED,
        postgresql_where=_UNFINISHED,
    ),
)

REQUESTS = Table(
    "stageplan_requests",
    METADATA,
    Column("caller", _KEY, primary_key=True),
    Column("method", _KEY, primary_key=True),
    Column("request_id", _KEY, primary_key=True),
    Column("request_hash", _KEY, nullable=False),
    Column("owner", _KEY, nullable=False),
    Column("lease_until", Double, nullable=False),
    Column("response_bytes", LargeBinary),
    Column("expires_at", Double, nullable=False),
    Index("stageplan_requests_expiry", "expires_at"),
)

MODELS = Table(
    "stageplan_models",
    METADATA,
    Column("content_hash", _KEY, primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("stageplan_models_expiry", "expires_at"),
)

PLANS = Table(
    "stageplan_plans",
    METADATA,
    Column("plan_id", _KEY, primary_key=True),
    Column("caller", _KEY, primary_key=True),
    Column("model", _KEY, nullable=False),
    Column("cluster", _KEY, nullable=False),
    Column("status", _KEY, nullable=False),
    Column("num_gpus", BigInteger, nullable=False),
    Column("step_time_ms", Double),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Index("stageplan_plans_listed", "created_at", "plan_id", "caller"),
    Index("stageplan_plans_of_caller", "caller", "created_at", "plan_id"),
    Index("stageplan_plans_expiry", "expires_at"),
)


def create_schema(connection: Connection) -> None:
    """Create what is missing, in a transaction that shuts out every other creator.

    Raises
    ------
    InputError
        If the tables are of another version than this code reads.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_CREATION_LOCK)))
    _SCHEMA.create(connection, checkfirst=True)
    found = connection.execute(select(func.max(_SCHEMA.c.version))).scalar()
    if found is None:
        METADATA.create_all(connection, checkfirst=True)
        connection.execute(insert(_SCHEMA).values(version=SCHEMA_VERSION))
    elif found != SCHEMA_VERSION:
        age = "newer" if found > SCHEMA_VERSION else "older"
        raise InputError(
            f"the plan store was made by {age} software: its tables have version {found}, and "
            f"this server reads version {SCHEMA_VERSION}",
            fix="run a server of that version, or give this one an empty database",
        )
