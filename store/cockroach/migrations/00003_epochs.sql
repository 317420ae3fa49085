-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS epochs (
    shard     INT4 NOT NULL,
    epoch     INT8 NOT NULL,
    owner     TEXT NOT NULL,
    owner_gen INT8 NOT NULL,
    owner_rev INT8 NOT NULL,
    taken_at  INT8 NOT NULL,
    PRIMARY KEY (shard, epoch)
);

-- +goose Down
DROP TABLE IF EXISTS epochs;
