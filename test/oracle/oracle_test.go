package oracle

import (
	"testing"
	"time"
)

// TestAgreement holds both sides against each other on as many worlds as every run of the tests has time for.
func TestAgreement(t *testing.T) {
	began := time.Now()
	s, err := Agree(t.Context(), t.Output(), Seeds{First: 1, Count: 500})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s; %.1fs", s, time.Since(began).Seconds())
	if s.Disagreements > 0 {
		t.Errorf("%d disagreements", s.Disagreements)
	}
	if s.Worlds != 500 {
		t.Errorf("%d of 500 worlds were compared", s.Worlds)
	}
	if s.Undecided > 2 {
		t.Errorf("%d worlds are undecided", s.Undecided)
	}
	if s.Fit < 200 || s.Fit > 300 {
		t.Errorf("%d of 500 pods fit: too few or too many to be near the border", s.Fit)
	}
}

// TestGangsAgree has gangs placed, and bound by kube-scheduler as they were promised.
func TestGangsAgree(t *testing.T) {
	began := time.Now()
	s, err := AgreeGangs(t.Context(), t.Output(), Seeds{First: 1, Count: 200})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s; %.1fs", s, time.Since(began).Seconds())
	if s.Disagreements > 0 {
		t.Errorf("%d disagreements", s.Disagreements)
	}
	if s.Worlds != 200 {
		t.Errorf("%d of 200 worlds were looked at", s.Worlds)
	}
	if s.Undecided > 2 {
		t.Errorf("%d gangs are undecided", s.Undecided)
	}
	if s.Placed < 70 || s.Placed > 130 || s.Cut < 80 {
		t.Errorf("%d of 200 gangs have a place, of %d pods with claims: too few or too many to be near the border", s.Placed, s.Cut)
	}
}
