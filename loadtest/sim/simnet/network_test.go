package simnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-scheduler/carillon/loadtest/sim/dice"
)

// pair is two processes with a connection.
type pair struct {
	net       *Network
	a, b      *Process
	near, far net.Conn
}

func connected(t *testing.T, seed uint64) *pair {
	t.Helper()
	p := &pair{net: New(dice.New(seed)), a: NewProcess("a", 1), b: NewProcess("b", 1)}
	l, err := p.net.Listen(p.b, "b:1")
	if err != nil {
		t.Fatal(err)
	}
	if p.near, err = p.net.Dial(t.Context(), p.a, "b:1"); err != nil {
		t.Fatal(err)
	}
	if p.far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return p
}

// say writes each text at an instant of its own.
func (p *pair) say(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := io.WriteString(p.near, text); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Microsecond)
	}
}

// hears reads a text of a length, and when it was there.
func (p *pair) hears(t *testing.T, n int) (string, time.Duration) {
	t.Helper()
	began := time.Now()
	b := make([]byte, n)
	if _, err := io.ReadFull(p.far, b); err != nil {
		t.Fatal(err)
	}
	return string(b), time.Since(began)
}

func TestWhatIsSentArrivesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		want := ""
		for i := range 200 {
			text := fmt.Sprint(i, " ")
			want += text
			p.say(t, text)
		}
		if got, _ := p.hears(t, len(want)); got != want {
			t.Errorf("got %q", got)
		}
	})
}

func TestACutLinkHoldsUpAndThenDelivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.net.Cut("a", "b")
		p.say(t, "one", "two")
		time.AfterFunc(time.Minute, func() { p.net.Heal("a", "b") })
		got, after := p.hears(t, 6)
		if got != "onetwo" || after < time.Minute || after > time.Minute+maxResend+maxDelay {
			t.Errorf("got %q after %s", got, after)
		}
	})
}

func TestACutGoesOneWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.net.Cut("b", "a")
		p.say(t, "there")
		if got, after := p.hears(t, 5); got != "there" || after > maxDelay {
			t.Errorf("got %q after %s", got, after)
		}
	})
}

func TestADialOverACutLinkEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.net.Cut("b", "a")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := p.net.Dial(ctx, p.a, "b:1"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

func TestDeathResetsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.a.Kill()
		if _, err := p.near.Read(make([]byte, 1)); !errors.Is(err, errDied) {
			t.Errorf("the dead one reads: %v", err)
		}
		if _, err := p.far.Read(make([]byte, 1)); !errors.Is(err, errReset) {
			t.Errorf("the other one reads: %v", err)
		}
		p.b.Kill()
		if _, err := p.net.Dial(t.Context(), NewProcess("a", 2), "b:1"); !errors.Is(err, errRefused) {
			t.Errorf("a dead one is dialed: %v", err)
		}
	})
}

func TestAFrozenProcessReadsWhatWasSentMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.b.Freeze()
		p.say(t, "hello")
		time.AfterFunc(time.Minute, p.b.Thaw)
		got, after := p.hears(t, 5)
		if got != "hello" || after < time.Minute || after > time.Minute+maxThaw {
			t.Errorf("got %q after %s", got, after)
		}
	})
}

func TestACloseComesBehindWhatWasSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.say(t, "last")
		if err := p.near.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(p.far); string(got) != "last" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
}

func TestASlowLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connected(t, 1)
		p.net.Slow("a", "b", time.Second)
		p.say(t, "x")
		if _, after := p.hears(t, 1); after < time.Second/2 || after > time.Second+maxDelay {
			t.Errorf("after %s", after)
		}
	})
}

func TestTwoRunsHaveTheSameDelays(t *testing.T) {
	delays := func(seed uint64) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			p := connected(t, seed)
			for range 20 {
				p.say(t, "x")
				_, after := p.hears(t, 1)
				all = append(all, after)
			}
		})
		return all
	}
	once, twice, other := delays(7), delays(7), delays(8)
	if !slices.Equal(once, twice) {
		t.Errorf("the same seed has %v and %v", once, twice)
	}
	if slices.Equal(once, other) {
		t.Errorf("two seeds both have %v", once)
	}
}
