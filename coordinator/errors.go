package coordinator

import "errors"

// The kinds of errors that coordinators return, wrapped.
var (
	// ErrAlone: the cluster has one node for ever.
	ErrAlone = errors.New("the node is alone")
	// ErrUnavailable: the coordinator doesn't answer.
	ErrUnavailable = errors.New("the coordinator can't be reached")
	// ErrNoMember: no node of that name takes part.
	ErrNoMember = errors.New("no such node takes part")
)
