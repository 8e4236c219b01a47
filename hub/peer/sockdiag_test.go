package peer

import (
	"encoding/binary"
	"net/netip"
	"strings"
	"testing"
)

// reply is a reply of the kernel, which bytes encodes.
type reply struct {
	kind          uint16
	sequence      uint32
	errno         int32
	family, state byte
	own, other    string
	uid, inode    uint32
	cut           int // bytes that are missing
}

func (r reply) bytes() []byte {
	b := make([]byte, replyLength)
	order := binary.NativeEndian
	order.PutUint32(b[0:], replyLength)
	order.PutUint16(b[4:], r.kind)
	order.PutUint32(b[8:], r.sequence)
	if r.kind == typeError {
		order.PutUint32(b[16:], uint32(-r.errno))
		return b[:36]
	}
	b[16], b[17] = r.family, r.state
	for i, text := range []string{r.own, r.other} {
		a := netip.MustParseAddrPort(text)
		binary.BigEndian.PutUint16(b[20+2*i:], a.Port())
		copy(b[24+16*i:], a.Addr().AsSlice())
	}
	order.PutUint32(b[replyLength-8:], r.uid)
	order.PutUint32(b[replyLength-4:], r.inode)
	return b[:len(b)-r.cut]
}

func TestParseDiag(t *testing.T) {
	own, other := netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:10261")
	good := reply{kind: typeDiag, sequence: 7, family: familyIPv4, state: byte(stateEstablished), own: own.String(), other: other.String(), uid: 1000, inode: 99}
	with := func(change func(*reply)) []byte {
		r := good
		change(&r)
		return r.bytes()
	}
	found := socket{found: true, state: stateEstablished, uid: 1000, inode: 99}
	tests := map[string]struct {
		reply []byte
		want  socket
		err   string
	}{
		"its socket": {reply: good.bytes(), want: found},
		"its socket of IPv6, connected to IPv4": {
			reply: with(func(r *reply) {
				r.family, r.own, r.other = familyIPv6, "[::ffff:127.0.0.1]:40000", "[::ffff:127.0.0.1]:10261"
			}), want: found,
		},
		"no socket":                             {reply: reply{kind: typeError, sequence: 7, errno: enoent}.bytes()},
		"a refusal":                             {reply: reply{kind: typeError, sequence: 7, errno: 1}.bytes(), err: "error 1"},
		"whoever listens at its port":           {reply: with(func(r *reply) { r.state, r.other = byte(stateListen), "0.0.0.0:0" })},
		"a listener that has both addresses":    {reply: with(func(r *reply) { r.state = byte(stateListen) })},
		"a connection from another port":        {reply: with(func(r *reply) { r.own = "127.0.0.1:40001" })},
		"a connection to another address":       {reply: with(func(r *reply) { r.other = "127.0.0.2:10261" })},
		"a family that nobody knows":            {reply: with(func(r *reply) { r.family = 3 })},
		"the reply to another request":          {reply: with(func(r *reply) { r.sequence = 6 }), err: "request 6"},
		"another message":                       {reply: with(func(r *reply) { r.kind = 3 }), err: "type 3"},
		"a reply that is cut off":               {reply: with(func(r *reply) { r.cut = 1 }), err: "87 bytes"},
		"a reply that is cut off in its header": {reply: with(func(r *reply) { r.cut = 70 }), err: "bytes"},
		"an empty reply":                        {reply: nil, err: "0 bytes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseDiag(tt.reply, own, other, 7)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("got %+v, %v; want %+v, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

// FuzzDiagReply checks that only a reply with both addresses gives a socket.
func FuzzDiagReply(f *testing.F) {
	own, other := netip.MustParseAddrPort("127.0.0.1:40000"), netip.MustParseAddrPort("127.0.0.1:10261")
	good := reply{kind: typeDiag, sequence: 7, family: familyIPv4, state: byte(stateEstablished), own: own.String(), other: other.String(), uid: 1000, inode: 99}
	f.Add(good.bytes())
	f.Add(reply{kind: typeError, sequence: 7, errno: enoent}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseDiag(b, own, other, 7)
		if err != nil && s != (socket{}) || !s.found && s != (socket{}) {
			t.Errorf("a socket that was not found: %+v, %v", s, err)
		}
		if !s.found {
			return
		}
		if swapped, _ := parseDiag(b, other, own, 7); swapped.found {
			t.Error("the reply is for either end")
		}
	})
}
