-- The ledger, version 1. Outside tools may read these tables while the service runs.
-- What must never happen is refused here too, so that a mistake in the code is an error
-- and not a wrong stock.

CREATE TABLE ledger (
    singleton INTEGER PRIMARY KEY CHECK (singleton = 1),
    id        TEXT NOT NULL,          -- made once, with the database
    at        TEXT NOT NULL
);

-- For each sku: initial_quantity = quantity + active reservations + shipped reservations.
CREATE TABLE inventory (
    sku              TEXT PRIMARY KEY NOT NULL,
    quantity         INTEGER NOT NULL
                     CHECK (typeof(quantity) = 'integer' AND quantity BETWEEN 0 AND initial_quantity),
    initial_quantity INTEGER NOT NULL CHECK (typeof(initial_quantity) = 'integer')
);

CREATE TABLE operations (
    seq             INTEGER PRIMARY KEY,   -- the order of the claims
    key             TEXT NOT NULL UNIQUE,
    kind            TEXT NOT NULL CHECK (kind IN ('reserve', 'ship', 'release')),
    state           TEXT NOT NULL DEFAULT 'pending'
                    CHECK (state IN ('pending', 'committed', 'rejected')),
    fingerprint     TEXT NOT NULL,
    code            TEXT,                  -- why it was rejected
    task_uid        TEXT NOT NULL,
    sku             TEXT NOT NULL,
    quantity        INTEGER NOT NULL CHECK (typeof(quantity) = 'integer' AND quantity BETWEEN 1 AND 100),
    address         TEXT NOT NULL,
    reservation_key TEXT NOT NULL,
    claimed_at      TEXT NOT NULL,
    settled_at      TEXT,
    CHECK ((state = 'rejected') = (code IS NOT NULL)),
    CHECK ((state = 'pending') = (settled_at IS NULL))
);

-- Start-up looks for these, whatever the ledger has grown to.
CREATE INDEX operations_pending ON operations (seq) WHERE state = 'pending';

CREATE TABLE reservations (
    key      TEXT PRIMARY KEY NOT NULL REFERENCES operations (key),
    sku      TEXT NOT NULL REFERENCES inventory (sku),
    quantity INTEGER NOT NULL CHECK (typeof(quantity) = 'integer' AND quantity BETWEEN 1 AND 100),
    status   TEXT NOT NULL DEFAULT 'active' CHECK (status IN ('active', 'shipped', 'released')),
    task_uid TEXT NOT NULL
);

CREATE TABLE shipments (
    key             TEXT PRIMARY KEY NOT NULL REFERENCES operations (key),
    reservation_key TEXT NOT NULL UNIQUE REFERENCES reservations (key),
    address         TEXT NOT NULL
);

-- Every request that was received whole or refused, in the order of arrival.
CREATE TABLE requests (
    seq    INTEGER PRIMARY KEY,
    at     TEXT NOT NULL,             -- UTC, RFC 3339
    method TEXT NOT NULL,
    path   TEXT NOT NULL,
    query  TEXT NOT NULL DEFAULT '',
    key    TEXT,                      -- the operation that was asked for
    status INTEGER                    -- NULL: not answered (yet); 0: dropped by a fault switch
);

CREATE TRIGGER verdict_is_permanent BEFORE UPDATE ON operations WHEN OLD.state <> 'pending'
BEGIN SELECT RAISE(ABORT, 'a verdict is permanent'); END;

CREATE TRIGGER request_is_permanent BEFORE UPDATE ON operations
WHEN NEW.key <> OLD.key OR NEW.kind <> OLD.kind OR NEW.fingerprint <> OLD.fingerprint
  OR NEW.task_uid <> OLD.task_uid OR NEW.sku <> OLD.sku OR NEW.quantity <> OLD.quantity
  OR NEW.address <> OLD.address OR NEW.reservation_key <> OLD.reservation_key
BEGIN SELECT RAISE(ABORT, 'what was claimed cannot change'); END;

CREATE TRIGGER operation_is_kept BEFORE DELETE ON operations
BEGIN SELECT RAISE(ABORT, 'an operation is never forgotten'); END;

CREATE TRIGGER reservation_ends_once BEFORE UPDATE ON reservations WHEN OLD.status <> 'active'
BEGIN SELECT RAISE(ABORT, 'a reservation ends once'); END;

CREATE TRIGGER reservation_is_kept BEFORE DELETE ON reservations
BEGIN SELECT RAISE(ABORT, 'a reservation is never forgotten'); END;
