package report

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Clock is a time as whole seconds since a start, written "310s".
type Clock int64

// ClockOf returns t as seconds since start, rounded down.
func ClockOf(start, t time.Time) Clock {
	d := t.Sub(start)
	c := Clock(d / time.Second)
	if d < 0 && d%time.Second != 0 {
		c--
	}
	return c
}

// String returns the seconds with their unit.
func (c Clock) String() string { return strconv.FormatInt(int64(c), 10) + "s" }

// MarshalText writes what String returns.
func (c Clock) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Clock) UnmarshalText(text []byte) error {
	digits, ok := strings.CutSuffix(string(text), "s")
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil {
		return fmt.Errorf("read clock %q: want whole seconds such as 310s", text)
	}
	*c = Clock(n)
	return nil
}
