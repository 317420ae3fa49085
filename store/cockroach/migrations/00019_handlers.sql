-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS handlers (
    name         TEXT PRIMARY KEY,
    created_at   INT8 NOT NULL,
    last_seen_at INT8 NOT NULL
);

-- +goose Down
DROP TABLE IF EXISTS handlers;
