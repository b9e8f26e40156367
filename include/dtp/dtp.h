/* SPDX-License-Identifier: Apache-2.0 */
/* dtp/dtp.h - all public headers of libdtp. */
#ifndef DTP_DTP_H
#define DTP_DTP_H

#include <dtp/base.h>
#include <dtp/ckpt.h>
#include <dtp/coll.h>
#include <dtp/ctx.h>
#include <dtp/group.h>
#include <dtp/job.h>
#include <dtp/nccl.h>
#include <dtp/placement.h>
#include <dtp/topo.h>

#endif /* DTP_DTP_H */
