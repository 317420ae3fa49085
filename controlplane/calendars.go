package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/carillon-scheduler/carillon/controlplane/calendarfile"
	"github.com/carillon-scheduler/carillon/controlplane/jobspec"
	"github.com/carillon-scheduler/carillon/job"
	"github.com/carillon-scheduler/carillon/job/schedule"
	carillonv1 "github.com/carillon-scheduler/carillon/proto/carillon/v1"
	"github.com/carillon-scheduler/carillon/store"
)

// calendarService implements carillon.v1.CalendarService.
type calendarService struct {
	carillonv1.UnsafeCalendarServiceServer
	*Server
}

const (
	maxDescriptionBytes = 256
	// maxPutItems bounds the items of a put, before those that touch are joined.
	maxPutItems = 20_000
	// putTries bounds how often a put begins anew because another one was first.
	putTries = 5
)

// PutCalendar implements CalendarService.
func (s calendarService) PutCalendar(ctx context.Context, req *carillonv1.PutCalendarRequest) (*carillonv1.PutCalendarResponse, error) {
	var v violations
	ns, name, err := parseCalendar(req.GetName())
	v.check("name", err)
	next := store.Calendar{Namespace: ns, Name: name, Description: req.GetDescription(), CreatedAt: s.now()}
	warnings := calendarItems(ctx, &v, req, &next, s.clock())
	if len(next.Description) > maxDescriptionBytes || next.Description != job.CleanText([]byte(next.Description), maxDescriptionBytes) {
		v.add("description", reasonInvalidField, fmt.Sprintf("must be at most %d bytes of valid UTF-8 without NUL", maxDescriptionBytes))
	}
	if req.GetExpectedVersion() < 0 {
		v.add("expected_version", reasonInvalidField, "must not be negative")
	}
	if err := v.err(); err != nil {
		return nil, err
	}
	stored, err := s.put(ctx, next, req)
	if err != nil {
		return nil, err
	}
	m := calendarMessage(&stored)
	m.Warnings = warnings
	return &carillonv1.PutCalendarResponse{Calendar: m}, nil
}

// calendarItems puts together what a put holds, in canonical form.
func calendarItems(ctx context.Context, v *violations, req *carillonv1.PutCalendarRequest, c *store.Calendar, now time.Time) (warnings []string) {
	items := slices.Clone(req.GetItems())
	if len(items) > maxPutItems {
		v.add("items", reasonInvalidField, fmt.Sprintf("must be at most %d, are %d", maxPutItems, len(items)))
		return nil
	}
	own := len(items)
	if req.GetIcs() != "" {
		more, warned, err := calendarfile.FromICS(ctx, req.GetIcs(), now)
		v.check("ics", err)
		items, warnings = append(items, more...), warned
	}
	if req.GetCsv() != "" {
		more, warned, err := calendarfile.FromCSV(req.GetCsv())
		v.check("csv", err)
		items, warnings = append(items, more...), append(warnings, warned...)
	}
	if len(v.Fields) > 0 {
		return warnings
	}
	made, err := schedule.NewCalendar(c.Name, 1, items)
	var refused *schedule.CalendarError
	switch {
	case errors.As(err, &refused) && refused.Index < own:
		v.add(fmt.Sprintf("items[%d]", refused.Index), reasonInvalidField, fmt.Sprintf("%q: %s", refused.Item, refused.Reason))
	case err != nil:
		v.add("items", reasonInvalidField, err.Error())
	default:
		c.Items = made.Items()
	}
	return warnings
}

// put stores the next version of a calendar, if it differs from the newest.
func (s calendarService) put(ctx context.Context, next store.Calendar, req *carillonv1.PutCalendarRequest) (store.Calendar, error) {
	for range putTries {
		newest, err := s.store.Calendar(ctx, next.Namespace, next.Name, 0)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return next, s.toStatus(ctx, "read calendar", err)
		}
		live := newest.Version
		if newest.Deleted {
			live = 0
		}
		if req.ExpectedVersion != nil && int64(req.GetExpectedVersion()) != live {
			return next, fail(codes.FailedPrecondition, reasonCalendarChanged,
				fmt.Sprintf("expected_version: %s", whichVersion(req.GetName(), live)), "version", strconv.FormatInt(live, 10))
		}
		if live > 0 && slices.Equal(newest.Items, next.Items) && newest.Description == next.Description {
			return newest, nil
		}
		next.Version = newest.Version + 1
		if req.GetValidateOnly() {
			return next, nil
		}
		added, err := s.store.AddCalendar(ctx, next)
		if err != nil {
			return next, s.toStatus(ctx, "store calendar", err)
		}
		if added {
			return next, nil
		}
	}
	return next, s.toStatus(ctx, "store calendar", fmt.Errorf("others change it at the same time: %w", store.ErrUnavailable))
}

func whichVersion(name string, newest int64) string {
	if newest == 0 {
		return "there is no " + name
	}
	return fmt.Sprintf("the newest version of %s is %d", name, newest)
}

func calendarMessage(c *store.Calendar) *carillonv1.Calendar {
	return &carillonv1.Calendar{Name: "namespaces/" + c.Namespace + "/calendars/" + c.Name, Version: int32(c.Version), Items: c.Items,
		Description: c.Description, CreateTime: timestamp(c.CreatedAt), Deleted: c.Deleted}
}

// namedCalendar reads the calendar of a request's name field, or says what is wrong.
func (s calendarService) namedCalendar(ctx context.Context, name string, version int64) (store.Calendar, error) {
	ns, id, err := parseCalendar(name)
	if err != nil {
		return store.Calendar{}, invalid("name", reasonInvalidField, err.Error())
	}
	c, err := s.store.Calendar(ctx, ns, id, version)
	if errors.Is(err, store.ErrNotFound) || err == nil && version == 0 && c.Deleted {
		text := name + " not found"
		if version != 0 {
			text = fmt.Sprintf("version %d of %s", version, text)
		}
		return c, fail(codes.NotFound, reasonNotFound, text, "name", name)
	}
	return c, s.toStatus(ctx, "read calendar", err)
}

// GetCalendar implements CalendarService.
func (s calendarService) GetCalendar(ctx context.Context, req *carillonv1.GetCalendarRequest) (*carillonv1.GetCalendarResponse, error) {
	if req.GetVersion() < 0 {
		return nil, invalid("version", reasonInvalidField, "must not be negative")
	}
	c, err := s.namedCalendar(ctx, req.GetName(), int64(req.GetVersion()))
	if err != nil {
		return nil, err
	}
	return &carillonv1.GetCalendarResponse{Calendar: calendarMessage(&c)}, nil
}

// ListCalendars implements CalendarService.
func (s calendarService) ListCalendars(ctx context.Context, req *carillonv1.ListCalendarsRequest) (*carillonv1.ListCalendarsResponse, error) {
	var v violations
	ns, err := parseParent(req.GetParent())
	v.check("parent", err)
	size := pageSize(&v, req.GetPageSize())
	print := requestPrint(req, func(r *carillonv1.ListCalendarsRequest) { r.PageSize, r.PageToken = 0, "" })
	after := ""
	decodeToken(&v, req.GetPageToken(), print, &after)
	if err := v.err(); err != nil {
		return nil, err
	}
	calendars, err := s.store.Calendars(ctx, ns, after, size+1)
	if err != nil {
		return nil, s.toStatus(ctx, "list calendars", err)
	}
	resp := &carillonv1.ListCalendarsResponse{Calendars: []*carillonv1.Calendar{}}
	for i := range calendars[:min(size, len(calendars))] {
		resp.Calendars = append(resp.Calendars, calendarMessage(&calendars[i]))
	}
	resp.Calendars = resp.Calendars[:cutByBytes(resp.Calendars)]
	if n := len(resp.Calendars); n < len(calendars) {
		resp.NextPageToken = encodeToken(print, calendars[n-1].Name)
	}
	return resp, nil
}

// DeleteCalendar implements CalendarService.
func (s calendarService) DeleteCalendar(ctx context.Context, req *carillonv1.DeleteCalendarRequest) (*carillonv1.DeleteCalendarResponse, error) {
	for range putTries {
		newest, err := s.namedCalendar(ctx, req.GetName(), 0)
		if err != nil {
			return nil, err
		}
		end := store.Calendar{Namespace: newest.Namespace, Name: newest.Name, Version: newest.Version + 1, Deleted: true, CreatedAt: s.now()}
		added, err := s.store.AddCalendar(ctx, end)
		if err != nil {
			return nil, s.toStatus(ctx, "delete calendar", err)
		}
		if added {
			return &carillonv1.DeleteCalendarResponse{Calendar: calendarMessage(&end)}, nil
		}
	}
	return nil, s.toStatus(ctx, "delete calendar", fmt.Errorf("others change it at the same time: %w", store.ErrUnavailable))
}

// findCalendar implements jobspec.Calendars. No version of a calendar that was deleted is
// found.
func (s *Server) findCalendar(ctx context.Context, namespace, name string, version int64) (*schedule.Calendar, error) {
	c, err := s.store.Calendar(ctx, namespace, name, 0)
	if err == nil && !c.Deleted && version != 0 && version != c.Version {
		c, err = s.store.Calendar(ctx, namespace, name, version)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && c.Deleted {
		return nil, jobspec.ErrNoCalendar
	}
	if err != nil {
		return nil, s.toStatus(ctx, "read calendar", err)
	}
	made, err := schedule.NewCalendar(c.Name, c.Version, c.Items)
	if err != nil {
		return nil, s.toStatus(ctx, "read calendar", fmt.Errorf("calendar %s/%s: %w", namespace, name, err))
	}
	return made, nil
}
