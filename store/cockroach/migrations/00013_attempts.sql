-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS attempts (
    shard      INT4 NOT NULL,
    fire_time  INT8 NOT NULL,
    uid        BYTEA NOT NULL,
    attempt    INT4 NOT NULL,
    worker     TEXT NOT NULL,
    epoch      INT8 NOT NULL,
    claimed_at INT8 NOT NULL,
    started_at INT8 NOT NULL,
    ended_at   INT8 NOT NULL,
    outcome    INT2 NOT NULL,
    error_code TEXT NOT NULL,
    error_text TEXT NOT NULL,
    late       TEXT NOT NULL,
    PRIMARY KEY (shard, fire_time, uid, attempt)
);

-- +goose Down
DROP TABLE IF EXISTS attempts;
