"""Tables of the store in PostgreSQL, as numbered steps that are never changed once released."""

from __future__ import annotations

from detector.errors import StoreError
from detector.postgres.server import SCHEMA, Server
from detector.store_contract import Statements

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE incidents (
            id text PRIMARY KEY,
            node text NOT NULL,
            state text NOT NULL,
            active_at double precision NOT NULL,
            suspect_at double precision,
            cleared_at double precision,
            peak_score double precision NOT NULL,
            body bytea NOT NULL
        )
        """,
        "CREATE INDEX incidents_by_time ON incidents (active_at)",
        "CREATE INDEX incidents_by_node ON incidents (node, active_at)",
        "CREATE INDEX incidents_open ON incidents (state) WHERE state <> 'cleared'",
        """
        CREATE TABLE transitions (
            incident_id text NOT NULL,
            at double precision NOT NULL,
            before text NOT NULL,
            after text NOT NULL,
            node text NOT NULL,
            reason text NOT NULL,
            PRIMARY KEY (incident_id, at, before, after)
        )
        """,
        "CREATE INDEX transitions_by_time ON transitions (at)",
        """
        CREATE TABLE group_events (
            id text PRIMARY KEY,
            pool text NOT NULL,
            started_at double precision NOT NULL,
            ended_at double precision,
            body bytea NOT NULL
        )
        """,
        "CREATE INDEX group_events_by_time ON group_events (started_at)",
        "CREATE TABLE state (name text PRIMARY KEY, at double precision NOT NULL, body bytea NOT NULL)",
        "CREATE TABLE meta (name text PRIMARY KEY, value double precision NOT NULL)",
        """
        CREATE TABLE mutes (
            id text PRIMARY KEY,
            start double precision NOT NULL,
            until double precision NOT NULL,
            ended_at double precision,
            body bytea NOT NULL
        )
        """,
        "CREATE INDEX mutes_by_time ON mutes (start)",
        """
        CREATE TABLE feedback (
            incident_id text PRIMARY KEY,
            node text NOT NULL,
            verdict text NOT NULL,
            at double precision NOT NULL,
            started_at double precision NOT NULL,
            ended_at double precision,
            body bytea NOT NULL
        )
        """,
        "CREATE INDEX feedback_by_time ON feedback (started_at)",
        """
        CREATE TABLE repairs (
            node text PRIMARY KEY,
            at double precision NOT NULL,
            evaluated_at double precision NOT NULL
        )
        """,
        """
        CREATE TABLE audit (
            number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            at double precision NOT NULL,
            by text NOT NULL,
            action text NOT NULL,
            subject text NOT NULL,
            note text NOT NULL
        )
        """,
        """
        CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'the audit trail is append-only'; END $$
        """,
        """
        CREATE TRIGGER audit_is_not_changed BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
        FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only()
        """,
        # of delivery: what is out, what is to be told, who was told up to where
        "CREATE TABLE told (key text PRIMARY KEY, body bytea NOT NULL)",
        """
        CREATE TABLE outbox (
            seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            id text NOT NULL UNIQUE,
            made_at double precision NOT NULL,
            body bytea NOT NULL
        )
        """,
        "CREATE TABLE told_up_to (receiver text PRIMARY KEY, seq bigint NOT NULL)",
    ),
)
VERSION = len(MIGRATIONS)


def prepare(to: Statements, name: str) -> None:
    """Bring the schema to the newest version within one transaction.

    Parameters
    ----------
    to
        The transaction.
    name
        The store, for messages.

    Raises
    ------
    StoreError
        When the schema belongs to another program or to a newer version.
    """
    if to.execute("SELECT to_regnamespace(?1) IS NULL", (SCHEMA,)).fetchone()[0]:
        to.execute(f"CREATE SCHEMA {SCHEMA}")
    version = version_of(to)
    if version is None:
        of_others = "SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace(?1)"
        if to.execute(of_others, (SCHEMA,)).fetchone()[0]:
            raise StoreError(f"{name}: the schema {SCHEMA} belongs to another program and is left alone")
        to.execute("CREATE TABLE oddnode_schema (version integer NOT NULL)")
        to.execute("INSERT INTO oddnode_schema VALUES (0)")
        version = 0
    if version > VERSION:
        raise StoreError(
            f"{name}: was written by a newer version (schema {version}, this one knows up to {VERSION})"
        )
    for statements in MIGRATIONS[version:]:
        for statement in statements:
            to.execute(statement)
    to.execute("UPDATE oddnode_schema SET version = ?1", (VERSION,))


def version_of(to: Statements) -> int | None:
    """Return the version of the schema, None when there is none of ours."""
    if to.execute("SELECT to_regclass(?1) IS NULL", (f"{SCHEMA}.oddnode_schema",)).fetchone()[0]:
        return None
    return int(to.execute("SELECT version FROM oddnode_schema").fetchone()[0])


def is_there(server: Server) -> bool:
    """Tell whether the schema was made.

    Raises
    ------
    StoreError
        When the server cannot be reached.
    """
    with server.pooled("cannot be read", changes=False) as session:
        return version_of(session) is not None
