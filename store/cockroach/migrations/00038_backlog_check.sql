-- +goose NO TRANSACTION
-- +goose Up
ALTER TABLE backlog ADD COLUMN IF NOT EXISTS check_at INT8;

-- +goose Down
ALTER TABLE backlog DROP COLUMN IF EXISTS check_at;
