package site

import (
	"net"
	"strconv"
	"testing"
)

// A node could not start once, for its port had become that of another site's connection.
func TestPortsAreNotThoseOfConnections(t *testing.T) {
	for range 50 {
		address, err := freeAddress()
		if err != nil {
			t.Fatal(err)
		}
		_, text, _ := net.SplitHostPort(address)
		if port, err := strconv.Atoi(text); err != nil || port < lowestPort || port > highestPort {
			t.Errorf("%s, %v", address, err)
		}
	}
}
