package certs

import (
	"fmt"
	"log/slog"
)

// Settings are how a client connects: the words of its environment or its flags.
type Settings struct {
	Files
	ServerName string // in the server's certificate; empty: the one that is dialled
}

// Lookup returns what a variable of the environment says, or a flag that stands for it, and
// what to call it in an error. An empty value is none.
type Lookup func(variable string) (value, called string)

// ReadSettings reads how a client is to connect: nil means in plain text. The variables are
// CARILLON_TLS (on or off), and CARILLON_TLS_CA, _CERT, _KEY and _NAME, each of which implies on.
func ReadSettings(lookup Lookup) (*Settings, error) {
	s, implied := Settings{}, ""
	for _, v := range []struct {
		variable string
		into     *string
	}{{"CARILLON_TLS_CA", &s.CA}, {"CARILLON_TLS_CERT", &s.Cert}, {"CARILLON_TLS_KEY", &s.Key}, {"CARILLON_TLS_NAME", &s.ServerName}} {
		value, called := lookup(v.variable)
		if *v.into = value; value != "" {
			implied = called
		}
	}
	on, called := lookup("CARILLON_TLS")
	switch {
	case on != "" && on != "on" && on != "off":
		return nil, fmt.Errorf("%s must be on or off, is %q", called, on)
	case on == "off" && implied != "":
		return nil, fmt.Errorf("%s is off, but %s is set", called, implied)
	case on != "on" && implied == "":
		return nil, nil
	case (s.Cert == "") != (s.Key == ""):
		_, cert := lookup("CARILLON_TLS_CERT")
		_, key := lookup("CARILLON_TLS_KEY")
		return nil, fmt.Errorf("%s and %s need each other", cert, key)
	}
	return &s, nil
}

// Open reads the files.
func (s *Settings) Open(log *slog.Logger) (*Source, error) {
	source, err := Open(s.Files, log)
	if err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	return source, nil
}
