-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE jobs ADD COLUMN IF NOT EXISTS ended_by_itself BOOL NOT NULL DEFAULT false;

-- +goose Down
ALTER TABLE jobs DROP COLUMN IF EXISTS ended_by_itself;
