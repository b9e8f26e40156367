/* SPDX-License-Identifier: Apache-2.0 */
/* cgroup.h - processors that the cgroup of this process (or of the recorded one) allows. */
#ifndef DTPI_TOPO_CGROUP_H
#define DTPI_TOPO_CGROUP_H

#include "topo/fs.h"

/*
 * Version 2, version 1 and the cpuset file system before them. False: not known (no such files);
 * a process that no cpuset governs is allowed all, which is for the caller to say.
 */
bool dtpi_topo_cgroup_cpus(dtpi_topo_fs *fs, dtpi_cpuset *out, bool *governed_out);

#endif /* DTPI_TOPO_CGROUP_H */
