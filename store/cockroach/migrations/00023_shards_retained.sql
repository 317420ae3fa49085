-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE shards ADD COLUMN IF NOT EXISTS retained_from INT8 NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE shards DROP COLUMN IF EXISTS retained_from;
