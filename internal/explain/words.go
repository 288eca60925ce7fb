package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
	"github.com/plimsoll-dev/plimsoll/pkg/report"
)

// The lists on the screen stay this short; JSON has all.
const (
	maxNodes   = 8
	maxPods    = 6
	maxHistory = 5
	maxFixes   = 2
)

// Words tells a subject on one screen.
func Words(s *Subject) string {
	w := &words{Subject: s, entry: report.Workload(s.Input)}
	w.who()
	w.outcome()
	w.quota()
	w.got()
	w.flavors()
	w.conditions()
	w.pods()
	w.history()
	for _, n := range s.Notes {
		w.page.field("Note", "%s", n)
	}
	return w.page.String()
}

type words struct {
	*Subject
	entry report.Entry
	page  page
}

func (w *words) who() {
	p, e := &w.page, &w.entry
	title := fmt.Sprintf("%s %s/%s", e.Kind, e.Namespace, e.Name)
	if e.Kind != "Workload" {
		title += ", Workload " + w.Workload.Name
	}
	if w.Pod != "" {
		title = fmt.Sprintf("Pod %s of %s", w.Pod, title)
	}
	p.field(title, "")
	queue := "LocalQueue " + e.Queue
	switch {
	case e.Queue == "":
		queue = "none"
	case w.QueueMissing:
		queue += " (does not exist)"
	case e.ClusterQueue != "":
		queue += " of ClusterQueue " + e.ClusterQueue
	}
	if w.Workload.Spec.Priority != nil && *w.Workload.Spec.Priority != 0 {
		queue += fmt.Sprintf(", priority %d", *w.Workload.Spec.Priority)
	}
	p.field("Queue", "%s", queue)
	for i := range w.Workload.Spec.PodSets {
		ps := &w.Workload.Spec.PodSets[i]
		label := ""
		if i == 0 {
			label = "Asks for"
		}
		p.field(label, "%s", asked(ps, w.QuotaResource()))
	}
}

// asked says what a podset wants.
func asked(ps *kueue.PodSet, quota corev1.ResourceName) string {
	text := fmt.Sprintf("%s: %s", ps.Name, report.Plural(int(ps.Count), "pod"))
	q, charged := ps.Template.Spec.Overhead[quota]
	switch {
	case charged:
		text += fmt.Sprintf(", each charged %s %s", q.String(), quota)
	case len(ps.Template.Spec.ResourceClaims) > 0:
		text += fmt.Sprintf(", each with %s", report.Plural(len(ps.Template.Spec.ResourceClaims), "claim"))
	default:
		text += " without devices"
	}
	return text
}

func (w *words) outcome() {
	p, e := &w.page, &w.entry
	switch e.Outcome {
	case report.OutcomeFinished:
		p.field("Outcome", "Finished %s ago, %s after it was submitted: %s", w.ago(w.since(*e.FinishedAt)), *e.FinishedAt, e.Message)
	case report.OutcomeRunning:
		p.field("Outcome", "Admitted %s ago, %s after it was submitted", w.ago(w.since(*e.AdmittedAt)), *e.AdmittedAt)
	default:
		reason := ""
		if e.Reason != nil {
			reason = ": " + string(*e.Reason)
		}
		verb := "Waiting"
		if e.Outcome == report.OutcomeRejected {
			verb = "Rejected"
		}
		p.field("Outcome", "%s, submitted %s ago%s", verb, w.ago(w.Workload.CreationTimestamp.Time), reason)
		p.field("Why", "%s", e.Message)
		w.whatToDo()
	}
	switch w.Management() {
	case report.NotManaged:
		p.field("Managed", "no: ClusterQueue %s has no admission check of controller %s, so Kueue alone decides (kubectl get clusterqueue %s -o yaml shows spec.admissionChecksStrategy)", e.ClusterQueue, v1alpha1.ControllerName, e.ClusterQueue)
	case report.ManagementUnknown:
		p.field("Managed", "not known: nothing on the Workload is Plimsoll's, and whether its ClusterQueue has an admission check of controller %s could not be read", v1alpha1.ControllerName)
	case report.Managed:
		if w.Placement == nil && e.Reason != nil && *e.Reason == v1alpha1.ReasonQuotaExhausted {
			p.field("Decided", "nothing: it waits for no more than quota, and then there is no Placement")
		}
	}
}

// whatToDo says it for the reason why it waits, and for what stands against other flavors, which may be quicker.
func (w *words) whatToDo() {
	if w.entry.Reason == nil {
		return
	}
	told := []v1alpha1.Reason{*w.entry.Reason}
	w.page.field("What to do", "%s", report.Fix(told[0]))
	for _, s := range w.entry.Standings {
		if len(s.Reasons) == 0 || slices.Contains(told, s.Reasons[0].Reason) || len(told) > maxFixes {
			continue
		}
		if fix := report.Fix(s.Reasons[0].Reason); fix != "" {
			told = append(told, s.Reasons[0].Reason)
			w.page.field("", "For %s: %s", s.Flavor, fix)
		}
	}
}

// quota tells Kueue's half.
func (w *words) quota() {
	p := &w.page
	c := meta.FindStatusCondition(w.Workload.Status.Conditions, kueue.WorkloadQuotaReserved)
	label := "Quota"
	switch {
	case w.Reserved() && !w.is(kueue.WorkloadFinished):
		for _, line := range w.reservedQuota() {
			p.field(label, "%s, reserved %s ago", line, w.ago(c.LastTransitionTime.Time))
			label = ""
		}
	case w.is(kueue.WorkloadFinished):
	case c == nil:
		p.field(label, "not reserved; Kueue has not looked at it yet")
	default:
		p.field(label, `not reserved; Kueue says: "%s"`, c.Message)
	}
	if flavors, steered := w.AllowedFlavors(); steered && !w.Reserved() && w.entry.Outcome == report.OutcomeWaiting {
		if len(flavors) == 0 {
			p.field("", "Plimsoll lets Kueue try no flavor of it now")
		} else {
			p.field("", "Plimsoll lets Kueue try %s", strings.Join(flavors, ", "))
		}
	}
	if evicted := meta.FindStatusCondition(w.Workload.Status.Conditions, kueue.WorkloadEvicted); evicted != nil && evicted.Status == metav1.ConditionTrue {
		p.field("Evicted", `%s ago (%s); Kueue says: "%s"`, w.ago(evicted.LastTransitionTime.Time), evicted.Reason, evicted.Message)
	}
}

func (w *words) is(condition string) bool {
	return meta.IsStatusConditionTrue(w.Workload.Status.Conditions, condition)
}

func (w *words) reservedQuota() []string {
	var lines []string
	name := w.QuotaResource()
	for i := range w.Workload.Status.Admission.PodSetAssignments {
		a := &w.Workload.Status.Admission.PodSetAssignments[i]
		line := fmt.Sprintf("%s: %s", a.Name, report.AssignedFlavor(a, name))
		if q, ok := a.ResourceUsage[name]; ok {
			line += fmt.Sprintf(", %s %s in all", q.String(), name)
		}
		lines = append(lines, line)
	}
	return lines
}

// got tells flavor, nodes and devices.
func (w *words) got() {
	p, e := &w.page, &w.entry
	if len(e.Flavors) == 0 {
		return
	}
	label := "Got"
	for _, podSet := range slices.Sorted(maps.Keys(e.Flavors)) {
		var nodes []string
		pods, devices := map[string]int{}, map[string]int{}
		for _, pod := range e.Pods {
			if pod.PodSet != podSet {
				continue
			}
			if pods[pod.Node] == 0 {
				nodes = append(nodes, pod.Node)
			}
			pods[pod.Node]++
			devices[pod.Node] = len(pod.Devices)
		}
		p.field(label, "%s: flavor %s%s", podSet, e.Flavors[podSet], w.chargeOf(podSet))
		label = ""
		for i, n := range nodes {
			if i == maxNodes {
				p.item(2, "and %d more nodes", len(nodes)-maxNodes)
				break
			}
			text := fmt.Sprintf("%s: %s", n, report.Plural(pods[n], "pod"))
			if devices[n] > 0 {
				text += fmt.Sprintf(" of %s: %s", report.Plural(devices[n], "device"), deviceNames(e.Pods, podSet, n))
			}
			p.item(2, "%s", text)
		}
	}
}

func (w *words) chargeOf(podSet string) string {
	for i := range w.Workload.Status.Admission.PodSetAssignments {
		a := &w.Workload.Status.Admission.PodSetAssignments[i]
		if q, ok := a.ResourceUsage[w.QuotaResource()]; ok && string(a.Name) == podSet {
			return fmt.Sprintf(", charged %s %s", q.String(), w.QuotaResource())
		}
	}
	return ""
}

// deviceNames lists a node's devices, a group a pod, without driver and pool, which the node implies.
func deviceNames(pods []report.Pod, podSet, node string) string {
	var groups []string
	for _, pod := range pods {
		if pod.PodSet != podSet || pod.Node != node {
			continue
		}
		var names []string
		for _, id := range pod.Devices {
			names = append(names, id[strings.LastIndex(id, "/")+1:])
		}
		groups = append(groups, strings.Join(names, " "))
	}
	return strings.Join(groups, " | ")
}

// flavors tells the standings of the last decision.
func (w *words) flavors() {
	p := &w.page
	if w.Placement == nil || w.Placement.Status.Record == nil || w.entry.Outcome == report.OutcomeFinished {
		return
	}
	r := w.Placement.Status.Record
	p.field("Decided", "%s %s ago, by DevicePolicy %s on ledger version %d; flavors in the order tried:", r.Verdict, w.ago(r.Time.Time), r.Policy, r.LedgerVersion)
	for i := range r.Standings {
		s := &r.Standings[i]
		flavor := s.Flavor
		if flavor == "" {
			flavor = "any flavor"
		}
		looked := report.Plural(int(s.Nodes), "node")
		if s.Devices > 0 {
			looked += ", " + report.Plural(int(s.Devices), "device")
		}
		if s.Alternative != "" {
			flavor += " for " + s.Alternative
		}
		p.item(2, "%s: %s is %s (of %s)%s", s.PodSet, flavor, s.Standing, looked, quotaHalf(s.Quota))
		for _, why := range s.Reasons {
			on := ""
			if why.Nodes > 0 {
				on = " on " + report.Plural(int(why.Nodes), "node")
			}
			p.item(6, "%s%s: %s", why.Reason, on, why.Message)
		}
	}
	if w.entry.Outcome != report.OutcomeWaiting {
		return
	}
	for _, x := range w.Placement.Status.Waits {
		p.field("", "%s was first waited for %s ago", x.Flavor, w.ago(x.Since.Time))
	}
	for _, x := range w.Placement.Status.Closed {
		if left := x.Until.Sub(w.Now); left > 0 {
			p.field("", "%s is not tried for another %s: a reservation on it could not be kept", x.Flavor, left.Round(time.Second))
		}
	}
}

// quotaHalf says what Kueue would do if the flavor alone were open.
func quotaHalf(mode string) string {
	switch mode {
	case "Fit":
		return "; its quota is free"
	case "Borrow":
		return "; its quota can be borrowed"
	case "Preempt":
		return "; its quota would take a preemption"
	case "Wait":
		return "; its quota is in use"
	case "NoFit":
		return "; Kueue would not give it"
	}
	return ""
}

func (w *words) conditions() {
	if w.Placement == nil {
		return
	}
	label := "Promise"
	for _, kind := range []string{v1alpha1.PlacementReserved, v1alpha1.PlacementReleased, v1alpha1.PlacementBound, v1alpha1.PlacementDiverged} {
		c := meta.FindStatusCondition(w.Placement.Status.Conditions, kind)
		if c == nil {
			continue
		}
		text := c.Reason
		if c.Message != "" && c.Message != w.entry.Message {
			text += ": " + c.Message
		}
		w.page.field(label, "%-8s %-5s %s ago, %s", c.Type, c.Status, w.ago(c.LastTransitionTime.Time), text)
		label = ""
	}
}

func (w *words) history() {
	if w.Placement == nil {
		return
	}
	label := "Before"
	for i, h := range w.Placement.Status.History {
		if i == maxHistory {
			w.page.field("", "and %d more", len(w.Placement.Status.History)-maxHistory)
			break
		}
		text := string(h.Verdict)
		if h.Reason != "" {
			text += ", " + string(h.Reason)
		}
		w.page.field(label, "%s ago %s: %s", w.ago(h.Time.Time), text, h.Message)
		label = ""
	}
}

// since turns a clock of the entry back into a time.
func (w *words) since(c report.Clock) time.Time {
	return w.Workload.CreationTimestamp.Add(time.Duration(c) * time.Second)
}

func (w *words) ago(t time.Time) string { return duration.HumanDuration(max(0, w.Now.Sub(t))) }
