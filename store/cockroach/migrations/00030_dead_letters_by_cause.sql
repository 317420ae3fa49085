-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS dead_letters_by_cause ON dead_letters (namespace, handler, fingerprint, error_code);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS dead_letters_by_cause;
