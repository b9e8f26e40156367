// SPDX-License-Identifier: Apache-2.0

package dtp_test

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"libdtp/dtp"
	"libdtp/internal/made"
)

func saved(t *testing.T) (*dtp.Ckpt, string) {
	t.Helper()
	c, dir := open(t), t.TempDir()
	if err := made.Save(dir, 5); err != nil {
		t.Fatal(err)
	}
	step, err := dtp.Latest(c, dir)
	if err != nil || step != 5 {
		t.Fatal(step, err)
	}
	k, err := dtp.OpenCkpt(c, dir, step)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for i := 0; i < 2; i++ {
			if err := k.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return k, dir
}

func TestCheckpointTellsWhatIsInIt(t *testing.T) {
	k, _ := saved(t)
	info, err := k.Info()
	if err != nil || info.Step != 5 || info.WorldSize != 1 || info.Tensors != 2 || info.Bytes != 56 {
		t.Error(info, err)
	}
	if !strings.Contains(info.MetaJSON, "epoch") {
		t.Error(info.MetaJSON)
	}
	tensors, err := k.Tensors()
	want := []dtp.Tensor{
		{Name: "n", Dtype: "i64", Shape: []int64{}, ElemBytes: 8, ElemBits: 64},
		{Name: "w", Dtype: "f32", Shape: []int64{3, 4}, ElemBytes: 4, ElemBits: 32},
	}
	if err != nil || !reflect.DeepEqual(tensors, want) {
		t.Error(tensors, err)
	}
}

func TestFilesOfOthersAreOpened(t *testing.T) {
	header := `{"x":{"dtype":"F4","shape":[2,4],"data_offsets":[0,4]}}     `
	file := filepath.Join(t.TempDir(), "model.safetensors")
	data := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+"\x01\x23\x45\x67"...)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := dtp.OpenCkptPath(open(t), file)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	info, err := k.Info()
	if err != nil || info.Format != "safetensors" || info.HasChecksums {
		t.Error(info, err)
	}
	row, err := k.Read(background, "x", &dtp.Box{Offset: []int64{1, 0}, Extent: []int64{1, 4}})
	if err != nil || string(row) != "\x45\x67" {
		t.Error(row, err)
	}
}

func TestPinnedStepsAreComplete(t *testing.T) {
	_, dir := saved(t)
	c := open(t)
	for _, pinned := range []bool{true, false} {
		if err := dtp.PinCkpt(c, dir, 5, pinned); err != nil {
			t.Error(err)
		}
	}
	if err := dtp.PinCkpt(c, dir, 6, true); !errors.Is(err, dtp.ErrNotFound) {
		t.Error(err)
	}
}

func TestTensorsAndBoxesAreRead(t *testing.T) {
	k, _ := saved(t)
	w, err := dtp.ReadAs[float32](background, k, "w", nil)
	if err != nil || len(w) != 12 || w[0] != 0 || w[11] != 11 {
		t.Error(w, err)
	}
	box, err := dtp.ReadAs[float32](background, k, "w", &dtp.Box{Offset: []int64{1, 2}, Extent: []int64{2, 2}})
	if err != nil || !reflect.DeepEqual(box, []float32{6, 7, 10, 11}) {
		t.Error(box, err)
	}
	n, err := k.Read(background, "n", nil)
	if err != nil || len(n) != 8 || binary.LittleEndian.Uint64(n) != 7 {
		t.Error(n, err)
	}
	none, err := k.Read(background, "w", &dtp.Box{Offset: []int64{0, 0}, Extent: []int64{0, 4}})
	if err != nil || len(none) != 0 {
		t.Error(none, err)
	}
}

func TestWrongReadsAreRefused(t *testing.T) {
	k, _ := saved(t)
	outside := &dtp.Box{Offset: []int64{2, 0}, Extent: []int64{2, 4}}
	if _, err := k.Read(background, "w", outside); !errors.Is(err, dtp.ErrRange) {
		t.Error(err)
	}
	flat := &dtp.Box{Offset: []int64{0}, Extent: []int64{1}}
	if _, err := k.Read(background, "w", flat); !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
	if _, err := k.Read(background, "v", nil); !errors.Is(err, dtp.ErrNotFound) {
		t.Error(err)
	}
	if _, err := dtp.ReadAs[float64](background, k, "w", nil); !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(background)
	cancel()
	if _, err := k.Read(ctx, "w", nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	k.Close()
	if _, err := k.Tensors(); !errors.Is(err, dtp.ErrInvalid) {
		t.Error(err)
	}
}

func TestDamageIsCorrupt(t *testing.T) {
	k, dir := saved(t)
	shards, err := filepath.Glob(filepath.Join(dir, "*", "*.safetensors"))
	if err != nil || len(shards) != 1 {
		t.Fatal(shards, err)
	}
	data, err := os.ReadFile(shards[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := len(data) - 48; i < len(data); i++ {
		data[i] ^= 1
	}
	if err := os.WriteFile(shards[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = k.Read(background, "w", nil)
	if !errors.Is(err, dtp.ErrCorrupt) || !strings.Contains(err.Error(), filepath.Base(shards[0])) {
		t.Error(err)
	}
}
