package job

import "encoding/json"

// Bounds of Notes.
const (
	MaxCheckpointBytes = 64 << 10
	MaxLogBytes        = 16 << 10
	MaxNoteBytes       = 1 << 10
)

// Notes is what an attempt says of itself while it runs, and what the next one of its slot
// is to know.
type Notes struct {
	Checkpoint []byte `json:"checkpoint,omitempty"` // the next attempt gets it back
	Done       int64  `json:"done,omitempty"`
	Total      int64  `json:"total,omitempty"`
	Note       string `json:"note,omitempty"`
	Log        string `json:"log,omitempty"` // the newest lines that the handler logged
}

// Encode returns how n is stored; nil if it says nothing.
func (n Notes) Encode() []byte {
	if len(n.Checkpoint) == 0 && n.Done == 0 && n.Total == 0 && n.Note == "" && n.Log == "" {
		return nil
	}
	b, err := json.Marshal(n)
	if err != nil {
		return nil // of what it holds, all can be marshaled
	}
	return b
}

// DecodeNotes reads what Encode wrote; what can't be read says nothing.
func DecodeNotes(b []byte) (n Notes) {
	if len(b) == 0 || json.Unmarshal(b, &n) != nil {
		return Notes{}
	}
	return n
}

// Handed returns what of n an attempt leaves to the next one.
func (n Notes) Handed() Notes { return Notes{Checkpoint: n.Checkpoint} }
