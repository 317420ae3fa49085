package storekit

import (
	"encoding/json"
	"fmt"

	"github.com/carillon-scheduler/carillon/store"
)

// EncodeGapOptions writes the options of a gap as text.
func EncodeGapOptions(o store.GapOptions) (string, error) {
	text, err := json.Marshal(o)
	return string(text), err
}

func decodeGapOptions(text string) (o store.GapOptions, err error) {
	if text == "{}" {
		return o, nil
	}
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return o, fmt.Errorf("the options of a gap can't be read: %w", err)
	}
	return o, nil
}
