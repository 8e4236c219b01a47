//go:build !linux

package peer

import (
	"errors"
	"net/netip"
	"syscall"
)

func ownCgroups(string) ([]membership, error) { return nil, errors.ErrUnsupported }

func socketFinder() func(local, remote netip.AddrPort) (socket, error) {
	return func(netip.AddrPort, netip.AddrPort) (socket, error) { return socket{}, errors.ErrUnsupported }
}

func stateOf(syscall.Conn) (tcpState, error) { return 0, errors.ErrUnsupported }

func ownNetwork(string) string { return "" }

func (s *search) in(int) {}

func (s *search) everywhere() error { return errors.ErrUnsupported }

// SelfTest fails: peers can be identified on Linux only.
func (p *Peers) SelfTest() error { return errors.ErrUnsupported }
