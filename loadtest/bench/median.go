package bench

import "slices"

// median is the middle one of what is taken of each report, of an even number the mean of
// the middle two.
func median(all []Report, of func(*Report) float64) float64 {
	values := make([]float64, len(all))
	for i := range all {
		values[i] = of(&all[i])
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// medianOf is nil if any report lacks the value.
func medianOf(all []Report, of func(*Report) *float64) *float64 {
	for i := range all {
		if of(&all[i]) == nil {
			return nil
		}
	}
	return new(median(all, func(r *Report) float64 { return *of(r) }))
}
