package lab

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// AuditLog is the API server's audit log: one JSON event a line for every write that ended, with who did it and to what,
// without the objects themselves. Leases of nodes are left out.
func (l *Lab) AuditLog() string { return l.state.audit() }

// AuditSince returns the writes that ended at or after a time, in the order of the log. A client may see the answer a
// moment before the write is in the log.
func (l *Lab) AuditSince(since time.Time) ([]auditv1.Event, error) {
	file, err := os.Open(l.AuditLog())
	if err != nil {
		return nil, fmt.Errorf("read audit log: %w", err)
	}
	defer file.Close()
	return readAudit(file, since)
}

// readAudit stops at a last line that is still being written.
func readAudit(r io.Reader, since time.Time) ([]auditv1.Event, error) {
	var events []auditv1.Event
	reader := bufio.NewReader(r)
	for {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		if before(line, since) {
			continue
		}
		var event auditv1.Event
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("read audit log: %w", err)
		}
		if !event.StageTimestamp.Time.Before(since) {
			events = append(events, event)
		}
	}
}

// before says whether a line of the log tells that its event ended before a time, without a look at the rest: a log is long,
// and what has been asked about is at its end.
func before(line []byte, since time.Time) bool {
	_, rest, found := bytes.Cut(line, []byte(`"stageTimestamp":"`))
	if !found {
		return false
	}
	text, _, found := bytes.Cut(rest, []byte(`"`))
	if !found {
		return false
	}
	ended, err := time.Parse(time.RFC3339Nano, string(text))
	return err == nil && ended.Before(since)
}
