-- tasks.sqlite, version 1. Read by checkpoints.py; made in one transaction.
--
-- `document` is the checkpoint as JSON and the only truth of a task; the columns beside it are
-- generated from it, so that they can be indexed and read by outside tools and cannot disagree.
-- The lease stands apart: it says who may write, and is no part of what is saved.

CREATE TABLE tasks (
    id TEXT PRIMARY KEY,
    document TEXT NOT NULL CHECK (json_valid(document)),
    revision INTEGER GENERATED ALWAYS AS (json_extract(document, '$.revision')) STORED,
    stage TEXT GENERATED ALWAYS AS (json_extract(document, '$.stage')) STORED,
    updated_at TEXT GENERATED ALWAYS AS (json_extract(document, '$.updatedAt')) STORED,
    next_attempt_at TEXT GENERATED ALWAYS AS (json_extract(document, '$.nextAttemptAt')) STORED,
    dead INTEGER GENERATED ALWAYS AS (json_type(document, '$.deadLetter') = 'object') STORED,
    fencing_token INTEGER NOT NULL DEFAULT 0,
    lease_holder TEXT,
    lease_path TEXT,
    lease_inode INTEGER,
    lease_expires_at REAL
) STRICT, WITHOUT ROWID;

CREATE INDEX tasks_by_stage ON tasks (stage, updated_at, id);
CREATE INDEX tasks_by_update ON tasks (updated_at, id);
CREATE INDEX tasks_by_holder ON tasks (lease_holder) WHERE lease_holder IS NOT NULL;

CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    task_id TEXT NOT NULL REFERENCES tasks (id),
    revision INTEGER NOT NULL,
    kind TEXT NOT NULL,
    at TEXT NOT NULL,
    data TEXT NOT NULL CHECK (json_valid(data))
) STRICT;

CREATE INDEX events_by_task ON events (task_id, seq);

-- The history is written once.
CREATE TRIGGER events_are_permanent BEFORE UPDATE ON events
BEGIN
    SELECT RAISE(ABORT, 'events are permanent');
END;
