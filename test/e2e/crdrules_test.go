package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/plimsoll-dev/plimsoll/api/v1alpha1"
)

// smallPolicy is as short as a policy of three flavors can be; wholePolicy and wholePlacement set every field that there is.
const (
	smallPolicy = `
quotaResource: gpus
flavors:
- {name: h100, selectors: [{cel: {expression: 'device.driver == "a"'}}]}
- {name: a100, selectors: [{cel: {expression: 'device.driver == "b"'}}]}
- {name: other, selectors: [{cel: {expression: 'device.driver == "c"'}}]}
`
	smallPolicyDefaulted = `
mode: Enforce
quotaResource: gpus
flavors:
- {name: h100, chargePerDevice: 1, onDemand: false, selectors: [{cel: {expression: 'device.driver == "a"'}}]}
- {name: a100, chargePerDevice: 1, onDemand: false, selectors: [{cel: {expression: 'device.driver == "b"'}}]}
- {name: other, chargePerDevice: 1, onDemand: false, selectors: [{cel: {expression: 'device.driver == "c"'}}]}
fallback: {afterSeconds: 60}
ordering: Pack
freshness: {windowSeconds: 180, lossGraceSeconds: 60, inventoryMemorySeconds: 3600}
retry: {initialSeconds: 5, maxSeconds: 300, limit: 10}
release: {waitSeconds: 600, bindSeconds: 900}
headOfLine: {holdAfterSeconds: 900}
onInfeasible: Wait
`
	wholePolicy = `
spec:
  mode: Enforce
  quotaResource: example.com/gpus
  flavors:
  - {name: h100, chargePerDevice: 7, onDemand: true, selectors: [{cel: {expression: 'device.driver == "a"'}}]}
  constraints: [{cel: {expression: 'device.driver == "a"'}}]
  drivers:
  - name: gpu.nvidia.com
    podNamespace: gpu-driver
    podSelector: {matchLabels: {app: driver}, matchExpressions: [{key: app, operator: In, values: [driver]}]}
  fallback: {afterSeconds: 60}
  ordering: Pack
  freshness: {windowSeconds: 180, lossGraceSeconds: 60, inventoryMemorySeconds: 3600}
  retry: {initialSeconds: 5, maxSeconds: 300, limit: 10}
  release: {waitSeconds: 600, bindSeconds: 900}
  headOfLine: {holdAfterSeconds: 900}
  onInfeasible: Wait
  canary: {policyName: gpu-next, percent: 10}
status:
  observedGeneration: 1
  revision: abc
  conditions: [{type: Ready, status: "True", observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z", reason: Ready, message: ready}]
`
	wholePlacement = `
spec:
  key: {workloadUID: abc, reservedAt: "2026-01-01T00:00:00Z", admission: abc}
  epoch: 1
  policy: gpu
  revision: abc
  podSets:
  - name: main
    flavor: h100
    charge: 1
    nodes: [{name: node-0, slots: 1, requests: [{claim: gpu, request: gpu, devices: [a/b/c]}]}]
status:
  conditions: [{type: Reserved, status: "True", observedGeneration: 1, lastTransitionTime: "2026-01-01T00:00:00Z", reason: Ready, message: ready}]
  waits: [{flavor: h100, since: "2026-01-01T00:00:00Z"}]
  closed: [{flavor: h100, until: "2026-01-01T00:00:00Z"}]
  victims: [abc]
  retry: {count: 1, notBefore: "2026-01-01T00:00:00Z", reason: Held, message: held}
  record:
    time: "2026-01-01T00:00:00Z"
    verdict: Wait
    policy: gpu
    revision: abc
    ledgerVersion: 1
    reason: Held
    message: held
    standings: [{podSet: main, flavor: h100, alternative: gpu/h100, standing: Busy, quota: Fit, nodes: 1, devices: 1, reasons: [{reason: Held, nodes: 1, message: held}]}]
  history: [{time: "2026-01-01T00:00:00Z", verdict: Wait, reason: Held, message: held}]
`
)

func object(text string) map[string]any {
	GinkgoHelper()
	var o map[string]any
	Expect(yaml.Unmarshal([]byte(text), &o)).To(Succeed())
	return o
}

// breach is a sample with one rule of its schema broken, and what the API server has to say of it.
type breach struct {
	rule string // the field and the keyword
	says string
	with map[string]any
}

// breaker walks a schema and a sample that sets every field, and breaks each rule in a copy of the sample.
type breaker struct {
	sample   map[string]any
	breaches []breach
	// rules holds the messages of the CEL rules that were met.
	rules []string
	// strange are fields that the sample lacks, and keywords of the schema that no breach is known for.
	strange []string
}

// describing are keywords that refuse nothing, or only what a typed client cannot send.
var describing = []string{
	"type", "description", "default", "properties", "items", "additionalProperties", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
	"x-kubernetes-int-or-string", "nullable",
}

func (b *breaker) walk(s map[string]any, value any, path ...any) {
	at := fieldPath(path)
	for _, keyword := range slices.Sorted(maps.Keys(s)) {
		if slices.Contains(describing, keyword) {
			continue
		}
		limit, whole := s[keyword].(int64)
		if _, fraction := s[keyword].(float64); fraction && !whole {
			b.strange = append(b.strange, at+": "+keyword+" is not a whole number")
		}
		switch keyword {
		case "enum":
			b.breakWith(at, keyword, at+": Unsupported value", path, "Nonsense")
		case "minimum":
			b.breakWith(at, keyword, at+": Invalid value", path, limit-1)
		case "maximum":
			b.breakWith(at, keyword, at+": Invalid value", path, limit+1)
		case "minLength":
			b.breakWith(at, keyword, at+": Invalid value", path, "")
		case "maxLength":
			b.breakWith(at, keyword, at+": Too long", path, strings.Repeat("a", int(limit)+1))
		case "pattern":
			b.breakWith(at, keyword, at+": Invalid value", path, "? !")
		case "format":
			if s[keyword] == "date-time" {
				b.breakWith(at, keyword, at+": Invalid value", path, "yesterday")
			}
		case "minItems":
			b.breakWith(at, keyword, at+": Invalid value", path, []any{})
		case "maxItems":
			b.breakWith(at, keyword, at+": Too many", path, slices.Repeat(value.([]any), int(limit)+1))
		case "x-kubernetes-list-type":
			if s[keyword] == "map" {
				b.breakWith(at, keyword, at+"[1]: Duplicate value", path, slices.Repeat(value.([]any), 2))
			}
		case "required":
			for _, name := range s[keyword].([]any) {
				rest := maps.Clone(value.(map[string]any))
				delete(rest, name.(string))
				b.breakWith(at, "required "+name.(string), at+"."+name.(string)+": Required value", path, rest)
			}
		case "x-kubernetes-validations":
			for _, r := range s[keyword].([]any) {
				b.rules = append(b.rules, r.(map[string]any)["message"].(string))
			}
		default:
			b.strange = append(b.strange, at+": keyword "+keyword)
		}
	}
	if properties, ok := s["properties"].(map[string]any); ok {
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			child, set := value.(map[string]any)[name]
			if !set {
				b.strange = append(b.strange, at+"."+name+": not in the sample")
				continue
			}
			b.walk(properties[name].(map[string]any), child, append(slices.Clone(path), name)...)
		}
	}
	if items, ok := s["items"].(map[string]any); ok {
		b.walk(items, value.([]any)[0], append(slices.Clone(path), 0)...)
	}
}

func fieldPath(path []any) string {
	var out strings.Builder
	for _, p := range path {
		switch p := p.(type) {
		case int:
			fmt.Fprintf(&out, "[%d]", p)
		case string:
			if out.Len() > 0 {
				out.WriteByte('.')
			}
			out.WriteString(p)
		}
	}
	return out.String()
}

func (b *breaker) breakWith(at, keyword, says string, path []any, value any) {
	with := runtime.DeepCopyJSON(b.sample)
	var container any = with
	for i, p := range path {
		last := i == len(path)-1
		switch p := p.(type) {
		case string:
			m := container.(map[string]any)
			if last {
				m[p] = runtime.DeepCopyJSONValue(value)
			}
			container = m[p]
		case int:
			l := container.([]any)
			if last {
				l[p] = runtime.DeepCopyJSONValue(value)
			}
			container = l[p]
		}
	}
	b.breaches = append(b.breaches, breach{at + " " + keyword, says, with})
}

// schemaOf returns the schema of spec or status of a kind of ours, as the API server has it.
func (c *cluster) schemaOf(ctx context.Context, crd, part string) map[string]any {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
	Expect(c.Get(ctx, client.ObjectKey{Name: crd}, u)).To(Succeed())
	versions, _, err := unstructured.NestedSlice(u.Object, "spec", "versions")
	Expect(err).NotTo(HaveOccurred())
	Expect(versions).To(HaveLen(1))
	s, found, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", part)
	Expect(err).NotTo(HaveOccurred())
	Expect(found).To(BeTrue())
	return s
}

var _ = Describe("Every rule of our kinds", Ordered, ContinueOnFailure, func() {
	var c *cluster
	var as client.Client // the manager's account, the only one that may write Placements
	waiting := job{namespace: teamA, name: "nine", gpus: 9}
	BeforeAll(func(ctx context.Context) {
		c = startCluster(ctx)
		as = clientFor(c.Manager())
		c.submit(ctx, waiting)
		Eventually(func() *v1alpha1.Placement { return c.placement(ctx, waiting) }).ShouldNot(BeNil())
	})

	// the writers try an object with a given spec, or an existing one with a given status, and change nothing
	policy := func(ctx context.Context, o map[string]any) error {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": o["spec"]}}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DevicePolicy"))
		u.SetName("sample")
		return c.Create(ctx, u, client.DryRunAll)
	}
	policyStatus := func(ctx context.Context, o map[string]any) error {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DevicePolicy"))
		Expect(c.Get(ctx, client.ObjectKey{Name: "gpu"}, u)).To(Succeed())
		u.Object["status"] = o["status"]
		return c.Status().Update(ctx, u, client.DryRunAll)
	}
	placement := func(ctx context.Context, o map[string]any) error {
		have := c.placement(ctx, waiting)
		u := &unstructured.Unstructured{Object: map[string]any{"spec": o["spec"]}}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Placement"))
		u.SetName(have.Name)
		u.SetNamespace(teamB)
		u.SetOwnerReferences(have.OwnerReferences)
		return as.Create(ctx, u, client.DryRunAll)
	}
	placementStatus := func(ctx context.Context, o map[string]any) error {
		have := c.placement(ctx, waiting)
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Placement"))
		Expect(as.Get(ctx, client.ObjectKeyFromObject(have), u)).To(Succeed())
		u.Object["status"] = o["status"]
		return as.Status().Update(ctx, u, client.DryRunAll)
	}

	// cel holds, by the rule's message, what breaks it; where the rule is about a change, the spec tells what is tried.
	cel := map[string]func(o map[string]any){
		"quotaResource must be a name of its own, such as gpus: cpu, memory, pods, ephemeral-storage and hugepages-* mean something else": func(o map[string]any) {
			Expect(unstructured.SetNestedField(o, "hugepages-2Mi", "spec", "quotaResource")).To(Succeed())
			unstructured.RemoveNestedField(o["spec"].(map[string]any)["flavors"].([]any)[0].(map[string]any), "onDemand")
		},
		"quotaResource must carry a domain (example.com/gpus) where a flavor is onDemand, because node groups list it as capacity": func(o map[string]any) {
			Expect(unstructured.SetNestedField(o, "gpus", "spec", "quotaResource")).To(Succeed())
		},
		"inventoryMemorySeconds must be at least lossGraceSeconds: what is expected back must be remembered": func(o map[string]any) {
			Expect(unstructured.SetNestedField(o, int64(59), "spec", "freshness", "inventoryMemorySeconds")).To(Succeed())
		},
		"maxSeconds must be at least initialSeconds": func(o map[string]any) {
			unstructured.RemoveNestedField(o, "spec", "retry", "initialSeconds") // the default is 5
			Expect(unstructured.SetNestedField(o, int64(4), "spec", "retry", "maxSeconds")).To(Succeed())
		},
		"a newer leader wrote this Placement: epoch may not go down": nil, // see the specs on rights
	}

	DescribeTable("refuses what breaks it, and names the field",
		func(ctx context.Context, crd, part, sample string, write func(context.Context, map[string]any) error, atLeast int) {
			b := &breaker{sample: object(sample)}
			Expect(write(ctx, b.sample)).To(Succeed(), "the sample is valid")
			s := c.schemaOf(ctx, crd, part)
			b.walk(s, b.sample[part], part)
			Expect(b.strange).To(BeEmpty())
			Expect(len(b.breaches)).To(BeNumerically(">=", atLeast))
			for _, x := range b.breaches {
				err := write(ctx, x.with)
				Expect(err).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(x.says))), x.rule)
			}
			for _, message := range b.rules {
				Expect(cel).To(HaveKey(message), "nothing is known that breaks this rule")
				if broken := cel[message]; broken != nil {
					o := object(sample)
					broken(o)
					Expect(write(ctx, o)).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(message))))
				}
			}
			AddReportEntry(crd+" "+part, strconv.Itoa(len(b.breaches))+" bounds, "+strconv.Itoa(len(b.rules))+" CEL rules")
		},
		Entry("of a DevicePolicy's spec", "devicepolicies.plimsoll.dev", "spec", wholePolicy, policy, 50),
		Entry("of a DevicePolicy's status", "devicepolicies.plimsoll.dev", "status", wholePolicy, policyStatus, 10),
		Entry("of a Placement's spec", "placements.plimsoll.dev", "spec", wholePlacement, placement, 30),
		Entry("of a Placement's status", "placements.plimsoll.dev", "status", wholePlacement, placementStatus, 30),
	)

	It("gives the smallest policy the defaults that the design names", func(ctx context.Context) {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": object(smallPolicy)}}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DevicePolicy"))
		u.SetName("small")
		Expect(c.Create(ctx, u, client.DryRunAll)).To(Succeed())
		got, err := yaml.Marshal(u.Object["spec"])
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(MatchYAML(smallPolicyDefaulted))
	})

	DescribeTable("that the webhook knows is said in a sentence",
		func(ctx context.Context, says string, change func(o map[string]any)) {
			o := object(wholePolicy)
			change(o)
			Expect(policy(ctx, o)).To(And(Satisfy(apierrors.IsInvalid), MatchError(ContainSubstring(says))))
		},
		Entry("two flavors of the same selectors", "spec.flavors[1].selectors: Invalid value: \"twin\": flavor h100 has the same selectors", func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			twin := runtime.DeepCopyJSON(spec["flavors"].([]any)[0].(map[string]any))
			twin["name"] = "twin"
			spec["flavors"] = append(spec["flavors"].([]any), twin)
		}),
		Entry("the same selector twice", "spec.constraints[1].cel.expression: Duplicate value", func(o map[string]any) {
			spec := o["spec"].(map[string]any)
			spec["constraints"] = slices.Repeat(spec["constraints"].([]any), 2)
		}),
		Entry("a policy that is its own canary", "a policy cannot be its own canary: name the policy that is to be tried out", func(o map[string]any) {
			Expect(unstructured.SetNestedField(o, "sample", "spec", "canary", "policyName")).To(Succeed())
		}),
		Entry("a driver's name that no slice can have", "spec.drivers[0].name: Invalid value", func(o map[string]any) {
			o["spec"].(map[string]any)["drivers"].([]any)[0].(map[string]any)["name"] = "Not A Driver"
		}),
		Entry("a selector of pods that does not parse", "spec.drivers[0].podSelector.matchExpressions[0].operator: Invalid value", func(o map[string]any) {
			driver := o["spec"].(map[string]any)["drivers"].([]any)[0].(map[string]any)
			driver["podSelector"] = map[string]any{"matchExpressions": []any{map[string]any{"key": "app", "operator": "Near"}}}
		}),
	)

	It("refuses an unknown field where the client asks for that, as kubectl does", func(ctx context.Context) {
		o := object(wholePolicy)
		o["spec"].(map[string]any)["flavours"] = []any{}
		strict := client.WithFieldValidation(c.Client, "Strict")
		u := &unstructured.Unstructured{Object: map[string]any{"spec": o["spec"]}}
		u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("DevicePolicy"))
		u.SetName("sample")
		Expect(strict.Create(ctx, u, client.DryRunAll)).To(MatchError(ContainSubstring(`unknown field "spec.flavours"`)))
	})
})
