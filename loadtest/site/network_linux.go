package site

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Network is a bridge in a network namespace of its own, the hub, and a namespace for each party,
// joined to it. Namespaces are held by open files alone: they end with this process.
//
// What one party sends to another is cut by a neighbour that isn't there: the sender believes that
// the other one has a hardware address that nobody has. So packets vanish without an answer, as on
// a cable that is cut, in this one direction.
type Network struct {
	hub   *os.File
	hosts map[string]host

	mu sync.Mutex // of those who cut and heal
}

// host is where one party stands.
type host struct {
	namespace *os.File
	number    int
}

// ErrNoNetwork says that namespaces can't be made here.
var ErrNoNetwork = errors.New("only root may make network namespaces")

// hubNumber is the hub's place among the addresses.
const hubNumber = 1

func addressOf(number int) string { return fmt.Sprintf("10.213.77.%d", number) }

// hardwareOf is a party's address on the bridge, and nowhere one that no party has.
func hardwareOf(number int) string { return fmt.Sprintf("02:ca:00:00:00:%02x", number) }

const nowhere = "02:ca:ff:ff:ff:ff"

func newNetwork(parties []string) (*Network, error) {
	n := &Network{hosts: map[string]host{}}
	if err := n.build(parties); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *Network) build(parties []string) (err error) {
	if n.hub, err = newNamespace(); err != nil {
		return err
	}
	setup := []string{"link set lo up", "link add bridge0 type bridge", "addr add " + addressOf(hubNumber) + "/24 dev bridge0", "link set bridge0 up"}
	if err := ip(n.hub, setup...); err != nil {
		return err
	}
	for i, name := range parties {
		if err := n.join(name, hubNumber+1+i); err != nil {
			return err
		}
	}
	return nil
}

// join makes the namespace of a party and ties it to the bridge.
func (n *Network) join(name string, number int) error {
	namespace, err := newNamespace()
	if err != nil {
		return err
	}
	n.hosts[name] = host{namespace, number}
	link := fmt.Sprintf("port%d", number)
	err = ip(n.hub, fmt.Sprintf("link add %s type veth peer name eth0 address %s netns /proc/%d/fd/%d", link, hardwareOf(number), os.Getpid(), namespace.Fd()),
		"link set "+link+" master bridge0 up")
	if err != nil {
		return err
	}
	return ip(namespace, "link set lo up", "addr add "+addressOf(number)+"/24 dev eth0", "link set eth0 up")
}

// newNamespace makes a network namespace.
func newNamespace() (namespace *os.File, err error) {
	err = onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return errors.Join(ErrNoNetwork, err)
		}
		namespace, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return namespace, err
}

// onThread runs something that changes the namespace of its thread, and then changes it back.
func onThread(do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, back) // the thread stays with this goroutine, and ends with it
	}
	runtime.UnlockOSThread()
	return err
}

// within runs something in a namespace: what it opens and starts stays there.
func within(namespace *os.File, do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			return err
		}
		return do()
	})
}

// ip runs commands of iproute2 in a namespace.
func ip(namespace *os.File, commands ...string) error {
	return within(namespace, func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(commands, "; "), err, out)
		}
		return nil
	})
}

func (n *Network) in(name string, do func() error) error { return within(n.hosts[name].namespace, do) }

// Address is that of a party.
func (n *Network) Address(name string) string { return addressOf(n.hosts[name].number) }

// Dial connects from the hub, which nothing is cut from.
func (n *Network) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = within(n.hub, func() error {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Cut lets nothing pass any more from one party to another; the other direction goes on.
func (n *Network) Cut(from, to string) error { return n.pointAt(from, to, nowhere) }

// Heal lets it pass again.
func (n *Network) Heal(from, to string) error {
	return n.pointAt(from, to, hardwareOf(n.hosts[to].number))
}

func (n *Network) pointAt(from, to, hardware string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	a, okA := n.hosts[from]
	b, okB := n.hosts[to]
	if !okA || !okB {
		return fmt.Errorf("%s or %s is not in the network", from, to)
	}
	return ip(a.namespace, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud permanent", addressOf(b.number), hardware))
}

func (n *Network) close() error {
	var errs []error
	for _, h := range n.hosts {
		errs = append(errs, h.namespace.Close())
	}
	if n.hub != nil {
		errs = append(errs, n.hub.Close())
	}
	return errors.Join(errs...)
}
