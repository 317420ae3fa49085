package pgtest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Proxy stands between clients and a server, understands what they say, and does what
// a network or a CockroachDB may do to them: it refuses statements, loses replies, and
// lets messages wait.
//
// A statement is refused by the server itself: the proxy puts another statement in
// its place, which raises the error. So everything that follows is as it really is.
type Proxy struct {
	dir      string
	upstream string
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	quiet   *sync.Cond // told when a connection ends its transaction
	judge   func(Statement) Verdict
	blocked bool // reads wait for writers
	conns   map[*link]struct{}
}

// Statement is what a client wants to run.
type Statement struct {
	SQL  string
	Tx   int // which transaction of its connection it is in, from 1; 0: none
	N    int // which statement of the transaction it is, from 1
	Conn int // which connection, from 1
}

// Commits reports whether s is the end of a transaction that should last.
func (s Statement) Commits() bool { return strings.EqualFold(s.SQL, "commit") }

// Verdict says what becomes of a statement.
type Verdict struct {
	SQLState string // raise this error instead of running the statement
	Done     bool   // run it, and raise the error then; else, if it is a COMMIT, roll back
	Cut      bool   // end the connection: before the statement runs, or, if Done, after
	// Hold lets the statement, and all that its client sends after it, wait for the
	// channel to be closed.
	Hold <-chan struct{}
}

// NewProxy starts a proxy before a server.
func NewProxy(s *Server) (*Proxy, error) {
	dir, err := os.MkdirTemp("", "carillon-proxy")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", filepath.Join(dir, socketName))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p := &Proxy{dir: dir, upstream: filepath.Join(s.dir, socketName), listener: l, conns: map[*link]struct{}{}}
	p.quiet = sync.NewCond(&p.mu)
	p.work.Go(p.accept)
	return p, nil
}

const socketName = ".s.PGSQL.5432"

// URL is the address of a database behind the proxy.
func (p *Proxy) URL(database string) string {
	return fmt.Sprintf("postgres:///%s?host=%s&user=carillon", database, p.dir)
}

// Judge sets who decides about statements; nil lets all of them pass. It is called by
// one connection at a time.
func (p *Proxy) Judge(judge func(Statement) Verdict) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.judge = judge
}

// BlockReads lets plain reads wait while another connection has written and not
// committed, as on CockroachDB.
func (p *Proxy) BlockReads(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked = on
	p.quiet.Broadcast()
}

// CutAll ends all connections.
func (p *Proxy) CutAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.conns {
		l.cut()
	}
}

// Close ends the proxy and all connections.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.BlockReads(false)
	p.CutAll()
	p.work.Wait()
	return errors.Join(err, os.RemoveAll(p.dir))
}

func (p *Proxy) accept() {
	for n := 1; ; n++ {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", p.upstream)
		if err != nil {
			_ = client.Close() // the server is away: so is the proxy's connection
			continue
		}
		l := &link{proxy: p, client: client, server: server, number: n, names: map[string]string{}, ended: make(chan struct{})}
		l.fromClient, l.toServer = pgproto3.NewBackend(client, client), pgproto3.NewFrontend(server, server)
		p.mu.Lock()
		p.conns[l] = struct{}{}
		p.mu.Unlock()
		p.work.Go(l.run)
	}
}

// link is one connection and its twin to the server.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	number         int
	fromClient     *pgproto3.Backend
	toServer       *pgproto3.Frontend
	names          map[string]string // prepared statements
	tx, n          int
	ended          chan struct{}
	once           sync.Once

	sending   sync.Mutex // guards what is sent to the server
	startedUp bool       // only the answers know
	wrote     bool       // guarded by proxy.mu

	mu      sync.Mutex
	inTx    bool
	swallow bool // the next answer does not reach the client, and ends the connection
}

func (l *link) send(m pgproto3.FrontendMessage) {
	l.sending.Lock()
	defer l.sending.Unlock()
	l.toServer.Send(m)
}

func (l *link) flush() error {
	l.sending.Lock()
	defer l.sending.Unlock()
	return l.toServer.Flush()
}

func (l *link) cut() {
	l.once.Do(func() {
		close(l.ended)
		_, _ = l.client.Close(), l.server.Close()
	})
}

func (l *link) run() {
	defer func() {
		l.cut()
		l.setWrote(false)
		l.proxy.mu.Lock()
		delete(l.proxy.conns, l)
		l.proxy.mu.Unlock()
	}()
	startup, err := l.fromClient.ReceiveStartupMessage()
	if err != nil {
		return
	}
	l.send(startup)
	if l.flush() != nil {
		return
	}
	l.proxy.work.Go(l.answers)
	for {
		msg, err := l.fromClient.Receive()
		if err != nil {
			return
		}
		if !l.forward(msg) || l.flush() != nil {
			return
		}
	}
}

// forward passes a message on, changed where it was judged so.
func (l *link) forward(msg pgproto3.FrontendMessage) bool {
	switch m := msg.(type) {
	case *pgproto3.Parse:
		l.names[m.Name] = m.Query
	case *pgproto3.Bind:
		return l.bind(m)
	case *pgproto3.Query:
		return l.query(m)
	}
	l.send(msg)
	return true
}

// bind judges a prepared statement that is about to run.
func (l *link) bind(m *pgproto3.Bind) bool {
	v, ok := l.judge(l.names[m.PreparedStatement])
	if !ok || v.Cut && !v.Done {
		l.cut()
		return false
	}
	if v.Cut {
		l.swallowAnswer()
	}
	if v.SQLState != "" {
		l.send(&pgproto3.Bind{DestinationPortal: m.DestinationPortal, PreparedStatement: raiseName(v.SQLState)})
		return true
	}
	l.send(m)
	return true
}

// query judges a statement that is sent as text.
func (l *link) query(m *pgproto3.Query) bool {
	if strings.HasPrefix(strings.ToLower(m.String), "begin") {
		l.tx, l.n = l.tx+1, 0
		l.setInTx(true)
	}
	v, ok := l.judge(m.String)
	if !ok || v.Cut && !v.Done {
		l.cut()
		return false
	}
	text := m.String
	switch {
	case v.Cut:
		l.swallowAnswer()
	case v.SQLState != "" && v.Done:
		text += "; " + raise(v.SQLState)
	case v.SQLState != "" && l.isInTx() && !strings.HasPrefix(strings.ToLower(text), "begin"):
		text = "rollback; " + raise(v.SQLState)
	case v.SQLState != "":
		text = raise(v.SQLState)
	}
	l.send(&pgproto3.Query{String: text})
	return true
}

// judge asks what is to become of a statement, and waits as long as it must.
func (l *link) judge(sql string) (v Verdict, ok bool) {
	p := l.proxy
	s := Statement{SQL: sql, Conn: l.number}
	if l.isInTx() {
		l.n++
		s.Tx, s.N = l.tx, l.n
	}
	if !l.awaitWriters(sql) {
		return v, false
	}
	p.mu.Lock()
	if p.judge != nil {
		v = p.judge(s)
	}
	p.mu.Unlock()
	if v.Hold != nil {
		if l.flush() != nil {
			return v, false
		}
		select {
		case <-v.Hold:
		case <-l.ended:
			return v, false
		}
	}
	if l.isInTx() && writes(sql) {
		l.setWrote(true)
	}
	return v, true
}

func writes(sql string) bool {
	sql = strings.ToUpper(strings.TrimSpace(sql))
	return strings.HasPrefix(sql, "INSERT") || strings.HasPrefix(sql, "UPDATE") || strings.HasPrefix(sql, "DELETE")
}

// awaitWriters lets a plain read wait, if reads are blocked.
func (l *link) awaitWriters(sql string) bool {
	upper := strings.ToUpper(strings.TrimSpace(sql))
	if !strings.HasPrefix(upper, "SELECT") || strings.Contains(upper, "FOR UPDATE") || strings.Contains(upper, "VERSION()") {
		return true
	}
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.blocked && !l.wrote && p.othersWrote(l) {
		p.quiet.Wait()
	}
	return true
}

func (p *Proxy) othersWrote(l *link) bool {
	for other := range p.conns {
		if other != l && other.wrote {
			return true
		}
	}
	return false
}

func (l *link) setWrote(on bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.wrote = on
	l.proxy.quiet.Broadcast()
}

func (l *link) swallowAnswer() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallow = true
}

func (l *link) isInTx() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inTx
}

func (l *link) setInTx(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inTx = on
}

// answers passes on what the server says. Before the first statement of the client,
// it prepares those that raise errors.
func (l *link) answers() {
	defer l.cut()
	for {
		msg, err := l.toServer.Receive()
		if err != nil {
			return
		}
		ready, isReady := msg.(*pgproto3.ReadyForQuery)
		if isReady && !l.startedUp {
			l.startedUp = true
			if l.prepareErrors() != nil {
				return
			}
		}
		l.mu.Lock()
		swallow := l.swallow
		if isReady {
			l.inTx = ready.TxStatus != 'I'
		}
		l.mu.Unlock()
		if isReady && ready.TxStatus == 'I' {
			l.setWrote(false)
		}
		if swallow {
			if isReady {
				return // done, and nobody is told
			}
			continue
		}
		l.fromClient.Send(msg)
		if l.fromClient.Flush() != nil {
			return
		}
	}
}

// States are the errors that a proxy can raise.
var States = []string{"40001", "40003", "08006", "57014"}

// prepareErrors prepares the statements that raise errors. Nothing else is under way
// on this connection: its client waits to be told that it may begin.
func (l *link) prepareErrors() error {
	for _, state := range States {
		l.send(&pgproto3.Parse{Name: raiseName(state), Query: raise(state)})
	}
	l.send(&pgproto3.Sync{})
	if err := l.flush(); err != nil {
		return err
	}
	for {
		msg, err := l.toServer.Receive()
		if err != nil {
			return err
		}
		switch m := msg.(type) {
		case *pgproto3.ErrorResponse:
			return fmt.Errorf("prepare errors: %s", m.Message)
		case *pgproto3.ReadyForQuery:
			return nil
		}
	}
}

func raiseName(state string) string { return "proxy_" + state }

func raise(state string) string {
	return "DO $$ BEGIN RAISE SQLSTATE '" + state + "' USING MESSAGE = 'restart transaction: raised by the proxy'; END $$"
}
