package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// Kinds of identities.
const (
	Node   = "node"
	Worker = "worker"
)

const scheme = "carillon"

// Identity is who a certificate says that its owner is: carillon://node/NAME or
// carillon://worker/ID among its URI names. The zero value is nobody: such a certificate
// may do what its authority vouches for, as anyone.
type Identity struct{ Kind, Name string }

// URI is the identity as it stands in a certificate.
func (i Identity) URI() *url.URL { return &url.URL{Scheme: scheme, Host: i.Kind, Path: "/" + i.Name} }

// String is the identity as text.
func (i Identity) String() string {
	if i == (Identity{}) {
		return "nobody"
	}
	return i.URI().String()
}

// Identify reads who a certificate is for. One that says so in a way that can't be read, or
// twice, is for nobody to use: that is an error.
func Identify(cert *x509.Certificate) (Identity, error) { return IdentifyURIs(cert.URIs) }

// IdentifyURIs reads it off the URI names of a certificate.
func IdentifyURIs(uris []*url.URL) (id Identity, err error) {
	for _, u := range uris {
		if !strings.EqualFold(u.Scheme, scheme) {
			continue
		}
		if id != (Identity{}) {
			return Identity{}, errors.New("the certificate names more than one identity")
		}
		name, whole := strings.CutPrefix(u.Path, "/")
		if !whole || name == "" || strings.Contains(name, "/") || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
			u.Host != Node && u.Host != Worker {
			return Identity{}, fmt.Errorf("the certificate names %q, which is neither %s://%s/NAME nor %s://%s/ID", u, scheme, Node, scheme, Worker)
		}
		id = Identity{u.Host, name}
	}
	return id, nil
}

// PeerCertificate returns the certificate that the caller of a gRPC call has shown, if it was
// verified; nil otherwise.
func PeerCertificate(ctx context.Context) *x509.Certificate {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 {
		return nil
	}
	return info.State.VerifiedChains[0][0]
}

// Peer returns who the caller of a gRPC call is: nobody without a certificate that was verified.
func Peer(ctx context.Context) (Identity, error) {
	cert := PeerCertificate(ctx)
	if cert == nil {
		return Identity{}, nil
	}
	return Identify(cert)
}
