-- +goose NO TRANSACTION
-- +goose Up
CREATE UNIQUE INDEX IF NOT EXISTS jobs_request ON jobs (shard, namespace, request_id) WHERE request_id IS NOT NULL;

-- +goose Down
DROP INDEX IF EXISTS jobs_request;
