-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX IF NOT EXISTS dead_letters_by_cause ON dead_letters (namespace, handler, fingerprint, error_code);

-- +goose Down
DROP INDEX IF EXISTS dead_letters_by_cause;
