-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS inbox (
    shard INT4 NOT NULL,
    uid   BYTEA NOT NULL,
    PRIMARY KEY (shard, uid)
);

-- +goose Down
DROP TABLE IF EXISTS inbox;
