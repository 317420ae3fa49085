package site

import (
	"context"

	"github.com/carillon-scheduler/carillon/store/cockroach/pgtest"
)

// Database is the PostgreSQL of a site. What it has committed survives the end of its processes.
type Database struct {
	server *pgtest.Server
	// Address is where nodes reach it, and Local where this process does, whatever is cut.
	Address, Local string
}

func (s *Site) startDatabase(ctx context.Context) (*Database, error) {
	d := &Database{}
	err := s.in(DatabaseName, func() (err error) {
		if s.network == nil {
			d.server, err = pgtest.StartDurable(ctx)
		} else {
			d.server, err = pgtest.StartServing(ctx, s.network.Address(DatabaseName))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	name, err := d.server.NewDatabase(ctx, "")
	if err != nil {
		return d, err
	}
	d.Local = d.server.URL(name)
	d.Address = d.Local
	if s.network != nil {
		d.Address = d.server.AddressURL(name)
	}
	return d, nil
}

// PID is the number of its first process.
func (d *Database) PID() int { return d.server.PID() }

// Pause stops it where it is; Resume lets it go on.
func (d *Database) Pause() error { return d.server.Pause() }

// Resume ends a Pause.
func (d *Database) Resume() error { return d.server.Resume() }

func (d *Database) stop() error { return d.server.Stop() }
