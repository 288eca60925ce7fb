package report

import "testing"

func TestJSONHoldsNothingThatATerminalActsOn(t *testing.T) {
	got, err := JSON(map[string]string{"name": "<a>\x1b\u009b\u202e\x7fé"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "{\n  \"name\": \"<a>\\u001b\\u009b\\u202e\\u007fé\"\n}\n"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := JSON(func() {}); err == nil {
		t.Error("a function was written as JSON")
	}
}
