package admission

import (
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/flavors"
)

// maxRecordBytes bounds a decision record as JSON, whatever the cluster's size.
const maxRecordBytes = 8 << 10

// maxStandings is how many standings a record holds.
const maxStandings = 64

// maxHistory is how many earlier decisions a Placement keeps.
const maxHistory = 8

// Record returns what a Placement keeps of a decision. It is cut to at most maxRecordBytes: the later reasons of each
// standing go first, then the later standings.
func Record(dec Decision, p *flavors.Policy, now time.Time) *v1alpha1.DecisionRecord {
	r := &v1alpha1.DecisionRecord{
		Time: metav1.NewTime(now), Verdict: dec.Verdict, LedgerVersion: dec.LedgerVersion,
		Reason: dec.Reason, Message: dec.Message, Standings: dec.Standings,
	}
	r.Standings = r.Standings[:min(len(r.Standings), maxStandings)]
	if p != nil {
		r.Policy, r.Revision = p.Name, p.Revision
	}
	for keep := maxReasons; keep > 0 && size(r) > maxRecordBytes; keep /= 2 {
		cutReasons(r, keep)
	}
	for len(r.Standings) > 0 && size(r) > maxRecordBytes {
		r.Standings = r.Standings[:len(r.Standings)-1]
	}
	return r
}

// maxReasons is the longest list of reasons that a standing may hold in a record.
const maxReasons = 16

func cutReasons(r *v1alpha1.DecisionRecord, keep int) {
	standings := make([]v1alpha1.FlavorStanding, len(r.Standings))
	for i, s := range r.Standings {
		standings[i] = s
		standings[i].Reasons = nil
		for j, reason := range s.Reasons {
			if j >= keep {
				break
			}
			reason.Message = cut(reason.Message, max(40, maxReasonMessage*keep/maxReasons))
			standings[i].Reasons = append(standings[i].Reasons, reason)
		}
	}
	r.Standings = standings
}

// size returns how many bytes a record has as JSON, or more where that is within maxRecordBytes all the same.
func size(r *v1alpha1.DecisionRecord) int {
	if most := sizeAtMost(r); most <= maxRecordBytes {
		return most
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return 0
	}
	return len(raw)
}

// Bounds of what a record, a standing and a reason take as JSON beside their texts: names of fields, numbers and a time.
const (
	recordBytes   = 256
	standingBytes = 192
	reasonBytes   = 96
)

// sizeAtMost bounds size from above.
func sizeAtMost(r *v1alpha1.DecisionRecord) int {
	n := recordBytes + textBytes(string(r.Verdict)) + textBytes(r.Policy) + textBytes(r.Revision) + textBytes(string(r.Reason)) + textBytes(r.Message)
	for i := range r.Standings {
		s := &r.Standings[i]
		n += standingBytes + textBytes(s.PodSet) + textBytes(s.Flavor) + textBytes(s.Alternative) + textBytes(string(s.Standing)) + textBytes(s.Quota)
		for j := range s.Reasons {
			n += reasonBytes + textBytes(string(s.Reasons[j].Reason)) + textBytes(s.Reasons[j].Message)
		}
	}
	return n
}

// textBytes bounds what a text takes as JSON: what may have to be escaped takes up to six bytes.
func textBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		if b := s[i]; b < ' ' || b >= 0x7f || b == '"' || b == '\\' || b == '<' || b == '>' || b == '&' {
			n += 5
		}
	}
	return n
}

// SameRecord says that two records tell the same, time and ledger version aside.
func SameRecord(a, b *v1alpha1.DecisionRecord) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Verdict == b.Verdict && a.Reason == b.Reason && a.Message == b.Message && a.Policy == b.Policy && a.Revision == b.Revision &&
		slices.EqualFunc(a.Standings, b.Standings, sameStanding)
}

func sameStanding(a, b v1alpha1.FlavorStanding) bool {
	return a.PodSet == b.PodSet && a.Flavor == b.Flavor && a.Alternative == b.Alternative && a.Standing == b.Standing &&
		a.Nodes == b.Nodes && a.Devices == b.Devices && a.Quota == b.Quota && slices.Equal(a.Reasons, b.Reasons)
}

// Push makes r the record of a status, and the one before it the newest of its history where verdict or reason differ.
func Push(s *v1alpha1.PlacementStatus, r *v1alpha1.DecisionRecord) {
	if old := s.Record; old != nil && (old.Verdict != r.Verdict || old.Reason != r.Reason) {
		h := v1alpha1.DecisionSummary{Time: old.Time, Verdict: old.Verdict, Reason: old.Reason, Message: cut(old.Message, maxReasonMessage)}
		s.History = append([]v1alpha1.DecisionSummary{h}, s.History...)
		s.History = s.History[:min(len(s.History), maxHistory)]
	}
	s.Record = r
}
