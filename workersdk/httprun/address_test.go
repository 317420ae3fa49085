package httprun

import (
	"net/netip"
	"strings"
	"testing"
)

func TestAddressesThatAreNotPublic(t *testing.T) {
	for address, what := range map[string]string{
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "not public",
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "::1": "not public",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private",
		"fc00::1": "not public", "fd12:3456::1": "not public",
		"169.254.1.1": "link-local", "fe80::1": "not public", "fe80::1%eth0": "of one link", "fec0::1": "not public",
		"100.64.0.1": "shared", "100.127.255.255": "shared",
		"224.0.0.1": "multicast", "239.1.2.3": "multicast", "ff02::1": "not public", "255.255.255.255": "reserved", "240.0.0.1": "reserved",
		"192.0.0.8": "reserved", "192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation",
		"198.18.0.1": "benchmarks", "192.88.99.1": "reserved", "2001:db8::1": "documentation", "3fff::1": "documentation", "100::1": "not public",
		// Clouds' metadata: AWS, GCP, Azure (twice), Alibaba, Oracle, and theirs in IPv6.
		"169.254.169.254": "link-local", "168.63.129.16": "metadata", "100.100.100.200": "shared", "192.0.0.192": "reserved",
		"fd00:ec2::254": "not public", "fd20:ce::254": "not public",
		// The same in the clothes of IPv6: mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP.
		"::ffff:127.0.0.1": "loopback", "::ffff:a9fe:a9fe": "link-local", "::ffff:10.0.0.1": "private",
		"::127.0.0.1": "not public", "::10.0.0.1": "not public", "::ffff:0:127.0.0.1": "not public", "::ffff:0:8.8.8.8": "not public",
		"64:ff9b::127.0.0.1": "loopback", "64:ff9b::a9fe:a9fe": "link-local", "64:ff9b::10.0.0.1": "private", "64:ff9b::168.63.129.16": "metadata",
		"64:ff9b:1::8.8.8.8": "not public",
		"2002:7f00:1::":      "loopback", "2002:a9fe:a9fe::1": "link-local", "2002:a00:1::1": "private", "2002:c0a8:101::": "private",
		"2001:0:4136:e378:8000:63bf:3fff:fdd2": "reserved", "2a00:1450::5efe:10.0.0.1": "private", "2a00:1450::200:5efe:127.0.0.1": "loopback",
		"fe80::5efe:8.8.8.8": "not public",
	} {
		if why := (addresses{}).why(netip.MustParseAddr(address)); why == "" || !strings.Contains(why, what) {
			t.Errorf("%s is %q, want %q", address, why, what)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	for _, address := range []string{"8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "192.167.1.1", "168.63.129.15",
		"::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2002:808:808::1", "2606:4700:4700::1111", "2a00:1450::200:5efe:8.8.8.8", "2003::1"} {
		if why := (addresses{}).why(netip.MustParseAddr(address)); why != "" {
			t.Errorf("%s is refused: %s", address, why)
		}
	}
}

// A range opens itself, and neither its neighbours nor other forms that lead into it.
func TestAllowedRanges(t *testing.T) {
	p := addresses{[]netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")}}
	for address, allowed := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "fd00::7": true,
		"10.2.0.1": false, "fd00:0:0:1::7": false, "64:ff9b::10.1.2.3": false, "127.0.0.1": false} {
		if why := p.why(netip.MustParseAddr(address)); (why == "") != allowed {
			t.Errorf("%s: %q, want allowed %v", address, why, allowed)
		}
	}
}

func TestHostRules(t *testing.T) {
	for _, c := range []struct {
		rule, scheme, host, port string
		allowed                  bool
	}{
		{"api.example.com", "https", "api.example.com", "443", true},
		{"API.Example.com.", "https", "api.example.com", "443", true},
		{"api.example.com", "http", "api.example.com", "80", true},
		{"api.example.com", "http", "api.example.com", "443", false},
		{"api.example.com", "https", "api.example.com", "8443", false},
		{"api.example.com", "https", "other.example.com", "443", false},
		{"api.example.com", "https", "x.api.example.com", "443", false},
		{"api.example.com:8443", "https", "api.example.com", "8443", true},
		{"api.example.com:8443", "https", "api.example.com", "443", false},
		{"api.example.com:*", "https", "api.example.com", "9", true},
		{"*.example.com", "https", "api.example.com", "443", true},
		{"*.example.com", "https", "a.b.example.com", "443", true},
		{"*.example.com", "https", "example.com", "443", false},
		{"*.example.com", "https", "badexample.com", "443", false},
		{"*.0.1", "https", "10.0.0.1", "443", false},
		{"*", "https", "anything.test", "443", true},
		{"*", "https", "2606:4700::1", "443", true},
		{"*", "https", "anything.test", "22", false},
		{"*:*", "https", "anything.test", "22", true},
		{"127.0.0.1:8080", "http", "127.0.0.1", "8080", true},
		{"[::1]", "http", "::1", "80", true},
		{"[::1]:8080", "http", "::1", "8080", true},
	} {
		r, err := parseHostRule(c.rule)
		if err != nil {
			t.Errorf("%s: %v", c.rule, err)
			continue
		}
		if got := r.allows(c.scheme, c.host, c.port); got != c.allowed {
			t.Errorf("%s and %s://%s:%s: %v, want %v", c.rule, c.scheme, c.host, c.port, got, c.allowed)
		}
	}
	for _, wrong := range []string{"", ":80", "a..b", "exämple.com", "a.b:0", "a.b:65536", "a.b:x", "a.b:", "https://a.b", "a/b", "::1", "*.10.0.0.1", "a*.b", "user@a.b", "fe80::1%eth0"} {
		if _, err := parseHostRule(wrong); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}
