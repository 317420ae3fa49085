-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS skips (
    shard     INT4 NOT NULL,
    uid       BYTEA NOT NULL,
    to_time   INT8 NOT NULL,
    from_time INT8 NOT NULL,
    count     INT8 NOT NULL,
    code      TEXT NOT NULL,
    made_at   INT8 NOT NULL,
    PRIMARY KEY (shard, uid, to_time)
);

-- +goose Down
DROP TABLE IF EXISTS skips;
