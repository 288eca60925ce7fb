package input

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	configv1beta2 "sigs.k8s.io/kueue/apis/config/v1beta2"
)

// File is one file of manifests, YAML or JSON.
type File struct {
	// Name is what faults and Object.Source call it.
	Name string
	Data []byte
}

// Options say how to read.
type Options struct {
	// Strict refuses what is a warning otherwise.
	Strict bool
	// Set are fields to set before anything is checked, in order, each like
	// "clusterqueue/team-b.spec.fairSharing.weight=2" or "job/team-a/train.spec.parallelism=4".
	Set []string
}

// Object is one version of one object, from the time on at which it is applied.
type Object struct {
	// Object is typed, defaulted and validated, with apiVersion and kind set. The simulate annotations stay on it.
	Object client.Object
	// Source is where it was read, "file.yaml:12"; empty for a Namespace that nobody lists.
	Source string
	// At is when it is applied, since the start.
	At time.Duration
	// DeleteAt is when it is deleted, since the start and after At; nil for never, or for when a later version says.
	DeleteAt *time.Duration
}

// Input is all that was read.
type Input struct {
	// Objects are sorted by At, then kind (what others refer to comes first), Jobs and Workloads by creationTimestamp,
	// then namespace and name.
	Objects []Object
	// Kueue is its configuration with defaults; nil where the input has none.
	Kueue *configv1beta2.Configuration
	// Warnings are sentences for the user, sorted, each with its place.
	Warnings []string
	// Start is what time 0 is: the latest time in a dump, a fixed date otherwise. UTC, whole seconds.
	Start time.Time
}

// What is read is bounded.
const (
	maxBytes    = 64 << 20
	maxObjects  = 200_000
	maxDepth    = 100
	maxAliased  = 100_000 // values that a document repeats through YAML aliases
	shownFaults = 50
	keptFaults  = 10_000
	shownValue  = 128
)

// Read reads, sets, defaults and checks. The error is an *Error with all that is wrong. It is safe for concurrent use.
func Read(files []File, o Options) (*Input, error) {
	r := &reader{strict: o.Strict}
	r.parse(files)
	sets := r.parseSets(o.Set)
	r.applySets(sets)
	for _, e := range r.entries {
		r.build(e)
	}
	r.entries = built(r.entries)
	if !r.failed() {
		r.arrange()
		r.refer()
		r.circles()
	}
	if err := r.err(); err != nil {
		return nil, err
	}
	return r.input(), nil
}

// reader is one reading. It collects faults instead of stopping at the first.
type reader struct {
	strict    bool
	entries   []*entry
	objects   int
	kueue     *configv1beta2.Configuration
	kueueSeen string
	faults    []fault
	dropped   int
	warnings  []fault
}

// build takes an entry from text to a typed object that a server would have stored, or reports why not.
func (r *reader) build(e *entry) {
	before := len(r.faults) + r.dropped
	e.latest = latestOf(latestIn(e.fields["metadata"]), latestIn(e.fields["status"]))
	if metadata, ok := e.fields["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
	}
	r.checkMetadata(e)
	r.checkFields(e)
	if len(r.faults)+r.dropped > before {
		return
	}
	if !r.convert(e) {
		return
	}
	r.readAnnotations(e)
	r.checkBuiltin(e)
	if len(r.faults)+r.dropped > before {
		return
	}
	e.built = true
}

func built(entries []*entry) []*entry {
	var kept []*entry
	for _, e := range entries {
		if e.built {
			kept = append(kept, e)
		}
	}
	return kept
}

func latestOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
