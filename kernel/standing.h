/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * A burst or a crowd? A burst drains. A crowd keeps a standing queue: for burst_ns as many wait as
 * may, no answer is quick, and the queue does not become shorter. Until then the kernel decides as
 * if there were no guard.
 *
 * After CoDel, whose shortest sojourn of an interval tells the two apart (RFC 8289, section 4), and
 * [Shu05] 5.2, which waits before it refuses. Nothing here is under the lock of struct service.
 */
#ifndef TIDEGATE_STANDING_H
#define TIDEGATE_STANDING_H

#include "service.h"

enum {
	STANDING_WINDOWS = 2,		/* that burst_ns is cut into: the queue may be no shorter at the end of each */
	STANDING_ANSWERS = 64,		/* in a window at least, or it doubles in a second: with fewer, chance decides */
	FULL_LOOKS = 8,			/* that find the accept queue full, at least */
	FULL_LEAK = 8,			/* times as long as it was full, after which it is as if it had not been */
	MANY_WAITING = 1024,		/* connections that wait, while usual answers are not known */
	LIVELOCK_SYNS = 4096,		/* SYNs that find it full, of which a server may have no CPU left to answer anybody */
};

/* SYNs are refused until none has been for calm_ns. */
static __always_inline bool is_refusing(const struct service *service, const struct pace *pace, __u64 now)
{
	__u64 last = *(volatile __u64 *)&service->refused_ns;

	return last && (__s64)(now - last) <= (__s64)pace->calm_ns;
}

static __always_inline void begin_window(struct service *service, struct standing *standing, __u32 waiting, __u64 number, __u64 now)
{
	standing->answered = *(volatile __u64 *)&service->answered;
	standing->waiting = waiting;
	standing->inside = count_inside(service);
	standing->windows = number;
	standing->since_ns = now;
}

/* As many wait as may. True when that has held for all windows, and the queue did not drain. */
static __always_inline bool stands(struct service *service, struct standing *standing, const struct pace *pace, __u32 waiting, __u64 now)
{
	__u64 since = *(volatile __u64 *)&standing->since_ns, answered = *(volatile __u64 *)&service->answered - standing->answered;

	if (!since) {
		begin_window(service, standing, waiting, 0, now);
		standing->first = waiting;
		return false;
	}
	if ((__s64)(now - since) * STANDING_WINDOWS < (__s64)pace->burst_ns)
		return false;
	if (answered < STANDING_ANSWERS && waiting < 2 * standing->waiting)
		return false;
	/* A server that is known and answers few may pause. */
	if (answered < STANDING_ANSWERS && pace->quick_ns && (__s64)(now - since) < NS_PER_S)
		return false;
	/* After a pause those drain who count no more. */
	if (waiting < standing->waiting || count_inside(service) < standing->inside) {
		begin_window(service, standing, waiting, 0, now);
		standing->first = waiting;
		return false;
	}
	if (standing->windows + 1 >= STANDING_WINDOWS) {
		service->waiting_at_onset = standing->first;
		return true;
	}
	begin_window(service, standing, waiting, standing->windows + 1, now);
	return false;
}

/*
 * True when the accept queue has been full for burst_ns of late. A SYN that finds it full, and is
 * not the first, adds the time since the last SYN, at most a FULL_LOOKS-th of burst_ns. Time
 * without a full queue takes off a FULL_LEAK-th of itself, and time in which the server was idle
 * takes off as much. So one look says little. A server that takes all at once leaves an empty queue
 * between two turns of its loop. A burst is many SYNs in a short time, and leaves the server idle
 * before the next.
 */
static __always_inline bool queue_stands(struct service *service, const struct pace *pace, const struct listener_load *load,
					 __u32 waiting, __u64 now)
{
	__u64 answered = *(volatile __u64 *)&service->answered, most = pace->burst_ns / FULL_LOOKS;
	struct full_queue *queue = &service->full_queue;
	__u64 idle_ns = *(volatile __u64 *)&service->idle_ns, off;
	bool is_full = accept_queue_is_full(load);
	__s64 gone = now - queue->looked_ns;

	if (gone < 0 || (!is_full && !queue->full_ns))
		return false;
	queue->looked_ns = now;
	/* Another CPU may have seen a later one. */
	off = idle_ns > queue->idle_ns ? idle_ns - queue->idle_ns : 0;
	if (!is_full)
		off += gone / FULL_LEAK;
	queue->idle_ns = idle_ns;
	queue->full_ns = queue->full_ns > off ? queue->full_ns - off : 0;
	if (!is_full)
		return false;
	if (!queue->full_ns) {
		queue->syns = 0;
		queue->answered = answered;
		queue->waiting = waiting;
		gone = 1; /* 0 says that none came yet */
	}
	queue->full_ns += (__u64)gone < most ? (__u64)gone : most;
	if (queue->full_ns > pace->burst_ns)
		queue->full_ns = pace->burst_ns;
	queue->syns++;
	if (queue->full_ns < pace->burst_ns)
		return false;
	if (answered - queue->answered < STANDING_WINDOWS * STANDING_ANSWERS && queue->syns < LIVELOCK_SYNS)
		return false;
	service->waiting_at_onset = queue->waiting;
	queue->full_ns = 0;
	return true;
}

/*
 * As many wait as may. While usual answers are not known: many, and the accept queue is half full.
 */
static __always_inline bool is_long(const struct pace *pace, const struct listener_load *load, __u32 waiting)
{
	return pace->quick_ns ? waiting >= pace->limit : waiting >= MANY_WAITING && load->accept_qlen > load->accept_limit / 2;
}

/*
 * True when a crowd is there. end() of service.h ends a standing queue when an answer is quick, or
 * fewer wait.
 */
static __always_inline bool is_crowd(struct service *service, const struct pace *pace, const struct listener_load *load, __u64 now)
{
	__u32 waiting = count_recent(service, pace);

	if (!pace->burst_ns)
		return accept_queue_is_full(load) || (pace->quick_ns && waiting >= pace->limit);
	return queue_stands(service, pace, load, waiting, now) ||
	       (is_long(pace, load, waiting) && stands(service, &service->standing, pace, waiting, now));
}

#endif
