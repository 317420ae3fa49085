package job

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxFingerprinted bounds how much of an error's text tells its cause: what follows
// is mostly a stack.
const maxFingerprinted = 512

// Fingerprint returns what the errors of one cause have in common, as 16 hexadecimal
// digits: a hash of the code and of the text's first line without its numbers,
// identifiers and quoted parts, which differ from one failure to the next.
func Fingerprint(code, text string) string {
	text, _, _ = strings.Cut(text[:min(len(text), maxFingerprinted)], "\n")
	var plain strings.Builder
	var quote byte
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case quote != 0:
			if c == quote {
				quote = 0
			}
			i++
		case (c == '"' || c == '`' || c == '\'' && !wordBefore(text, i)) && strings.IndexByte(text[i+1:], c) >= 0:
			quote = c
			plain.WriteByte('*')
			i++
		case wordByte(c):
			end := i + 1
			for end < len(text) && (wordByte(text[end]) || text[end] == '-' && end+1 < len(text) && wordByte(text[end+1])) {
				end++
			}
			if word := text[i:end]; strings.ContainsAny(word, "0123456789") {
				plain.WriteByte('#')
			} else {
				plain.WriteString(strings.ToLower(word))
			}
			i = end
		default:
			plain.WriteByte(c)
			i++
		}
	}
	sum := sha256.Sum256([]byte(code + "\x00" + plain.String()))
	return hex.EncodeToString(sum[:8])
}

func wordByte(c byte) bool { return alphanumeric(c) || c == '_' || c >= 0x80 }

// wordBefore reports whether the character before i belongs to a word, as in "isn't".
func wordBefore(text string, i int) bool { return i > 0 && wordByte(text[i-1]) }
