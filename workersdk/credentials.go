package workersdk

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/carillon-scheduler/carillon/internal/certs"
)

// credentials say how a worker connects, and who it is.
type credentials struct {
	tls    *tls.Config     // of the program; nil: what the files say
	files  *certs.Settings // nil, without a config: in plain text
	source *certs.Source   // of the files, once they are open
	token  func() (string, error)
}

// TLS has the worker connect with TLS, instead of what the environment says: nil means in
// plain text.
func TLS(cfg *tls.Config) Option {
	return func(c *config) { c.credentials.tls, c.credentials.files = cfg, nil }
}

// TLSFiles are PEM files for [WithTLSFiles]. Any may be empty.
type TLSFiles struct {
	CA        string // authorities to trust; empty: the system's
	Cert, Key string // the worker's certificate and its key
	Name      string // the server's name in its certificate, if it isn't the target's
}

// WithTLSFiles has the worker connect with TLS, instead of what the environment says, as these
// files say. They are read again for a new connection when they have changed.
func WithTLSFiles(f TLSFiles) Option {
	return func(c *config) {
		c.credentials.tls = nil
		c.credentials.files = &certs.Settings{Files: certs.Files{Cert: f.Cert, Key: f.Key, CA: f.CA}, ServerName: f.Name}
	}
}

// Token has a token sent with each call, instead of what the environment says. It is asked for
// each time, and may change. It needs [TLS]. A nil function sends none.
func Token(token func() (string, error)) Option {
	return func(c *config) { c.credentials.token = token }
}

func (c *credentials) check() error {
	if c.token != nil && c.tls == nil && c.files == nil {
		return errors.New("a token is only sent with TLS: set CARILLON_TLS, or use the option TLS or WithTLSFiles")
	}
	return nil
}

// open reads the files.
func (c *credentials) open(log *slog.Logger) (err error) {
	if c.files != nil {
		c.source, err = c.files.Open(log)
	}
	return err
}

// workerID is the id for which the worker's certificate is; empty: it may have any. Another
// one would be refused.
func (c *credentials) workerID() string {
	if c.source == nil {
		return ""
	}
	id, err := c.source.Identity()
	if err != nil || id.Kind != certs.Worker {
		return "" // the node says what is wrong with it
	}
	return id.Name
}

// options are those of the connection.
func (c *credentials) options() []grpc.DialOption {
	transport := insecure.NewCredentials()
	switch {
	case c.tls != nil:
		transport = grpccredentials.NewTLS(c.tls)
	case c.source != nil:
		transport = c.source.Transport(c.files.ServerName)
	}
	opts := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if c.token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(c.token)))
	}
	return opts
}

// bearer sends a token.
type bearer func() (string, error)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b()
	if err != nil {
		return nil, fmt.Errorf("get the token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return true }

// fromEnvironment takes what the environment says, as Dial lists it.
func (c *credentials) fromEnvironment(lookup func(string) (string, bool)) error {
	env := func(name string) string {
		value, _ := lookup(name)
		return value
	}
	var err error
	if c.files, err = certs.ReadSettings(func(name string) (string, string) { return env(name), name }); err != nil {
		return err
	}
	switch token, file := env("CARILLON_TOKEN"), env("CARILLON_TOKEN_FILE"); {
	case token != "" && file != "":
		return errors.New("CARILLON_TOKEN and CARILLON_TOKEN_FILE exclude each other")
	case token != "":
		c.token = func() (string, error) { return token, nil }
	case file != "":
		c.token = func() (string, error) {
			text, err := os.ReadFile(file)
			return strings.TrimSpace(string(text)), err
		}
		if _, err := c.token(); err != nil {
			return fmt.Errorf("CARILLON_TOKEN_FILE: %w", err)
		}
	}
	return nil
}
