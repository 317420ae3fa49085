-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS shards (
    shard     INT4 PRIMARY KEY,
    owner     TEXT NOT NULL,
    epoch     INT8 NOT NULL,
    owner_gen INT8 NOT NULL,
    owner_rev INT8 NOT NULL,
    watermark INT8 NOT NULL,
    open_from INT8 NOT NULL
);

-- +goose Down
DROP TABLE IF EXISTS shards;
