// Package authority makes certificates for tests and small sites: one authority in a folder,
// and what it issues beside it. It keeps no list and revokes nothing; certificates are short
// of life instead, and are issued again.
//
// Keys are ECDSA on P-256, in files that only their owner reads. A file is replaced as a whole.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/carillon-scheduler/carillon/internal/certs"
)

// Life of what is made.
const (
	authorityLife = 10 * 365 * 24 * time.Hour
	DefaultLife   = 365 * 24 * time.Hour // of certificates
	// backdate bears with clocks that go behind.
	backdate = 5 * time.Minute
)

// Names of the authority's own files.
const (
	CertFile = "ca.crt"
	KeyFile  = "ca.key"
)

// Authority issues certificates.
type Authority struct {
	dir  string
	cert *x509.Certificate
	key  any
}

// Init makes an authority in a folder, which it creates. It refuses to replace one: all that
// it has issued would be worth nothing.
func Init(dir string, now time.Time) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range []string{CertFile, KeyFile} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return fmt.Errorf("%s holds an authority already: %s", dir, name)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: "Carillon authority " + now.UTC().Format("2006-01-02 15:04:05")}, NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile), der, key)
}

// Open reads the authority of a folder.
func Open(dir string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s holds no authority: %w", dir, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the authority in %s: %w", dir, err)
	}
	if !pair.Leaf.IsCA {
		return nil, fmt.Errorf("the certificate in %s is no authority's", dir)
	}
	return &Authority{dir: dir, cert: pair.Leaf, key: pair.PrivateKey}, nil
}

// Request says what a certificate is for.
type Request struct {
	Name     string         // the common name, and of its files
	Identity certs.Identity // zero: it names nobody
	Hosts    []string       // names and addresses under which it serves; none: only a client's
	Life     time.Duration  // no longer than the authority's
}

// Issued is what was issued.
type Issued struct {
	Cert, Key string // files
	Expires   time.Time
}

// Issue makes a key and a certificate, in place of older ones of that name.
func (a *Authority) Issue(r Request, now time.Time) (out Issued, err error) {
	if !now.Before(a.cert.NotAfter) {
		return out, fmt.Errorf("the authority has expired, at %s", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return out, err
	}
	template := r.template(now)
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		return out, err
	}
	out = Issued{filepath.Join(a.dir, r.Name+".crt"), filepath.Join(a.dir, r.Name+".key"), template.NotAfter}
	return out, write(out.Cert, out.Key, der, key)
}

func (r Request) template(now time.Time) *x509.Certificate {
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: r.Name}, NotBefore: now.Add(-backdate), NotAfter: now.Add(r.Life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, BasicConstraintsValid: true,
	}
	if r.Identity != (certs.Identity{}) {
		t.URIs = []*url.URL{r.Identity.URI()}
	}
	for _, host := range r.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	if len(r.Hosts) > 0 {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	return t
}

// write writes the key, then the certificate.
func write(certFile, keyFile string, der []byte, key *ecdsa.PrivateKey) error {
	text, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := replace(keyFile, 0o600, &pem.Block{Type: "PRIVATE KEY", Bytes: text}); err != nil {
		return err
	}
	return replace(certFile, 0o644, &pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// replace writes a file beside and renames it: nobody reads half a file.
func replace(name string, mode os.FileMode, block *pem.Block) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)) // readable by its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = errors.Join(pem.Encode(f, block), f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
