// SPDX-License-Identifier: Apache-2.0

// topo.go: what a scheduler in Go sees of a machine, live or recorded as hwloc XML.
//
//	cd bindings/go && go run ../../docs/examples/topo.go [MACHINE.xml]
package main

import (
	"fmt"
	"os"

	"libdtp/dtp"
)

func show(path string) error {
	ctx, err := dtp.Open(nil)
	if err != nil {
		return err
	}
	defer ctx.Close()
	topo, err := dtp.LoadTopo(ctx, &dtp.TopoOptions{HwlocXML: path})
	if err != nil {
		return err
	}
	defer topo.Close()
	objects, err := topo.Objects()
	if err != nil {
		return err
	}
	cores := 0
	for _, o := range objects {
		switch o.Type {
		case dtp.Core:
			cores++
		case dtp.GPU, dtp.NIC, dtp.NVMe:
			fmt.Printf("%-10s %-14s NUMA node %s\n", o.Name, o.PCI, known(o.NUMA))
		}
	}
	cpus, err := topo.CPUs()
	fmt.Printf("%d cores, processors %s\n", cores, cpus.Allowed)
	return err
}

func known(n int64) string {
	if n == dtp.Unknown {
		return "unknown"
	}
	return fmt.Sprint(n)
}

func main() {
	if err := show(append(os.Args, "")[1]); err != nil {
		fmt.Fprintln(os.Stderr, "topo:", err)
		os.Exit(1)
	}
}
