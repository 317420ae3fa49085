-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS backlog (
    shard     INT4 NOT NULL,
    waiting   BOOL NOT NULL,
    handler   TEXT NOT NULL,
    priority  INT4 NOT NULL,
    fairness  TEXT NOT NULL,
    ready_at  INT8 NOT NULL,
    fire_time INT8 NOT NULL,
    uid       BYTEA NOT NULL,
    wake_at   INT8 NOT NULL,
    PRIMARY KEY (shard, waiting, handler, priority, fairness, ready_at, fire_time, uid)
);

-- +goose Down
DROP TABLE IF EXISTS backlog;
