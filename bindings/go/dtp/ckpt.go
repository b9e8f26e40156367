// SPDX-License-Identifier: Apache-2.0

package dtp

/*
#include <stdlib.h>
#include <dtp/dtp.h>

static dtp_status dtp_go_ckpt_read(dtp_ckpt *ckpt, const char *name, dtp_dtype dtype, uint32_t n_dims,
                                   const int64_t *shape, const int64_t *offset,
                                   const int64_t *extent, void *data, dtp_error *err)
{
	const dtp_ckpt_tensor tensor = {
		.size = sizeof(tensor), .name = name, .dtype = dtype, .n_dims = n_dims, .shape = shape,
		.offset = offset, .extent = extent, .data = data,
	};
	return dtp_ckpt_read(ckpt, &tensor, 1, err);
}
*/
import "C"

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"
)

// Latest is the newest complete step under dir; ErrNotFound where there is none.
func Latest(c *Context, dir string) (uint64, error) {
	text := C.CString(dir)
	defer C.free(unsafe.Pointer(text))
	var step C.uint64_t
	err := c.call(context.Background(), func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_ckpt_latest(c.ptr, text, &step, detail)
	})
	return uint64(step), err
}

// Ckpt is a step opened for reading.
type Ckpt struct {
	c   *Context
	ptr *C.dtp_ckpt
}

// OpenCkpt opens a step for reading.
func OpenCkpt(c *Context, dir string, step uint64) (*Ckpt, error) {
	text := C.CString(dir)
	defer C.free(unsafe.Pointer(text))
	k := &Ckpt{c: c}
	err := c.call(context.Background(), func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_ckpt_open(c.ptr, text, C.uint64_t(step), &k.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// OpenCkptPath opens what lies at path: the folder of a step, a safetensors file, or what others wrote, such
// as a Hugging Face model; CkptInfo.Format says which.
func OpenCkptPath(c *Context, path string) (*Ckpt, error) {
	text := C.CString(path)
	defer C.free(unsafe.Pointer(text))
	k := &Ckpt{c: c}
	err := c.call(context.Background(), func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_ckpt_open_path(c.ptr, text, &k.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return k, nil
}

// PinCkpt pins a complete step, so that no save removes it, or takes the pin away.
func PinCkpt(c *Context, dir string, step uint64, pinned bool) error {
	text := C.CString(dir)
	defer C.free(unsafe.Pointer(text))
	pin := C.int(0)
	if pinned {
		pin = 1
	}
	return c.call(context.Background(), func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_ckpt_pin(c.ptr, text, C.uint64_t(step), pin, detail)
	})
}

// Close closes the checkpoint.
func (k *Ckpt) Close() error {
	if k.ptr == nil {
		return nil
	}
	return k.c.call(context.Background(), func(*C.dtp_error) C.dtp_status {
		C.dtp_ckpt_close(k.ptr)
		k.ptr = nil
		return C.DTP_OK
	})
}

// CkptInfo is about a whole step.
type CkptInfo struct {
	Step        uint64
	WorldSize   int // ranks that saved it
	Tensors     int
	Shards      int
	Bytes       uint64 // of tensor data, before the codec
	StoredBytes uint64
	MetaJSON    string
	Format      string // "dtp-ckpt", or what others wrote: "safetensors", "huggingface", ...
	// HasChecksums says whether what is read is verified.
	HasChecksums bool
}

// Info is about the whole step.
func (k *Ckpt) Info() (CkptInfo, error) {
	if k.ptr == nil {
		return CkptInfo{}, closedError("ckpt")
	}
	defer runtime.KeepAlive(k)
	i := C.dtp_ckpt_info{size: C.sizeof_dtp_ckpt_info}
	var detail C.dtp_error
	if err := newError(C.dtp_ckpt_get_info(k.ptr, &i, &detail), &detail); err != nil {
		return CkptInfo{}, err
	}
	return CkptInfo{uint64(i.step), int(i.world_size), int(i.n_tensors), int(i.n_shards),
		uint64(i.bytes), uint64(i.stored_bytes), C.GoString(i.meta_json),
		C.GoString(i.format), i.has_checksums != 0}, nil
}

// Tensor is a stored tensor.
type Tensor struct {
	Name      string
	Dtype     string // "f32", "bf16", ...
	Shape     []int64
	ElemBytes int // 0 for types of less than a byte
	ElemBits  int
}

// Tensors are all tensors of the step, by name.
func (k *Ckpt) Tensors() ([]Tensor, error) {
	info, err := k.Info()
	if err != nil {
		return nil, err
	}
	defer runtime.KeepAlive(k)
	tensors := make([]Tensor, info.Tensors)
	for i := range tensors {
		if tensors[i], err = k.tensor(C.uint32_t(i)); err != nil {
			return nil, err
		}
	}
	return tensors, nil
}

// Tensor is the tensor of that name; ErrNotFound where there is none.
func (k *Ckpt) Tensor(name string) (Tensor, error) {
	if k.ptr == nil {
		return Tensor{}, closedError("ckpt")
	}
	defer runtime.KeepAlive(k)
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	var i C.uint32_t
	var detail C.dtp_error
	if err := newError(C.dtp_ckpt_find(k.ptr, text, &i, &detail), &detail); err != nil {
		return Tensor{}, err
	}
	return k.tensor(i)
}

func (k *Ckpt) tensor(i C.uint32_t) (Tensor, error) {
	t := C.dtp_ckpt_tensor{size: C.sizeof_dtp_ckpt_tensor}
	var detail C.dtp_error
	if err := newError(C.dtp_ckpt_get_tensor(k.ptr, i, &t, &detail), &detail); err != nil {
		return Tensor{}, err
	}
	shape := make([]int64, t.n_dims)
	for d := range shape {
		shape[d] = int64(unsafe.Slice(t.shape, int(t.n_dims))[d])
	}
	return Tensor{C.GoString(t.name), C.GoString(C.dtp_dtype_name(t.dtype)), shape,
		int(C.dtp_dtype_bytes(t.dtype)), int(C.dtp_dtype_bits(t.dtype))}, nil
}

// Box is a part of a tensor: Extent elements from Offset in each dimension.
type Box struct {
	Offset, Extent []int64
}

// Read reads a box (nil: all) of a tensor, verified; row-major bytes, little endian.
func (k *Ckpt) Read(ctx context.Context, name string, box *Box) ([]byte, error) {
	t, err := k.Tensor(name)
	if err != nil {
		return nil, err
	}
	dtype := C.CString(t.Dtype)
	defer C.free(unsafe.Pointer(dtype))
	n, err := t.count(box)
	if err != nil {
		return nil, err
	}
	data := make([]byte, (n*int64(t.ElemBits)+7)/8)
	return data, k.read(ctx, t, C.dtp_dtype_parse(dtype), box, firstByte(data))
}

// ReadAs reads a box (nil: all) of a tensor whose type must be T.
func ReadAs[T Number](ctx context.Context, k *Ckpt, name string, box *Box) ([]T, error) {
	t, err := k.Tensor(name)
	if err != nil {
		return nil, err
	}
	n, err := t.count(box)
	if err != nil {
		return nil, err
	}
	data := make([]T, n)
	var p unsafe.Pointer
	if n > 0 {
		p = unsafe.Pointer(&data[0])
	}
	return data, k.read(ctx, t, dtypeOf[T](), box, p)
}

// count is the number of elements in the box, bounded by the tensor, so that no size overflows.
func (t *Tensor) count(box *Box) (int64, error) {
	n := int64(1)
	for d, extent := range t.Shape {
		if box != nil {
			if len(box.Offset) != len(t.Shape) || len(box.Extent) != len(t.Shape) {
				text := fmt.Sprintf("tensor %s has %d dimensions, the box others", t.Name, len(t.Shape))
				return 0, &Error{Status: ErrInvalid, Text: text, Noun: "ckpt", Rank: -1}
			}
			if box.Offset[d] < 0 || box.Extent[d] < 0 || box.Extent[d] > extent-box.Offset[d] {
				text := fmt.Sprintf("box %v+%v lies outside tensor %s of shape %v", box.Offset, box.Extent,
					t.Name, t.Shape)
				return 0, &Error{Status: ErrRange, Text: text, Noun: "ckpt", Rank: -1}
			}
			extent = box.Extent[d]
		}
		n *= extent
	}
	return n, nil
}

func (k *Ckpt) read(ctx context.Context, t Tensor, dtype C.dtp_dtype, box *Box, p unsafe.Pointer) error {
	name := C.CString(t.Name)
	defer C.free(unsafe.Pointer(name))
	var offset, extent *C.int64_t
	if box != nil {
		offset, extent = numbers(box.Offset), numbers(box.Extent)
	}
	defer runtime.KeepAlive(k)
	return k.c.call(ctx, func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_go_ckpt_read(k.ptr, name, dtype, C.uint32_t(len(t.Shape)), numbers(t.Shape),
			offset, extent, p, detail)
	})
}

func numbers(v []int64) *C.int64_t {
	if len(v) == 0 {
		return nil
	}
	return (*C.int64_t)(unsafe.Pointer(&v[0]))
}
