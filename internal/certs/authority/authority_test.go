package authority_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/carillon-scheduler/carillon/internal/certs"
	"github.com/carillon-scheduler/carillon/internal/certs/authority"
)

func TestAnAuthority(t *testing.T) {
	dir, now := filepath.Join(t.TempDir(), "tls"), time.Now()
	if _, err := authority.Open(dir); err == nil || !strings.Contains(err.Error(), "holds no authority") {
		t.Errorf("no authority: %v", err)
	}
	if err := authority.Init(dir, now); err != nil {
		t.Fatal(err)
	}
	if err := authority.Init(dir, now); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("an authority is replaced: %v", err)
	}
	a, err := authority.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	request := authority.Request{Name: "node-a", Identity: certs.Identity{Kind: certs.Node, Name: "a"}, Hosts: []string{"a.internal", "10.0.0.1"}, Life: time.Hour}
	var serials []string
	for range 2 { // the second one takes the place of the first
		out, err := a.Issue(request, now)
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.LoadX509KeyPair(out.Cert, out.Key)
		if err != nil {
			t.Fatal(err)
		}
		serials = append(serials, pair.Leaf.SerialNumber.String())
		roots := x509.NewCertPool()
		text, err := os.ReadFile(filepath.Join(dir, authority.CertFile))
		if err != nil || !roots.AppendCertsFromPEM(text) {
			t.Fatal(err)
		}
		for _, host := range request.Hosts {
			_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: host, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
			if err != nil {
				t.Error(err)
			}
		}
		if id, err := certs.Identify(pair.Leaf); id != request.Identity || err != nil {
			t.Errorf("it is for %v, %v", id, err)
		}
		if !pair.Leaf.NotAfter.Equal(now.Add(time.Hour).UTC().Truncate(time.Second)) || pair.Leaf.IsCA {
			t.Errorf("it ends %s, %v", pair.Leaf.NotAfter, pair.Leaf.IsCA)
		}
	}
	if serials[0] == serials[1] {
		t.Error("a certificate isn't replaced")
	}
	client, err := a.Issue(authority.Request{Name: "ann", Life: 100 * 365 * 24 * time.Hour}, now)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
	if err != nil || len(pair.Leaf.ExtKeyUsage) != 1 || pair.Leaf.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth {
		t.Errorf("a client's certificate: %v, %v", pair.Leaf.ExtKeyUsage, err)
	}
	if years := pair.Leaf.NotAfter.Sub(now).Hours() / 24 / 365; years > 10.01 {
		t.Errorf("it outlives its authority: %.1f years", years)
	}
	if _, err := a.Issue(request, now.AddDate(11, 0, 0)); err == nil || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an authority that has expired issues: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 6 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		want := os.FileMode(0o644)
		if strings.HasSuffix(e.Name(), ".key") {
			want = 0o600
		}
		if info.Mode() != want {
			t.Errorf("%s is %v", e.Name(), info.Mode())
		}
	}
}
