/* SPDX-License-Identifier: Apache-2.0 */
/* The headers of kernel/ that need no kernel, and what they want of whoever includes them. */
#include <linux/types.h>
#include <stdbool.h>
#include <sys/cdefs.h>

struct bpf_spin_lock {			/* the kernel's; there is one CPU here, and no lock */
	__u32 val;
};

#include "bands.h"
#include "close.h"
#include "cookie.h"
#include "http.h"
#include "protected.h"
#include "red.h"
#include "room.h"
#include "stats.h"
#include "unserved.h"
#include "verdict.h"
