// SPDX-License-Identifier: Apache-2.0

package dtp

import (
	"context"
	"errors"
	"testing"
)

func TestNCCLIDsSayWhatIsWrong(t *testing.T) {
	c, err := Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	g, err := Join(context.Background(), c, GroupOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if _, err := NCCLUniqueIDs(context.Background(), g, -1); !errors.Is(err, ErrInvalid) {
		t.Fatalf("-1 ranks per id: %v", err)
	}
	comm, err := NCCLInit(context.Background(), g, &NCCLOptions{RanksPerID: -1})
	if !errors.Is(err, ErrInvalid) && !errors.Is(err, ErrUnsupported) {
		t.Fatalf("-1 ranks per id: %v, %v", comm, err)
	}
	ids, err := NCCLUniqueIDs(context.Background(), g, 0)
	if errors.Is(err, ErrUnsupported) {
		t.Skip("NCCL is not installed")
	}
	if err != nil || len(ids) != 1 {
		t.Fatalf("%d ids: %v", len(ids), err)
	}
}
