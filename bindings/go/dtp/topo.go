// SPDX-License-Identifier: Apache-2.0

package dtp

/*
#include <stdlib.h>
#include <dtp/dtp.h>

static dtp_status dtp_go_topo_load(dtp_ctx *ctx, const char *hwloc_xml, const char *fsroot,
                                   int no_devices, dtp_topo **topo_out, dtp_error *err)
{
	dtp_topo_opts opts = DTP_TOPO_OPTS_INIT;
	opts.hwloc_xml = hwloc_xml;
	opts.fsroot = fsroot;
	opts.no_devices = (uint32_t)no_devices;
	return dtp_topo_load(ctx, &opts, topo_out, err);
}
*/
import "C"

import (
	"context"
	"runtime"
	"unsafe"
)

// ObjectType is the kind of an object.
type ObjectType int

// The kinds of dtp/topo.h.
const (
	Machine = ObjectType(C.DTP_TOPO_MACHINE)
	Package = ObjectType(C.DTP_TOPO_PACKAGE)
	NUMA    = ObjectType(C.DTP_TOPO_NUMA)
	Cache   = ObjectType(C.DTP_TOPO_CACHE)
	Core    = ObjectType(C.DTP_TOPO_CORE)
	PU      = ObjectType(C.DTP_TOPO_PU)
	Bridge  = ObjectType(C.DTP_TOPO_BRIDGE)
	PCI     = ObjectType(C.DTP_TOPO_PCI)
	GPU     = ObjectType(C.DTP_TOPO_GPU)
	NIC     = ObjectType(C.DTP_TOPO_NIC)
	NVMe    = ObjectType(C.DTP_TOPO_NVME)
)

// Object is one object of a topology; numbers may be Unknown, text is "" where it is unknown.
type Object struct {
	Index       int
	Parent      int // -1: the machine
	Type        ObjectType
	OSIndex     int64
	Name        string
	PCI         string // address, such as "0000:3b:00.0"
	Model       string
	NUMA        int64
	MemBytes    int64
	CacheBytes  int64
	LinkMbps    int64
	LinkMaxMbps int64
	PortMbps    int64
	PortState   int // 0 unknown, 1 down, 2 init, 3 armed, 4 active
	LinkLayer   string
	GID         string
	CPUs        string // a list, such as "0-3,8"
}

// TopoOptions may be nil: this machine.
type TopoOptions struct {
	HwlocXML  string // a recorded machine: hwloc XML file
	FSRoot    string // a recorded machine: folder that holds sys/ and proc/
	NoDevices bool   // processors and memory only
}

// Topo is a loaded topology; it does not change.
type Topo struct {
	ptr *C.dtp_topo
}

// LoadTopo discovers this machine, or reads a recorded one.
func LoadTopo(c *Context, opts *TopoOptions) (*Topo, error) {
	if opts == nil {
		opts = &TopoOptions{}
	}
	xml, fsroot := optionalText(opts.HwlocXML), optionalText(opts.FSRoot)
	defer C.free(unsafe.Pointer(xml))
	defer C.free(unsafe.Pointer(fsroot))
	var noDevices C.int
	if opts.NoDevices {
		noDevices = 1
	}
	t := &Topo{}
	err := c.call(context.Background(), func(detail *C.dtp_error) C.dtp_status {
		return C.dtp_go_topo_load(c.ptr, xml, fsroot, noDevices, &t.ptr, detail)
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// optionalText is NULL for "".
func optionalText(s string) *C.char {
	if s == "" {
		return nil
	}
	return C.CString(s)
}

// Close frees the topology.
func (t *Topo) Close() error {
	C.dtp_topo_close(t.ptr)
	t.ptr = nil
	return nil
}

// Objects are all objects, parents before their children.
func (t *Topo) Objects() ([]Object, error) {
	if t.ptr == nil {
		return nil, closedError("topo")
	}
	defer runtime.KeepAlive(t)
	objects := make([]Object, C.dtp_topo_n_objs(t.ptr))
	for i := range objects {
		o := C.dtp_topo_obj{size: C.sizeof_dtp_topo_obj}
		var detail C.dtp_error
		if err := newError(C.dtp_topo_get(t.ptr, C.uint32_t(i), &o, &detail), &detail); err != nil {
			return nil, err
		}
		objects[i] = newObject(&o)
	}
	return objects, nil
}

func newObject(o *C.dtp_topo_obj) Object {
	return Object{
		Index: int(o.index), Parent: int(o.parent), Type: ObjectType(o._type),
		OSIndex: int64(o.os_index), Name: C.GoString(o.name), PCI: C.GoString(o.pci),
		Model: C.GoString(o.model), NUMA: int64(o.numa), MemBytes: int64(o.mem_bytes),
		CacheBytes: int64(o.cache_bytes), LinkMbps: int64(o.link_mbps),
		LinkMaxMbps: int64(o.link_max_mbps), PortMbps: int64(o.port_mbps),
		PortState: int(o.port_state), LinkLayer: C.GoString(o.link_layer), GID: C.GoString(o.gid),
		CPUs: C.GoString(o.cpus),
	}
}

func (t *Topo) render(format C.dtp_topo_format) (string, error) {
	if t.ptr == nil {
		return "", closedError("topo")
	}
	defer runtime.KeepAlive(t)
	var text *C.char
	var detail C.dtp_error
	if err := newError(C.dtp_topo_render(t.ptr, format, &text, &detail), &detail); err != nil {
		return "", err
	}
	defer C.dtp_text_free(text)
	return C.GoString(text), nil
}

// Text is a tree for people.
func (t *Topo) Text() (string, error) { return t.render(C.DTP_TOPO_TEXT) }

// JSON is the topology as a JSON document.
func (t *Topo) JSON() (string, error) { return t.render(C.DTP_TOPO_JSON) }

// Matrix shows how the devices reach each other, as `nvidia-smi topo -m` does.
func (t *Topo) Matrix() (string, error) { return t.render(C.DTP_TOPO_MATRIX) }

// CPUs is a list of processors, "" where it is unknown.
type CPUs struct {
	Machine, Allowed, Bound string
}

// CPUs are all there are, those allowed by the cgroup, and those that the loading thread was bound to.
func (t *Topo) CPUs() (CPUs, error) {
	if t.ptr == nil {
		return CPUs{}, closedError("topo")
	}
	defer runtime.KeepAlive(t)
	return CPUs{
		Machine: C.GoString(C.dtp_topo_cpus(t.ptr, C.DTP_CPUS_MACHINE)),
		Allowed: C.GoString(C.dtp_topo_cpus(t.ptr, C.DTP_CPUS_ALLOWED)),
		Bound:   C.GoString(C.dtp_topo_cpus(t.ptr, C.DTP_CPUS_BOUND)),
	}, nil
}
