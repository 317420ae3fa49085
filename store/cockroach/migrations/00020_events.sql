-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS events (
    shard     INT4 NOT NULL,
    epoch     INT8 NOT NULL,
    seq       INT8 NOT NULL,
    at        INT8 NOT NULL,
    kind      TEXT NOT NULL,
    uid       BYTEA,
    fire_time INT8 NOT NULL,
    detail    TEXT NOT NULL,
    PRIMARY KEY (shard, epoch, seq)
);

-- +goose Down
DROP TABLE IF EXISTS events;
