package log

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
)

// xaes is XAES-256-GCM (c2sp.org/XAES-256-GCM): AES-256-GCM with nonces of 192 bits. A node
// encrypts hundreds of records a second for years with one key; 96 random bits, as in plain
// GCM, would be safe for months only.
type xaes struct {
	block cipher.Block
	k1    [aes.BlockSize]byte // the first CMAC subkey
}

const (
	xaesNonce    = 24
	xaesOverhead = xaesNonce + 16
)

func newXAES(key [32]byte) *xaes {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // a key of 32 bytes is valid
	}
	x := &xaes{block: block}
	block.Encrypt(x.k1[:], x.k1[:])
	var carry byte
	for i := len(x.k1) - 1; i >= 0; i-- {
		carry, x.k1[i] = x.k1[i]>>7, x.k1[i]<<1|carry
	}
	x.k1[len(x.k1)-1] ^= carry * 0x87
	return x
}

// seal appends nonce and ciphertext to dst.
func (x *xaes) seal(dst, plaintext, aad []byte) []byte {
	var nonce [xaesNonce]byte
	rand.Read(nonce[:]) // if it fails, it ends the process
	return x.sealNonce(append(dst, nonce[:]...), nonce[:], plaintext, aad)
}

func (x *xaes) sealNonce(dst, nonce, plaintext, aad []byte) []byte {
	return x.derive(nonce).Seal(dst, nonce[12:], plaintext, aad)
}

// open decrypts what seal has appended.
func (x *xaes) open(sealed, aad []byte) ([]byte, error) {
	if len(sealed) < xaesOverhead {
		return nil, errShort
	}
	nonce := sealed[:xaesNonce]
	return x.derive(nonce).Open(nil, nonce[12:], sealed[xaesNonce:], aad)
}

// derive returns the cipher for all nonces with the same first 12 bytes.
func (x *xaes) derive(nonce []byte) cipher.AEAD {
	var key [32]byte
	for i, half := range [][]byte{key[:16], key[16:]} {
		copy(half, []byte{0, byte(i + 1), 'X', 0})
		copy(half[4:], nonce[:12])
		for j := range half {
			half[j] ^= x.k1[j]
		}
		x.block.Encrypt(half, half)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}
