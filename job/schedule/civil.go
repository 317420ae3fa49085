package schedule

// Calendar arithmetic on the proleptic Gregorian calendar, in whole days since
// 1970-01-01. The years begin in March inside, which puts the leap day last and
// makes month lengths a linear formula.

const (
	secondsPerDay = 86400
	daysPer400    = 146097
	// marchYear0 is the number of days from 0000-03-01 to 1970-01-01.
	marchYear0 = 719468
)

// daysFromCivil returns the day number of a date. The year must be at least 0.
func daysFromCivil(year, month, day int) int64 {
	if month <= 2 {
		year--
		month += 12
	}
	if year < 0 { // January and February of year 0
		return daysFromCivil(year+400, month, day) - daysPer400
	}
	y := int64(year)
	inYear := int64(153*(month-3)+2)/5 + int64(day) - 1
	return 365*y + y/4 - y/100 + y/400 + inYear - marchYear0
}

// civilFromDays returns the date of a day number from year 1 on.
func civilFromDays(days int64) (year, month, day int) {
	z := uint64(days + marchYear0)
	era := z / daysPer400
	inEra := z % daysPer400
	yearOfEra := (inEra - inEra/1460 + inEra/36524 - inEra/(daysPer400-1)) / 365
	inYear := inEra - (365*yearOfEra + yearOfEra/4 - yearOfEra/100)
	m := (5*inYear + 2) / 153 // 0 is March
	day = int(inYear-(153*m+2)/5) + 1
	year = int(yearOfEra + era*400)
	if m < 10 {
		return year, int(m) + 3, day
	}
	return year + 1, int(m) - 9, day
}

// weekday returns the day of the week of a day number, 0 being Sunday.
func weekday(days int64) int { return int(floorMod(days+4, 7)) }

func isLeap(year int) bool {
	return year%4 == 0 && (year%100 != 0 || year%400 == 0)
}

// monthLength returns the number of days of a month, 1 being January.
func monthLength(year, month int) int {
	switch month {
	case 2:
		if isLeap(year) {
			return 29
		}
		return 28
	case 4, 6, 9, 11:
		return 30
	}
	return 31
}

// floorMod returns the remainder of a/b that is never negative. b must be
// positive.
func floorMod(a, b int64) int64 {
	m := a % b
	if m < 0 {
		m += b
	}
	return m
}
