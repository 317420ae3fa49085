package controlplane

import (
	"errors"
	"fmt"

	"github.com/carillon-scheduler/carillon/job"
)

const maxReasonBytes = 1024

func checkReason(reason string) error {
	if len(reason) > maxReasonBytes {
		return fmt.Errorf("must be at most %d bytes", maxReasonBytes)
	}
	if reason != job.CleanText([]byte(reason), maxReasonBytes) {
		return errors.New("must not hold the character NUL")
	}
	return nil
}
