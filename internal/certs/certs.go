// Package certs is TLS by files: the certificate that a process shows, its key, and the
// authorities that it trusts.
//
// Certificates are exchanged while a process runs. So a Source looks at its files when somebody
// connects, at most once a second, and reads them again when one of them has changed. What can't
// be read changes nothing: the old ones stay, the log says why, and the files are tried again.
// Certificate and key are two files; between the two renames they don't fit each other, which
// is such a case. A connection that stands isn't touched.
//
// A certificate may say who its owner is, as a URI among its names: see Identity.
package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// checkEvery is how often the files are looked at, at most.
const checkEvery = time.Second

// maxFileBytes bounds what is read: bundles of authorities take some 200 KB.
const maxFileBytes = 4 << 20

// Files names PEM files.
type Files struct {
	Cert, Key string // both or none
	CA        string // of authorities; empty: none
}

// Source serves what files hold, as long as the process runs.
type Source struct {
	files Files
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex // guards what follows
	checked time.Time
	stamps  []fs.FileInfo // of the files as they were read
	held    material
	failure string // that was logged and goes on
}

// material is what the files held when they were read.
type material struct {
	pair *tls.Certificate // nil: none
	pool *x509.CertPool   // nil: none
}

// Open reads the files.
func Open(files Files, log *slog.Logger) (*Source, error) {
	s := &Source{files: files, log: log, now: time.Now}
	stamps, err := files.stamps()
	if err != nil {
		return nil, err
	}
	if s.held, err = files.read(); err != nil {
		return nil, err
	}
	s.stamps, s.checked = stamps, s.now()
	return s, nil
}

// current returns what the files hold.
func (s *Source) current() material {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); now.Sub(s.checked) >= checkEvery {
		s.checked = now
		s.refresh()
	}
	return s.held
}

// refresh reads the files again if one has changed, or if they couldn't be read the last time.
func (s *Source) refresh() {
	stamps, err := s.files.stamps()
	if err == nil && s.failure == "" && sameFiles(stamps, s.stamps) {
		return
	}
	var held material
	if err == nil {
		held, err = s.files.read()
	}
	switch {
	case err != nil && err.Error() != s.failure:
		s.failure = err.Error()
		s.log.Error("the certificates on disk can't be used; those that were read before stay", "error", err)
	case err == nil:
		s.failure, s.stamps, s.held = "", stamps, held
		attrs := []any{"cert", s.files.Cert, "ca", s.files.CA}
		if held.pair != nil {
			attrs = append(attrs, "expires", held.pair.Leaf.NotAfter)
		}
		s.log.Info("certificates were read again", attrs...)
	}
}

// stamps tell whether a file has changed. They are taken before it is read: what changes in
// between is seen the next time.
func (f Files) stamps() (list []fs.FileInfo, err error) {
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		list = append(list, info)
	}
	return list, nil
}

func sameFiles(a, b []fs.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

func (f Files) read() (m material, err error) {
	if (f.Cert == "") != (f.Key == "") {
		return m, errors.New("a certificate and its key need each other")
	}
	if f.Cert != "" {
		pair, err := readPair(f.Cert, f.Key)
		if err != nil {
			return m, err
		}
		m.pair = &pair
	}
	if f.CA != "" {
		m.pool, err = readPool(f.CA)
	}
	return m, err
}

func readPair(cert, key string) (pair tls.Certificate, err error) {
	certText, err := readFile(cert)
	if err != nil {
		return pair, err
	}
	keyText, err := readFile(key)
	if err != nil {
		return pair, err
	}
	if pair, err = tls.X509KeyPair(certText, keyText); err != nil {
		return pair, fmt.Errorf("%s with the key %s: %w", cert, key, err)
	}
	return pair, nil
}

// readPool reads authorities. One that can't be parsed is an error: to leave it out would shut
// its clients out.
func readPool(name string) (*x509.CertPool, error) {
	text, err := readFile(name)
	if err != nil {
		return nil, err
	}
	pool, found := x509.NewCertPool(), false
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		pool.AddCert(cert)
		found = true
	}
	if !found {
		return nil, fmt.Errorf("%s holds no certificate", name)
	}
	return pool, nil
}

func readFile(name string) ([]byte, error) {
	if info, err := os.Stat(name); err != nil {
		return nil, err
	} else if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes; certificates take less than %d", name, info.Size(), maxFileBytes)
	}
	return os.ReadFile(name)
}

// Identity is who the certificate says that this process is; none if there is no certificate.
func (s *Source) Identity() (Identity, error) {
	held := s.current()
	if held.pair == nil {
		return Identity{}, nil
	}
	return Identify(held.pair.Leaf)
}

// Server is the configuration of a listener. Clients are held to the authorities of the files,
// as far as clients says. protos are the protocols above TLS, such as "h2".
//
// A session isn't resumed: each connection is held to the authorities of its time.
func (s *Source) Server(clients tls.ClientAuthType, protos ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			held := s.current()
			return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: protos, Certificates: []tls.Certificate{*held.pair},
				ClientAuth: clients, ClientCAs: held.pool, SessionTicketsDisabled: true}, nil
		}}
}

// client is the configuration of one connection. The certificate is shown to whoever asks for one.
func (s *Source) client(serverName string) *tls.Config {
	held := s.current()
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: held.pool, ServerName: serverName}
	if held.pair != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return held.pair, nil }
	}
	return cfg
}

// Client is the configuration of a client that keeps it: the certificate that it shows is read
// again, the authorities stay as they are now.
func (s *Source) Client() *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: s.current().pool}
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if pair := s.current().pair; pair != nil {
			return pair, nil
		}
		return &tls.Certificate{}, nil // none
	}
	return cfg
}

// Transport returns credentials of a client. Servers are held to the authorities of the files,
// or to the system's if there are none. serverName is the name in the server's certificate;
// empty: the one that was dialled.
func (s *Source) Transport(serverName string) credentials.TransportCredentials {
	return &transport{source: s, serverName: serverName}
}

// Peers is the option by which a node connects to other nodes: it shows the certificate that
// it serves with, and trusts the authorities that it holds its clients to, since nodes are each
// other's clients. With a nil Source nodes speak in plain text.
func (s *Source) Peers() grpc.DialOption {
	if s == nil {
		return grpc.WithTransportCredentials(insecure.NewCredentials())
	}
	return grpc.WithTransportCredentials(s.Transport(""))
}

// transport makes the configuration anew for each connection.
type transport struct {
	source     *Source
	serverName string
}

// ClientHandshake implements credentials.TransportCredentials.
func (t *transport) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(t.source.client(t.serverName)).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (t *transport) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a client's")
}

// Info implements credentials.TransportCredentials.
func (t *transport) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, ServerName: t.serverName}).Info()
}

// Clone implements credentials.TransportCredentials.
func (t *transport) Clone() credentials.TransportCredentials {
	c := *t
	return &c
}

// OverrideServerName implements credentials.TransportCredentials.
func (t *transport) OverrideServerName(name string) error {
	t.serverName = name
	return nil
}
