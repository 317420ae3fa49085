package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/carillon-scheduler/carillon/store"
	"github.com/carillon-scheduler/carillon/store/cockroach"
	"github.com/carillon-scheduler/carillon/store/sqlite"
)

// storeFlag names the database. What it holds is never shown: it may be a password.
type storeFlag struct{ value string }

const storeEnv = "CARILLON_STORE"

func (f *storeFlag) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.value, "store", "", "the database: postgres://…, sqlite:PATH, or @FILE that holds one of them ("+storeEnv+")")
}

// address is a database that was named, and how it may be shown.
type address struct {
	url    string // of CockroachDB or PostgreSQL
	file   string // of SQLite
	public string // without a password
}

// resolve reads the flag, or else the environment. A password on the command line is
// refused: everybody on the machine could read it in the list of processes.
func (f *storeFlag) resolve() (address, error) {
	text, onCommandLine := f.value, true
	if text == "" {
		text, onCommandLine = os.Getenv(storeEnv), false
	}
	if name, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(name)
		if err != nil {
			return address{}, invalidInput("--store: %w", err)
		}
		text, onCommandLine = strings.TrimSpace(string(b)), false
	}
	switch {
	case text == "":
		return address{}, invalidInput("--store is required: postgres://…, sqlite:PATH, or @FILE that holds one of them; or set %s", storeEnv)
	case strings.HasPrefix(text, "sqlite:"):
		path := strings.TrimPrefix(text, "sqlite:")
		if path == "" {
			return address{}, invalidInput("--store sqlite: needs the path of a file, such as sqlite:/var/lib/carillon/carillon.db")
		}
		return address{file: path, public: text}, nil
	case strings.HasPrefix(text, "postgres://"), strings.HasPrefix(text, "postgresql://"):
		public, secret, err := redact(text)
		if err != nil {
			return address{}, err
		}
		if secret && onCommandLine {
			return address{}, invalidInput("--store must not hold a password: it would show in the list of processes. Set %s, or give --store @FILE", storeEnv)
		}
		return address{url: text, public: public}, nil
	}
	return address{}, invalidInput("--store must begin with postgres://, sqlite: or @")
}

// redact returns what may be shown of a URL, and whether it held a password. An
// error says nothing of the URL.
func redact(text string) (public string, secret bool, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", false, invalidInput("--store: the URL can't be read; characters such as / and %% in a password are written as %%2F and %%25")
	}
	_, secret = u.User.Password()
	for _, key := range []string{"password", "sslpassword"} {
		secret = secret || u.Query().Has(key)
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if host := u.Query().Get("host"); host != "" && u.Host == "" {
		shown.Host = "(" + host + ")"
		return shown.Scheme + "://" + shown.Host + shown.Path, secret, nil
	}
	return shown.String(), secret, nil
}

// open opens the database. An old schema is brought up to date if migrate is set, and
// refused otherwise; a SQLite file always is.
func (a address) open(ctx context.Context, migrate bool) (store.Store, error) {
	if a.file != "" {
		db, err := sqlite.Open(ctx, a.file)
		if err != nil {
			return nil, fmt.Errorf("--store %s: %w", a.public, err)
		}
		return db, nil
	}
	if migrate {
		if err := cockroach.Migrate(ctx, a.url); err != nil {
			return nil, err
		}
	}
	db, err := cockroach.Open(ctx, cockroach.Config{URL: a.url})
	if errors.Is(err, cockroach.ErrSchema) {
		return nil, fmt.Errorf("%w (or start the server with --migrate)", err)
	}
	if err != nil {
		return nil, err
	}
	return db, nil
}
