-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS jobs (
    shard          INT4 NOT NULL,
    uid            BYTEA NOT NULL,
    namespace      TEXT NOT NULL,
    name           TEXT NOT NULL,
    handler        TEXT NOT NULL,
    params         BYTEA NOT NULL CHECK (length(params) <= 1048576),
    kind           INT2 NOT NULL,
    fire_at        INT8,
    schedule       TEXT NOT NULL,
    retry          TEXT NOT NULL,
    timeout_us     INT8 NOT NULL,
    created_at     INT8 NOT NULL,
    effective_from INT8 NOT NULL,
    ended_at       INT8,
    request_id     TEXT,
    request_hash   TEXT NOT NULL,
    quarantine     TEXT,
    PRIMARY KEY (shard, uid)
);

-- +goose Down
DROP TABLE IF EXISTS jobs;
