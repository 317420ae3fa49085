// Package config is what a server is told, in one place: every setting with its name, its
// default, what it may be, and where its value came from.
//
// A setting has one name, such as tls.client_ca. In a file it is a key, with a map for each
// dot; in the environment it is CARILLON_TLS_CLIENT_CA, on the command line --tls-client-ca.
// A later source goes before an earlier one: defaults, file, environment, flags. What is wrong
// is told all at once, each with its name and source. A secret is never shown.
package config

import (
	"log/slog"
	"net"
	"time"

	"github.com/carillon-scheduler/carillon/internal/certs"
)

// Server is how a node is to run. Load returns one that is whole and fits together.
type Server struct {
	Node  string // its name
	Store Store

	Etcd             []string // endpoints; none: this node is alone
	EtcdUser         string
	EtcdPasswordFile string
	EtcdTLS          certs.Files
	OwnerGen         int64 // raised when etcd was made anew
	SessionTTL       time.Duration

	Listen, HTTP string // addresses
	Advertise    string // where other nodes reach gRPC; empty: where it listens
	Capacity     int    // weight of this node among others
	Shards       int
	Migrate      bool

	Retention, DeadRetention, EventRetention time.Duration
	StreamMaxAge, DrainTimeout               time.Duration

	LogLevel slog.Level
	Profiles bool

	TLS               certs.Files // CA is that of clients; no Cert: plain text
	RequireClientCert bool
	InsecureListen    bool
}

// Closed reports whether all who reach the node must show a certificate.
func (c *Server) Closed() bool { return c.TLS.Cert != "" && c.RequireClientCert }

// AdvertiseFor is where other nodes reach this one, which listens on an address.
func (c *Server) AdvertiseFor(listens net.Addr) string {
	if c.Advertise != "" {
		return c.Advertise
	}
	host, _, err := net.SplitHostPort(c.Listen)
	_, port, failed := net.SplitHostPort(listens.String())
	if err != nil || failed != nil {
		return listens.String()
	}
	return net.JoinHostPort(host, port) // the name as it was written, the port as it was taken
}
