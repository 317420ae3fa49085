-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS gaps (
    shard       INT4 NOT NULL,
    to_time     INT8 NOT NULL,
    uid         BYTEA NOT NULL,
    from_time   INT8 NOT NULL,
    cursor_time INT8 NOT NULL,
    cursor_uid  BYTEA NOT NULL,
    made_at     INT8 NOT NULL,
    PRIMARY KEY (shard, to_time, uid)
);

-- +goose Down
DROP TABLE IF EXISTS gaps;
