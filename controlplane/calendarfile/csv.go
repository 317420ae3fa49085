package calendarfile

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/carillon-scheduler/carillon/job/schedule"
)

// FromCSV reads the items of a CSV file: one in the first column of each line, or a
// first and a last date, or instant, in the first two. What else a line holds, empty
// lines, lines that begin with #, and a first line of titles are left out; a warning tells
// of the last. Columns are parted by commas, or by semicolons if the first line has no
// comma. An error names the line.
func FromCSV(text string) (items, warnings []string, err error) {
	if err := checkText(text); err != nil {
		return nil, nil, err
	}
	text = strings.TrimPrefix(text, "\ufeff")
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1 // whatever else there is
	r.TrimLeadingSpace = true
	r.Comment = '#'
	if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, ",") && strings.Contains(first, ";") {
		r.Comma = ';'
	}
	for first := true; ; first = false {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return items, warnings, nil
		}
		if err != nil {
			return nil, nil, err // names the line
		}
		item := itemOf(record)
		if item == "" {
			continue
		}
		if _, err := schedule.NewCalendar("", 1, []string{item}); err != nil {
			if first && !strings.ContainsAny(item, "0123456789") {
				warnings = append(warnings, fmt.Sprintf("the first line, %q, was taken as titles", strings.Join(record, string(r.Comma))))
				continue
			}
			line, _ := r.FieldPos(0)
			var refused *schedule.CalendarError
			if errors.As(err, &refused) {
				return nil, nil, fmt.Errorf("line %d, %q: %s", line, refused.Item, refused.Reason)
			}
			return nil, nil, fmt.Errorf("line %d: %w", line, err)
		}
		items = append(items, item)
	}
}

// itemOf returns the item of a line, or "" for an empty one.
func itemOf(record []string) string {
	first := strings.TrimSpace(record[0])
	if len(record) < 2 || first == "" || strings.Contains(first, "/") {
		return first
	}
	if last := strings.TrimSpace(record[1]); last != "" && last[0] >= '0' && last[0] <= '9' {
		return first + "/" + last
	}
	return first
}

// FromLines reads items that are parted by blanks, commas or lines. From a # on, a line is
// a comment.
func FromLines(text string) (items []string, err error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		items = append(items, strings.FieldsFunc(line, func(r rune) bool { return unicode.IsSpace(r) || r == ',' })...)
	}
	return items, nil
}

// Read reads a file by the end of its name: .ics, .csv, or lines of items.
func Read(ctx context.Context, name, text string, now time.Time) (items, warnings []string, err error) {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".ics":
		return FromICS(ctx, text, now)
	case ".csv":
		return FromCSV(text)
	}
	items, err = FromLines(text)
	return items, nil, err
}
