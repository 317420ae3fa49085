package httprun

import (
	"net/netip"
	"slices"
)

// refused are the ranges that are not public, by IANA's registries of special addresses,
// and the public addresses at which clouds tell secrets to their machines. Those of IPv6
// lie within 2000::/3: nothing outside of it is public.
var refused = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "shared (carrier-grade NAT)"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("168.63.129.16/32"), "a cloud's metadata"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "for documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "for benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "for documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "for documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("2001::/23"), "reserved"}, // among them Teredo, which leads to any IPv4
	{netip.MustParsePrefix("2001:db8::/32"), "for documentation"},
	{netip.MustParsePrefix("3fff::/20"), "for documentation"},
}

var (
	public6 = netip.MustParsePrefix("2000::/3")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
	sixTo4  = netip.MustParsePrefix("2002::/16")
)

// addresses says which addresses may be dialled: public ones, and those that are allowed.
type addresses struct{ allowed []netip.Prefix }

// why says why an address may not be dialled; empty: it may.
func (p addresses) why(a netip.Addr) string {
	a = a.Unmap()
	if slices.ContainsFunc(p.allowed, func(n netip.Prefix) bool { return n.Contains(a.WithZone("")) }) {
		return ""
	}
	return special(a)
}

// special says what an address is that isn't public.
func special(a netip.Addr) string {
	if a.Zone() != "" {
		return "of one link"
	}
	for _, r := range refused {
		if r.prefix.Contains(a) {
			return r.what
		}
	}
	if a.Is4() {
		return ""
	}
	if v4, ok := within(a); ok {
		return special(v4)
	}
	if !public6.Contains(a) {
		return "not public"
	}
	return ""
}

// within returns the IPv4 address to which an IPv6 address leads: through NAT64, 6to4 or
// ISATAP.
func within(a netip.Addr) (netip.Addr, bool) {
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixTo4.Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case public6.Contains(a) && b[8]&^0x02 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return netip.AddrFrom4([4]byte(b[12:16])), true
	}
	return netip.Addr{}, false
}
