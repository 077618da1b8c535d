/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The counters of counters.h as structs. The includer provides __u64. */
#ifndef TIDEGATE_STATS_H
#define TIDEGATE_STATS_H

#include "counters.h"

#define COUNTER_FIELD(field, ...) __u64 field;
#define COUNTER_ONE(...) + 1

/* Counts of one listener. */
struct listener_stats {
	LISTENER_COUNTERS(COUNTER_FIELD)
};

/* Counts of all frames. */
struct path_stats {
	PATH_COUNTERS(COUNTER_FIELD)
};

_Static_assert(sizeof(struct listener_stats) == (0 LISTENER_COUNTERS(COUNTER_ONE)) * sizeof(__u64), "no padding: user space adds up raw words");
_Static_assert(sizeof(struct path_stats) == (0 PATH_COUNTERS(COUNTER_ONE)) * sizeof(__u64), "nor here");

#endif
