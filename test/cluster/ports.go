package cluster

import (
	"net"
	"strconv"
)

// loopback is a port of 127.0.0.1.
func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
