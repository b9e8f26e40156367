// SPDX-License-Identifier: Apache-2.0

package dtp_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"libdtp/dtp"
)

var background = context.Background()

func open(t *testing.T) *dtp.Context {
	t.Helper()
	c, err := dtp.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestVersionIsTheLibrarys(t *testing.T) {
	if v := dtp.Version(); len(v) < 5 {
		t.Errorf("version %q", v)
	}
}

func TestStatusHasText(t *testing.T) {
	if text := dtp.ErrTimeout.Error(); text != "the deadline passed" {
		t.Error(text)
	}
}

func TestErrorsCompareWithTheirStatus(t *testing.T) {
	c := open(t)
	_, err := dtp.LoadTopo(c, &dtp.TopoOptions{HwlocXML: "/nonexistent/machine.xml"})
	if !errors.Is(err, dtp.ErrNotFound) || errors.Is(err, dtp.ErrTimeout) {
		t.Fatalf("%v", err)
	}
	if !strings.Contains(err.Error(), "/nonexistent/machine.xml") {
		t.Errorf("the file is not named: %v", err)
	}
	var detail *dtp.Error
	if !errors.As(err, &detail) || detail.Rank != -1 {
		t.Errorf("%#v", detail)
	}
	if detail.Errno != 0 && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("errno %d is not unwrapped", detail.Errno)
	}
}

func TestIdleContextDispatchesNothing(t *testing.T) {
	c := open(t)
	if ran, err := c.Dispatch(0); ran || err != nil {
		t.Error(ran, err)
	}
	if c.Fd() < 0 {
		t.Error("no descriptor")
	}
}

func TestCloseTwiceIsFine(t *testing.T) {
	c, err := dtp.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 2; i++ {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Dispatch(0); !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
}

func TestTopoDescribesThisMachine(t *testing.T) {
	topo, err := dtp.LoadTopo(open(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer topo.Close()
	objects, err := topo.Objects()
	if err != nil || len(objects) < 2 {
		t.Fatal(err, len(objects))
	}
	n := map[dtp.ObjectType]int{}
	for i, o := range objects {
		n[o.Type]++
		if o.Index != i || o.Parent >= i {
			t.Errorf("object %d: index %d, parent %d", i, o.Index, o.Parent)
		}
	}
	if n[dtp.Machine] != 1 || n[dtp.PU] < 1 {
		t.Error(n)
	}
	cpus, err := topo.CPUs()
	if err != nil || cpus.Machine == "" {
		t.Error(err, cpus)
	}
	for _, render := range []func() (string, error){topo.Text, topo.JSON, topo.Matrix} {
		if text, err := render(); err != nil || text == "" {
			t.Error(err)
		}
	}
	if err := topo.Close(); err != nil {
		t.Error(err)
	}
	if _, err := topo.Text(); !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
}

func TestGroupOfOneNeedsNoLauncher(t *testing.T) {
	c := open(t)
	g, err := dtp.JoinFromEnv(background, c)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if g.Rank() != 0 || g.Size() != 1 {
		t.Error(g.Rank(), g.Size())
	}
	useGroup(t, g)
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if err := g.Barrier(background); !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
	if g.Rank() != -1 {
		t.Error(g.Rank())
	}
}

// useGroup makes every call that all ranks make.
func useGroup(t *testing.T, g *dtp.Group) {
	t.Helper()
	if err := g.Barrier(background); err != nil {
		t.Fatal(err)
	}
	mine := []byte(strings.Repeat("x", g.Rank()))
	parts, err := g.Allgather(background, mine)
	if err != nil || len(parts) != g.Size() {
		t.Fatal(err, parts)
	}
	for rank, part := range parts {
		if len(part) != rank {
			t.Errorf("rank %d gave %q", rank, part)
		}
	}
	size := float64(g.Size())
	x, y := []float32{1, float32(g.Rank()), 0.5}, []float64{math.Pi}
	if err := dtp.Allreduce(background, g, x, dtp.Sum); err != nil {
		t.Fatal(err)
	}
	if err := dtp.Allreduce(background, g, y, dtp.Avg); err != nil {
		t.Fatal(err)
	}
	if float64(x[0]) != size || float64(x[1]) != size*(size-1)/2 || float64(x[2]) != size/2 {
		t.Error(x)
	}
	if math.Abs(y[0]-math.Pi) > 1e-15 {
		t.Error(y)
	}
	z := []int32{int32(g.Rank()), 7}
	if err := dtp.Broadcast(background, g, z, g.Size()-1); err != nil || int(z[0]) != g.Size()-1 {
		t.Error(err, z)
	}
	if err := dtp.Allreduce(background, g, []uint8{}, dtp.Max); err != nil {
		t.Error("nothing to reduce:", err)
	}
	if failed := g.Failed(); len(failed) != 0 {
		t.Error(failed)
	}
}

// ranks runs this test binary n times as the ranks of a group, each running the test `name`.
func ranks(t *testing.T, n int, name string) []*exec.Cmd {
	t.Helper()
	job := "go" + strings.ReplaceAll(filepath.Base(t.TempDir()), "/", "") + time.Now().Format("150405.000000")
	commands := make([]*exec.Cmd, n)
	for rank := range commands {
		cmd := exec.Command(os.Args[0], "-test.run", "^"+name+"$", "-test.v")
		id, size := string(rune('0'+rank)), string(rune('0'+n))
		cmd.Env = append(os.Environ(), "DTP_TEST_RANK=1", "DTP_JOB="+job, "DTP_RANK="+id,
			"DTP_WORLD_SIZE="+size, "DTP_LOCAL_RANK="+id, "DTP_LOCAL_SIZE="+size, "DTP_INSECURE=1",
			"DTP_TIMEOUT_MS=20000")
		commands[rank] = cmd
	}
	return commands
}

func TestRanksAgree(t *testing.T) {
	if os.Getenv("DTP_TEST_RANK") == "" {
		commands := ranks(t, 3, "TestRanksAgree")
		outputs := make(chan []byte, len(commands))
		failures := make(chan error, len(commands))
		for _, cmd := range commands {
			go func(cmd *exec.Cmd) {
				output, err := cmd.CombinedOutput()
				outputs <- output
				failures <- err
			}(cmd)
		}
		for range commands {
			if output, err := <-outputs, <-failures; err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		}
		return
	}
	g, err := dtp.JoinFromEnv(background, open(t))
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	useGroup(t, g)
	next, err := g.Reform(background, 10*time.Second, 3)
	if err != nil || next.Generation() != 2 {
		t.Fatal(err, next.Generation())
	}
	defer next.Close()
	useGroup(t, next)
	if err := g.Barrier(background); !errors.Is(err, dtp.ErrPeer) {
		t.Error(err)
	}
}

func TestContextEndsAWait(t *testing.T) {
	c := open(t)
	ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := dtp.Join(ctx, c, dtp.GroupOptions{
		WorldSize: 2, Job: "go-alone-" + began.Format("150405.000000"), Insecure: true,
		Timeout: time.Minute,
	})
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, dtp.ErrInterrupted) {
		t.Error(err)
	}
	if d := time.Since(began); d > 5*time.Second {
		t.Error("it took", d)
	}
	// The context is as good as before.
	if _, err := c.Dispatch(0); err != nil {
		t.Error(err)
	}
}

func TestContextThatHasEndedStartsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err := dtp.JoinFromEnv(ctx, open(t))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, dtp.ErrCanceled) {
		t.Error(err)
	}
}

func TestSecretOfTheWrongLengthIsRefused(t *testing.T) {
	_, err := dtp.Join(background, open(t), dtp.GroupOptions{WorldSize: 2, Secret: []byte("short")})
	if !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
}

func TestNoCheckpointIsNotFound(t *testing.T) {
	if _, err := dtp.Latest(open(t), t.TempDir()); !errors.Is(err, dtp.ErrNotFound) {
		t.Error(err)
	}
	if errors.Is(dtp.ErrNotFound, syscall.ENOENT) {
		t.Error("a status is no errno")
	}
}

func TestExampleRuns(t *testing.T) {
	output, err := exec.Command("go", "run", "../../../docs/examples/topo.go").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "core") {
		t.Errorf("%v\n%s", err, output)
	}
}
