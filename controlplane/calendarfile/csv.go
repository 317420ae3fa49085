package calendarfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/carillon-scheduler/carillon/job/schedule"
)

// FromCSV reads the items of a CSV file: one in the first column of each line, or a
// first and a last date, or instant, in the first two. What else a line holds, empty
// lines, and a first line of titles are left out. Columns are parted by commas, or by
// semicolons if the first line has no comma. An error names the line.
func FromCSV(text string) (items []string, err error) {
	if err := checkText(text); err != nil {
		return nil, err
	}
	text = strings.TrimPrefix(text, "\ufeff")
	r := csv.NewReader(strings.NewReader(text))
	r.FieldsPerRecord = -1 // whatever else there is
	r.TrimLeadingSpace = true
	if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, ",") && strings.Contains(first, ";") {
		r.Comma = ';'
	}
	for first := true; ; first = false {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return nil, err // names the line
		}
		item := itemOf(record)
		if item == "" {
			continue
		}
		if _, err := schedule.NewCalendar("", 1, []string{item}); err != nil {
			if first && !strings.ContainsAny(item, "0123456789") {
				continue // titles
			}
			line, _ := r.FieldPos(0)
			var refused *schedule.CalendarError
			if errors.As(err, &refused) {
				return nil, fmt.Errorf("line %d, %q: %s", line, refused.Item, refused.Reason)
			}
			return nil, fmt.Errorf("line %d: %w", line, err)
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
	last := strings.TrimSpace(record[1])
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if _, err := time.Parse(layout, last); err == nil {
			return first + "/" + last
		}
	}
	return first
}
