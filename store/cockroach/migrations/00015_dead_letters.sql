-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS dead_letters (
    shard     INT4 NOT NULL,
    fire_time INT8 NOT NULL,
    uid       BYTEA NOT NULL,
    handler   TEXT NOT NULL,
    dead_at   INT8 NOT NULL,
    PRIMARY KEY (shard, fire_time, uid)
);

-- +goose Down
DROP TABLE IF EXISTS dead_letters;
