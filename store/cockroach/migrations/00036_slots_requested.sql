-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE slots ADD COLUMN IF NOT EXISTS requested_at INT8 NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE slots DROP COLUMN IF EXISTS requested_at;
