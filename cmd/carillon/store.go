package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/controlplane/config"
	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// storeFlag names the database. What it holds is never shown: it may be a password.
type storeFlag struct{ value string }

var storeEnv = config.EnvName("store")

func (f *storeFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.value, "store", "", "the database: postgres://…, sqlite:PATH, or @FILE that holds one of them ("+storeEnv+")")
}

// resolve reads the flag, or else the environment.
func (f *storeFlag) resolve() (config.Store, error) {
	text, onCommandLine := f.value, true
	if text == "" {
		text, onCommandLine = os.Getenv(storeEnv), false
	}
	where, err := config.ParseStore(text, onCommandLine)
	if err != nil {
		return where, invalidInput("--store, or %s: %w", storeEnv, err)
	}
	return where, nil
}

// openStore opens the database. An old schema is brought up to date if migrate is set, and
// refused otherwise; a SQLite file always is.
func openStore(ctx context.Context, a config.Store, migrate bool) (store.Store, error) {
	if a.File != "" {
		db, err := sqlite.Open(ctx, a.File)
		if err != nil {
			return nil, fmt.Errorf("--store %s: %w", a.Public, err)
		}
		return db, nil
	}
	if migrate {
		if err := cockroach.Migrate(ctx, a.URL); err != nil {
			return nil, err
		}
	}
	db, err := cockroach.Open(ctx, cockroach.Config{URL: a.URL})
	if errors.Is(err, cockroach.ErrSchema) {
		return nil, fmt.Errorf("%w (or start the server with --migrate)", err)
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}
