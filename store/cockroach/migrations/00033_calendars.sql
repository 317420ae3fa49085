-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS calendars (
    namespace   TEXT NOT NULL,
    name        TEXT NOT NULL,
    version     INT8 NOT NULL,
    description TEXT NOT NULL,
    items       TEXT NOT NULL,
    deleted     BOOL NOT NULL,
    created_at  INT8 NOT NULL,
    PRIMARY KEY (namespace, name, version)
);

-- +goose Down
DROP TABLE IF EXISTS calendars;
