-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS slots (
    shard       INT4 NOT NULL,
    fire_time   INT8 NOT NULL,
    uid         BYTEA NOT NULL,
    trigger     INT2 NOT NULL,
    state       INT2 NOT NULL,
    attempt     INT4 NOT NULL,
    failures    INT4 NOT NULL,
    epoch       INT8 NOT NULL,
    worker      TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    created_at  INT8 NOT NULL,
    claimed_at  INT8 NOT NULL,
    started_at  INT8 NOT NULL,
    finished_at INT8 NOT NULL,
    not_before  INT8 NOT NULL,
    deadline    INT8 NOT NULL,
    outcome     INT2 NOT NULL,
    error_code  TEXT NOT NULL,
    error_text  TEXT NOT NULL,
    result      BYTEA NOT NULL CHECK (length(result) <= 1048576),
    PRIMARY KEY (shard, fire_time, uid)
);

-- +goose Down
DROP TABLE IF EXISTS slots;
