-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS meta (
    key   TEXT PRIMARY KEY,
    value INT8 NOT NULL
);

-- +goose Down
DROP TABLE IF EXISTS meta;
