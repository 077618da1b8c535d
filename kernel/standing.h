/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Tells a burst from a crowd. A burst drains; a crowd keeps a standing queue. A queue stands when
 * three things hold for burst_ns: as many wait as the limit allows, no answer is quick, and the
 * queue does not become shorter. Until then the kernel decides as if there were no guard.
 *
 * CoDel tells the two apart by the shortest sojourn of an interval (RFC 8289, section 4). Section
 * 5.2 of [Shu05] also waits before it refuses. Nothing here is under the lock of struct service.
 */
#ifndef TIDEGATE_STANDING_H
#define TIDEGATE_STANDING_H

#include "service.h"

enum {
	STANDING_WINDOWS = 2,		/* parts of burst_ns; the queue may be no shorter at the end of each */
	STANDING_ANSWERS = 64,		/* fewest answers of a window, unless the queue doubles: fewer are chance */
	FULL_LOOKS = 8,			/* fewest SYNs that find the accept queue full */
	FULL_LEAK = 8,			/* a full time is forgotten after this many times its length */
	MANY_WAITING = 1024,		/* connections that wait, while quick_ns is unknown */
	LIVELOCK_SYNS = 4096,		/* SYNs that find it full, when a server may have no CPU left to answer */
};

/* True until calm_ns have passed since the last refusal. */
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

/*
 * The caller has seen as many wait as the limit allows. True when that held for all windows, and
 * the queue did not drain.
 */
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
	/* A server whose quick_ns is known, and that gives few answers, may only pause. */
	if (answered < STANDING_ANSWERS && pace->quick_ns && (__s64)(now - since) < NS_PER_S)
		return false;
	/* After a pause, old connections drain that count no more. */
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
 * True when the accept queue has been full for burst_ns of late.
 *
 * A SYN that finds it full adds the time since the last SYN, at most a FULL_LOOKS-th of burst_ns.
 * The first one adds next to nothing. So one look says little.
 *
 * Time without a full queue takes off a FULL_LEAK-th of itself. Time in which the server was idle
 * takes off all of itself. A burst is many SYNs in a short time, and leaves the server idle before
 * the next. A server that accepts all at once leaves an empty queue between two turns of its loop.
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
	/* Another CPU may have stored a later idle time. */
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
		gone = 1; /* 0 means that no SYN came yet */
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
 * True when as many wait as the limit allows. While quick_ns is unknown: many wait, and the accept
 * queue is half full.
 */
static __always_inline bool is_long(const struct pace *pace, const struct listener_load *load, __u32 waiting)
{
	return pace->quick_ns ? waiting >= pace->limit : waiting >= MANY_WAITING && load->accept_qlen > load->accept_limit / 2;
}

/*
 * True when a crowd is there. A standing queue ends in end() of service.h, when an answer is quick
 * or fewer wait.
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
