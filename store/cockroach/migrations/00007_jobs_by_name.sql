-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS jobs_by_name ON jobs (namespace, name, uid);

-- +goose Down
DROP INDEX IF EXISTS jobs_by_name;
