package lab

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
)

// holdVariable makes this test binary start a lab, print the process ids and wait to be killed.
const holdVariable = "PLIMSOLL_LAB_TEST_HOLD"

func TestMain(m *testing.M) {
	if os.Getenv(holdVariable) != "" {
		hold()
	}
	if os.Getenv(standInVariable) != "" {
		standIn()
	}
	ctx := context.Background()
	// A build that takes long says so on standard error, where go test passes it on.
	if err := Build(ctx, "", os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if shared.lab != nil {
		if err := shared.lab.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func hold() {
	l, err := Start(context.Background(), Options{StateDir: os.Getenv(holdVariable), Out: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	if err := json.NewEncoder(out).Encode(l.PIDs()); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	out.Flush()
	select {}
}
