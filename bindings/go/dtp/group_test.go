// SPDX-License-Identifier: Apache-2.0

package dtp

import (
	"context"
	"errors"
	"testing"
)

func TestGroupTopo(t *testing.T) {
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
	if n := g.Waiting(); n != 0 {
		t.Errorf("%d wait for a group of one", n)
	}
	topo, id, err := g.Topo(context.Background(), 0)
	if err != nil || id == 0 {
		t.Fatalf("id %d: %v", id, err)
	}
	if _, err := topo.Text(); err != nil {
		t.Error(err)
	}
	if err := topo.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := g.Topo(context.Background(), 1); !errors.Is(err, ErrRange) {
		t.Errorf("rank 1 of 1: %v", err)
	}
}
