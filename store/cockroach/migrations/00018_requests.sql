-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS requests (
    shard      INT4 NOT NULL,
    namespace  TEXT NOT NULL,
    request_id TEXT NOT NULL,
    hash       TEXT NOT NULL,
    fire_time  INT8 NOT NULL,
    uid        BYTEA NOT NULL,
    PRIMARY KEY (shard, namespace, request_id)
);

-- +goose Down
DROP TABLE IF EXISTS requests;
