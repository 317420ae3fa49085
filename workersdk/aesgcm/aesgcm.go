// Package aesgcm encrypts what jobs hold, with AES-GCM, before the cluster sees it: parameters,
// results and checkpoints. The cluster stores one JSON document for each:
//
//	{"encrypted": "AES-GCM", "key": "2026-11", "data": "…base64…"}
//
// Whoever creates jobs encodes the parameters, and workers use the same codec:
//
//	codec, err := aesgcm.New("2026-11", map[string][]byte{"2026-11": key, "2026-05": old})
//	params, err := codec.Encode(worker.AboutParams("namespaces/default/jobs/nightly"), plain)
//	w, err := worker.Dial(ctx, target, worker.UseCodec(codec))
//
// The name of the job or slot is authenticated with the data: nobody can give one job what was
// encrypted for another. Names, labels, error texts, progress and logs stay readable.
//
// Nonces are random, of 96 bits: exchange a key before it has encrypted 2^32 documents (NIST SP
// 800-38D, 8.3). An old key is kept as long as anything that it encrypted.
package aesgcm

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
)

// algorithm is how an encrypted document names what was done to it.
const algorithm = "AES-GCM"

// ErrPlain says that something wasn't encrypted, and should have been.
var ErrPlain = errors.New("it isn't encrypted")

// Codec encrypts with one key and decrypts with all. It may be used by many goroutines.
type Codec struct {
	current string
	keys    map[string]cipher.AEAD
	plain   bool
}

// Option changes a codec.
type Option func(*Codec)

// AcceptPlain lets through what isn't encrypted, for the time in which jobs are moved over.
// Whoever can create jobs can then give a worker parameters without having a key.
func AcceptPlain() Option { return func(c *Codec) { c.plain = true } }

// New returns a codec that encrypts with the key of the id current. Keys have 16, 24 or 32
// bytes; their ids are stored in plain text.
func New(current string, keys map[string][]byte, opts ...Option) (*Codec, error) {
	c := &Codec{current: current, keys: make(map[string]cipher.AEAD, len(keys))}
	for id, key := range keys {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("key %q has %d bytes, not 16, 24 or 32", id, len(key))
		}
		if c.keys[id], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			return nil, fmt.Errorf("key %q: %w", id, err)
		}
	}
	if c.keys[current] == nil {
		return nil, fmt.Errorf("there is no key %q to encrypt with", current)
	}
	for _, opt := range opts {
		opt(c)
	}
	return c, nil
}

// document is how something encrypted is stored.
type document struct {
	Encrypted string `json:"encrypted"`
	Key       string `json:"key"`
	Data      []byte `json:"data"` // a nonce, and what was made with it
}

// Encode encrypts; about is authenticated, too.
func (c *Codec) Encode(about string, plain []byte) ([]byte, error) {
	return json.Marshal(document{algorithm, c.current, c.keys[c.current].Seal(nil, nil, plain, []byte(about))})
}

// Decode decrypts what Encode made with the same about. It fails with [ErrPlain] for what
// isn't encrypted, unless that is accepted.
func (c *Codec) Decode(about string, data []byte) ([]byte, error) {
	var d document
	if err := json.Unmarshal(data, &d); err != nil || d.Encrypted == "" {
		if c.plain {
			return data, nil
		}
		return nil, fmt.Errorf("the %s: %w", about, ErrPlain)
	}
	if d.Encrypted != algorithm {
		return nil, fmt.Errorf("the %s is encrypted by %q, not by %s", about, d.Encrypted, algorithm)
	}
	key := c.keys[d.Key]
	if key == nil {
		return nil, fmt.Errorf("the %s was encrypted with key %q, which isn't known here", about, d.Key)
	}
	plain, err := key.Open(nil, nil, d.Data, []byte(about))
	if err != nil {
		return nil, fmt.Errorf("the %s can't be decrypted: it was changed, belongs to something else, or key %q is another one", about, d.Key)
	}
	return plain, nil
}
