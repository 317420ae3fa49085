-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS jobs_ended ON jobs (shard, ended_at) WHERE ended_at IS NOT NULL;

-- +goose Down
DROP INDEX IF EXISTS jobs_ended;
