package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/carillon-scheduler/carillon/internal/certs"
)

// Who calls is known by the certificate of the connection. A call over REST reaches the gRPC
// server on a connection in memory, so the gateway tells what the certificate says, as metadata.
// It counts on that connection alone, and no header of a request may put it there.

// peerURI is the metadata for the URI names of a REST caller's certificate.
const peerURI = "carillon-peer-uri"

// localListener marks the connections in memory.
type localListener struct{ net.Listener }

type localConn struct{ net.Conn }

// Accept implements net.Listener.
func (l localListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return localConn{conn}, nil
}

// localInfo says that a connection is in memory.
type localInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (localInfo) AuthType() string { return "local" }

// serverCredentials are TLS, but for connections in memory.
type serverCredentials struct {
	credentials.TransportCredentials
}

// ServerHandshake implements credentials.TransportCredentials.
func (c serverCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if _, local := conn.(localConn); local {
		return conn, localInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	return c.TransportCredentials.ServerHandshake(conn)
}

// Clone implements credentials.TransportCredentials.
func (c serverCredentials) Clone() credentials.TransportCredentials {
	return serverCredentials{c.TransportCredentials.Clone()}
}

// grpcCredentials are those of the gRPC server.
func (s *Server) grpcCredentials() credentials.TransportCredentials {
	return serverCredentials{credentials.NewTLS(s.tls.Server(s.clientCerts))}
}

// tellPeer adds to a REST call what the caller's certificate says.
func tellPeer(_ context.Context, r *http.Request) metadata.MD {
	md := metadata.MD{}
	if verified(r.TLS) {
		for _, u := range r.TLS.VerifiedChains[0][0].URIs {
			md.Append(peerURI, u.String())
		}
	}
	return md
}

// noPeer keeps headers away that would say who calls.
func noPeer(header string) (string, bool) {
	name, passes := runtime.DefaultHeaderMatcher(header)
	return name, passes && !strings.EqualFold(name, peerURI)
}

func verified(state *tls.ConnectionState) bool { return state != nil && len(state.VerifiedChains) > 0 }

// caller returns who calls, over gRPC or REST: nobody if no verified certificate says so.
func caller(ctx context.Context) (certs.Identity, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return certs.Identity{}, nil
	}
	if _, local := p.AuthInfo.(localInfo); !local {
		return certs.Peer(ctx)
	}
	var uris []*url.URL
	for _, text := range metadata.ValueFromIncomingContext(ctx, peerURI) {
		u, err := url.Parse(text)
		if err != nil {
			return certs.Identity{}, fmt.Errorf("the certificate's URI %q can't be read", text)
		}
		uris = append(uris, u)
	}
	return certs.IdentifyURIs(uris)
}

// mayBe refuses a worker whose certificate names another one. A certificate that names no
// worker lets it be any: a node speaks for the workers of others.
func mayBe(ctx context.Context, field, workerID string) error {
	id, err := caller(ctx)
	switch {
	case err != nil:
		return fail(codes.PermissionDenied, reasonIdentity, err.Error())
	case id.Kind == certs.Worker && id.Name != workerID:
		return fail(codes.PermissionDenied, reasonIdentity, fmt.Sprintf("%s: the certificate is for the worker %q, not for %q", field, id.Name, workerID))
	}
	return nil
}

// certified serves those only who have shown a certificate; probes, which can't, hear no more
// than whether the node is well.
func certified(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !verified(r.TLS) && r.URL.Path != "/healthz" && r.URL.Path != "/readyz" {
			writeStatus(w, status.Convert(fail(codes.Unauthenticated, reasonNoCertificate, "a client's certificate is required")))
			return
		}
		next.ServeHTTP(w, r)
	})
}
