package input

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The annotations that say when, and for how long.
const (
	annotationDomain   = "simulate.plimsoll.dev/"
	atAnnotation       = annotationDomain + "at"
	deleteAtAnnotation = annotationDomain + "delete-at"
	durationAnnotation = annotationDomain + "duration"
	graceAnnotation    = annotationDomain + "grace"
)

// maxTime is the longest that an annotation can say: ten years.
const maxTime = 10 * 365 * 24 * time.Hour

// checkMetadata holds the name and the namespace against what a server takes.
func (r *reader) checkMetadata(e *entry) {
	metadata, ok := e.fields["metadata"].(map[string]any)
	if !ok {
		r.fault(e.wrong("metadata", "must be given, with a name"))
		return
	}
	if e.name == "" {
		if _, text := metadata["name"].(string); text || metadata["name"] == nil {
			r.fault(e.wrong("metadata.name", "must be given; generateName is not read"))
		}
		return
	}
	for _, problem := range nameProblems(e) {
		r.fault(e.wrong("metadata.name", problem+", not "+short(e.name)))
	}
	if !e.is.namespaced {
		if e.namespace != "" {
			r.fault(e.wrong("metadata.namespace", "must not be given: the kind has no namespaces"))
		}
		return
	}
	for _, problem := range apivalidation.ValidateNamespaceName(e.namespace, false) {
		r.fault(e.wrong("metadata.namespace", problem+", not "+short(e.namespace)))
	}
}

func nameProblems(e *entry) []string {
	if e.is.name == "Namespace" {
		return apivalidation.ValidateNamespaceName(e.name, false)
	}
	return apivalidation.NameIsDNSSubdomain(e.name, false)
}

// readAnnotations takes at and delete-at from the typed object, and holds labels and annotations against the rules.
func (r *reader) readAnnotations(e *entry) {
	path := field.NewPath("metadata")
	r.report(e, metav1validation.ValidateLabels(e.object.GetLabels(), path.Child("labels")))
	annotations := e.object.GetAnnotations()
	r.report(e, apivalidation.ValidateAnnotations(annotations, path.Child("annotations")))
	for _, name := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(name, annotationDomain) {
			continue
		}
		at, value := "metadata.annotations["+name+"]", annotations[name]
		switch {
		case name == atAnnotation:
			e.at, _ = r.duration(e, at, value, 0)
		case name == deleteAtAnnotation:
			if d, ok := r.duration(e, at, value, 0); ok {
				e.deleteAt = &d
			}
		case name == durationAnnotation && e.is.timed:
			r.duration(e, at, value, 1)
		case name == graceAnnotation && e.is.graceful:
			r.duration(e, at, value, 0)
		case name == durationAnnotation:
			r.fault(e.wrong(at, "is for Jobs and Workloads"))
		case name == graceAnnotation:
			r.fault(e.wrong(at, "is for Jobs and Pods"))
		default:
			r.fault(e.wrong(at, "unknown annotation: "+annotationDomain+" has at, delete-at, duration and grace"))
		}
	}
	if e.deleteAt != nil && *e.deleteAt <= e.at {
		r.fault(e.wrong("metadata.annotations["+deleteAtAnnotation+"]", fmt.Sprintf("must be later than at, which is %s", e.at)))
	}
}

func (r *reader) duration(e *entry, at, value string, least time.Duration) (time.Duration, bool) {
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		r.fault(e.wrong(at, "must be a duration such as 90s or 1h30m, not "+short(value)))
	case d < least && least > 0:
		r.fault(e.wrong(at, "must be more than 0, not "+short(value)))
	case d < 0:
		r.fault(e.wrong(at, "must be 0 or more, not "+short(value)))
	case d > maxTime:
		r.fault(e.wrong(at, "must be at most ten years, not "+short(value)))
	default:
		return d, true
	}
	return 0, false
}

// report turns what a validator of the API says into faults.
func (r *reader) report(e *entry, errs field.ErrorList) {
	for _, err := range errs {
		r.fault(e.wrong(err.Field, err.ErrorBody()))
	}
}
