-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS policies TEXT NOT NULL DEFAULT '{}';

-- +goose Down
ALTER TABLE jobs DROP COLUMN IF EXISTS policies;
