package config

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Store is a database that was named, and how it may be shown.
type Store struct {
	URL    string // of CockroachDB or PostgreSQL
	File   string // of SQLite
	Public string // without a password
}

// String is the name without a password.
func (s Store) String() string { return s.Public }

// ParseStore reads postgres://…, sqlite:PATH, or @FILE that holds one of them. A password on
// the command line is refused: everybody on the machine could read it in the list of processes.
// Errors show nothing of the text.
func ParseStore(text string, onCommandLine bool) (Store, error) {
	if name, ok := strings.CutPrefix(text, "@"); ok {
		b, err := os.ReadFile(name)
		if err != nil {
			return Store{}, err
		}
		text, onCommandLine = strings.TrimSpace(string(b)), false
	}
	switch {
	case text == "":
		return Store{}, errors.New("is required: postgres://…, sqlite:PATH, or @FILE that holds one of them")
	case strings.HasPrefix(text, "sqlite:"):
		path := strings.TrimPrefix(text, "sqlite:")
		if path == "" {
			return Store{}, errors.New("sqlite: needs the path of a file, such as sqlite:/var/lib/carillon/carillon.db")
		}
		return Store{File: path, Public: text}, nil
	case strings.HasPrefix(text, "postgres://"), strings.HasPrefix(text, "postgresql://"):
		public, secret, err := redact(text)
		if err != nil {
			return Store{}, err
		}
		if secret && onCommandLine {
			return Store{}, fmt.Errorf("must not hold a password: it would show in the list of processes. Set %s, or give @FILE", EnvName("store"))
		}
		return Store{URL: text, Public: public}, nil
	}
	return Store{}, errors.New("must begin with postgres://, sqlite: or @")
}

// redact returns what may be shown of a URL, and whether it held a password.
func redact(text string) (public string, secret bool, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return "", false, errors.New("the URL can't be read; characters such as / and % in a password are written as %2F and %25")
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
