package workersdk

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"google.golang.org/grpc"
	grpccredentials "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// credentials say how a worker connects, and who it is.
type credentials struct {
	tls   *tls.Config // nil: in plain text
	token func() (string, error)
}

// TLS has the worker connect with TLS, instead of what the environment says: nil means in
// plain text.
func TLS(cfg *tls.Config) Option { return func(c *config) { c.credentials.tls = cfg } }

// Token has a token sent with each call, instead of what the environment says. It is asked for
// each time, and may change. It needs [TLS]. A nil function sends none.
func Token(token func() (string, error)) Option {
	return func(c *config) { c.credentials.token = token }
}

func (c *credentials) check() error {
	if c.token != nil && c.tls == nil {
		return errors.New("a token is only sent with TLS: set CARILLON_TLS, or use the option TLS")
	}
	return nil
}

// options are those of the connection.
func (c *credentials) options() []grpc.DialOption {
	transport := insecure.NewCredentials()
	if c.tls != nil {
		transport = grpccredentials.NewTLS(c.tls)
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
	if err := c.tlsFrom(env); err != nil {
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

func (c *credentials) tlsFrom(env func(string) string) error {
	ca, cert, key, name := env("CARILLON_TLS_CA"), env("CARILLON_TLS_CERT"), env("CARILLON_TLS_KEY"), env("CARILLON_TLS_NAME")
	implied := ca != "" || cert != "" || key != "" || name != ""
	switch on := env("CARILLON_TLS"); {
	case on != "" && on != "on" && on != "off":
		return fmt.Errorf("CARILLON_TLS must be on or off, is %q", on)
	case on == "off" && implied:
		return errors.New("CARILLON_TLS is off, but another CARILLON_TLS_… is set")
	case on != "on" && !implied:
		return nil
	}
	c.tls = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: name}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return fmt.Errorf("CARILLON_TLS_CA: %w", err)
		}
		c.tls.RootCAs = x509.NewCertPool()
		if !c.tls.RootCAs.AppendCertsFromPEM(text) {
			return fmt.Errorf("CARILLON_TLS_CA: %s holds no certificate", ca)
		}
	}
	if (cert == "") != (key == "") {
		return errors.New("CARILLON_TLS_CERT and CARILLON_TLS_KEY need each other")
	}
	if cert == "" {
		return nil
	}
	if _, err := tls.LoadX509KeyPair(cert, key); err != nil {
		return fmt.Errorf("CARILLON_TLS_CERT, CARILLON_TLS_KEY: %w", err)
	}
	// Read anew for each connection: certificates are exchanged while a worker runs.
	c.tls.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		return &pair, err
	}
	return nil
}
