package workersdk

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Codec changes what the cluster stores of handlers' data: encrypts it, above all. Parameters
// and results stay JSON documents in between; whoever creates jobs encodes the parameters.
// It may be called by many goroutines.
//
// About names what the data belongs to, as [AboutParams], [AboutResult] and [AboutCheckpoint]
// return it: a codec that authenticates binds it, so that nobody can give one job the data of
// another.
type Codec interface {
	Encode(about string, plain []byte) ([]byte, error)
	Decode(about string, data []byte) ([]byte, error)
}

// UseCodec sets the codec for parameters, results and checkpoints: default none. Parameters
// that can't be decoded fail the attempt with code "codec". What is logged, progress and error
// texts are not encoded.
func UseCodec(c Codec) Option { return func(cfg *config) { cfg.codec = c } }

// AboutParams names the parameters of a job, by its resource name,
// namespaces/{namespace}/jobs/{job}.
func AboutParams(job string) string { return "params of " + job }

// AboutResult names the result of a slot, by its resource name.
func AboutResult(slot string) string { return "result of " + slot }

// AboutCheckpoint names the checkpoint of a slot, by its resource name.
func AboutCheckpoint(slot string) string { return "checkpoint of " + slot }

// decode makes the parameters and the checkpoint what they were before they were encoded.
func (a *attempt) decode() (err error) {
	if a.cfg.codec == nil {
		return nil
	}
	job := TaskInfo{a}.Job()
	if len(a.params) > 0 {
		if a.params, err = a.cfg.codec.Decode(AboutParams(job), a.params); err != nil {
			return Coded(codeCodec, fmt.Errorf("decode the parameters: %w", err))
		}
	}
	if len(a.checkpoint) > 0 {
		if a.checkpoint, err = a.cfg.codec.Decode(AboutCheckpoint(a.slot), a.checkpoint); err != nil {
			return Coded(codeCodec, fmt.Errorf("decode the checkpoint: %w", err))
		}
	}
	return nil
}

// encodeResult encodes a result, which must stay a document that can be stored.
func (a *attempt) encodeResult(doc []byte) ([]byte, error) {
	if a.cfg.codec == nil {
		return doc, nil
	}
	out, err := a.cfg.codec.Encode(AboutResult(a.slot), doc)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode the result: %w", err)
	case len(out) > maxDocumentBytes:
		return nil, fmt.Errorf("the encoded result has %d bytes, more than %d", len(out), maxDocumentBytes)
	case !json.Valid(out):
		return nil, errors.New("the codec made of the result what is no JSON document")
	}
	return out, nil
}

func (a *attempt) encodeCheckpoint(data []byte) ([]byte, error) {
	if a.cfg.codec == nil || len(data) == 0 {
		return append([]byte{}, data...), nil // the caller's may change; and empty is not nil
	}
	out, err := a.cfg.codec.Encode(AboutCheckpoint(a.slot), data)
	if err != nil {
		return nil, fmt.Errorf("encode the checkpoint: %w", err)
	}
	return out, nil
}
