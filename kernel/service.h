/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How many connections wait for a server, wherever they stand: in the accept queue or inside it. follow.bpf.h says when one begins to and when it
 * ends; the SYN stage asks how many do. No map, no clock, no kernel pointer: crates/kernel compiles this for the host, and crates/pacer tries it in virtual time.
 *
 * Nobody holds a place by being slow. What counts is who waits *for the server*, and the server goes on: who is overtaken by so many who
 * came later waits for something else - the rest of his own request, or an event. So connections are counted by the epoch in which they came,
 * only the last four count, and an epoch ends when the oldest of the four has nobody left, or was overtaken. Before a server that takes its
 * requests in their order nobody is overtaken, however long its queue. If the server stalls, so do the epochs, but not for longer than epoch_ns:
 * there may be nothing but such connections. Who is forgotten so was not overtaken, and his answer tells how slow the server has become.
 *
 * Who has not ended his handshake yet is in expected.h, what a burst may spend in burst.h, and what the SYN stage asks of all of it in unserved.h.
 *
 * The includer provides __u32, __u64, __s64, bool, __always_inline and struct bpf_spin_lock.
 */
#ifndef TIDEGATE_SERVICE_H
#define TIDEGATE_SERVICE_H

#include "histogram.h"
#include "verdict.h"

enum {
	MAX_TURNS = 5,			/* times that a connection may begin to wait: its handshake, and four pieces of a request */
	PIECEMEAL = MAX_TURNS + 1,	/* more pieces than these have come */
	EPOCHS = 4,			/* that count; a power of two */
	BESIDE = 16,			/* buckets of how many wait, the last without an end; a power of two */
	NS_PER_US = 1000,
	LONGEST_HANDSHAKE_US = 250000,	/* that one counts with, where a mean is taken: clients can make it last */
	SLOTS = 4,			/* of time, for SYNs that were admitted; a power of two */
	SLOT_BITS = 20,			/* of each of two counts in a slot */
	SHIFT_BITS = 5,			/* of the log2 of its length, which crates/pacer has from 17 to 30; the rest is its number */
	SHIFT_MASK = (1 << SHIFT_BITS) - 1,
	MOST_IN_SLOT = (1 << SLOT_BITS) - 4096, /* CPUs may count beyond it at once */
	ALL_PPM = 1000000,
	NAPI_WEIGHT = 64,		/* frames of an interface that may come to us before the kernel sees the first of them */
};

/* What the agent finds out about a server while it runs, several times a second. */
struct pace {
	__u64 epoch_ns;			/* longest epoch, whatever happens */
	__u32 overtaken_at;		/* answers to later ones after which a connection waits for something else than the server; above 0 */
	__u32 limit;			/* for the policy's trigger, if it names none; connections, 0 is none yet */
	__u32 slot_shift;		/* log2 of a slot of time in ns */
	__u32 completed_ppm;		/* of a million admitted SYNs, those that become connections */
	__u32 served_meanwhile;		/* connections that the server can answer within a mean handshake, of those that it answers; times a factor, if fewer wait than may */
	__u32 counts_silent;		/* not 0: those wait, too, whose request we did not see: the server speaks first, or acknowledges late */
	__u32 answers_per_s;		/* that it can give, as far as is known */
	__u32 taken_meanwhile;		/* connections that it takes from its accept queue within a mean handshake of all, less the time for which it may be kept from its CPU */
	__u64 answer_ns;		/* one more keeps all who come later waiting for so much longer, as far as is known; 0 is none yet */
	__u64 patience_ns;		/* longest that a burst may make them wait in the server's queues, whatever is kept */
	__u64 handshake_ns;		/* as they usually take */
	__u64 drain_ns;			/* of one place in the virtual queue; 0 where clients are near, and there is none */
	__u64 trickle_ns;		/* one is admitted past a limit that long after the last answer, and so on: those that wait may wait for something else */
	__u64 kept_ns;			/* most of the idle time that is kept for a burst; where that is less than answer_ns, as 0 is, nobody waits for one's sake */
	__u64 reserve_ns;		/* of it, what is left unspent, as so many come for each answer that the burst is likely to be a crowd */
};

/* What a connection waits for. */
enum stage {
	STAGE_SILENT,			/* its client has sent nothing yet */
	STAGE_WAITING,			/* a request is there */
	STAGES,
};

/* Of one connection, from the handshake's end to the beginning of the response; what is there later is nobody's. */
struct wait {
	__u64 since_ns;			/* it began to wait last, or its last piece came */
	__u64 epoch;
	__u64 received;			/* bytes, by then */
	__u32 index;			/* of struct service */
	__u32 generation;		/* of struct service */
	__u16 stage;			/* enum stage */
	__u8 turns;			/* that it has begun to wait, or PIECEMEAL */
	__u8 beside;			/* bucket of how many waited already, by then */
	__u32 calls;			/* flags that we have set in the socket, and nobody before */
	__u32 handshake_us;		/* how long its handshake took; the usual time if that is not known */
};

/*
 * Of one server, on all CPUs together: the decision must not add up as many rows as there are CPUs. Sums are since it is guarded:
 * established = answered + ended + in_stage. Under `lock`, but for what says otherwise.
 */
struct service {
	__u64 epoch;			/* the first is EPOCHS */
	__u64 epoch_ends_ns;
	__u64 overtaken[EPOCHS];	/* answers to those of later epochs */
	__u64 overtaken_before;		/* epochs before this one were */
	__u64 established;
	__u64 answered;
	__u64 answered_in_turn;		/* of these, before they were overtaken: what the rest is about */
	__u64 answered_silent;		/* of `answered`, before we saw a byte of a request */
	__u64 answered_piecemeal;	/* of `answered`, who sent many pieces and took so long over it that they counted no more */
	__u64 ended;			/* closed, reset or timed out without an answer */
	__u64 idle_ns;			/* in which nobody waited, but for what has gone by since idle_since_ns */
	__u64 idle_since_ns;		/* 0: somebody waits */
	__u64 busy_since_ns;
	__u64 answered_ns;		/* when the last one was */
	__u64 sojourn_ns;		/* of the last ones, smoothed by an eighth */
	__u64 response_ns;		/* sum, of `answered_in_turn`: from the request, or the handshake's end */
	__u64 responses_us[BUCKETS];
	__u64 overtakes[BUCKETS];	/* of those that were answered: by how many who came later they were overtaken */
	__u64 answers_beside[BESIDE];	/* those whose time counts, but for PIECEMEAL ones, by how many waited already when they began to */
	__u64 responses_beside_ns[BESIDE]; /* sum, of those in each bucket */
	__u64 handshakes_us[BUCKETS];	/* of `established`: round trips, where they are known */
	__u64 handshakes_sum_us[BUCKETS]; /* of those in each bucket */
	__u64 answered_handshakes_us;	/* sum, of `answered` */
	__u64 trickled_ns;		/* when one was admitted past the limit; not under the lock */
	__u64 spent_ns;			/* of the idle time, by bursts, or lost; nor is this */
	__u64 paid;			/* places past the limit that were paid for in the second that began at paid_ns; nor is this */
	__u64 paid_ns;
	__u64 crowd_began_ns;		/* when the crowd began that is there now, or was last; nor is this */
	__u64 crowded_ns;		/* somebody was refused last, as there was nothing to spend; nor is this */
	__u64 deferred_ns;		/* when the next one may be left unanswered, see defer() in burst.h; nor is this */
	__u64 drained_ns;		/* when all that were let in will have been taken, see fill_virtual_queue() in expected.h; nor is this */
	__u64 slots[SLOTS];		/* SYNs that were admitted, see place_of() in expected.h; not under the lock */
	__u64 expected;			/* of slots that are over; nor is this */
	__u64 never_came;		/* of `expected`; nor this */
	__u32 in_stage[STAGES];		/* all, however long they have been there */
	__u32 recent[STAGES];		/* in the epochs that count */
	__u32 count[STAGES][EPOCHS];
	__u32 waiting_beside[STAGES][BESIDE]; /* all in the stages, but for PIECEMEAL ones, by how many waited already when they began to */
	__u32 generation;		/* another one for another server: connections of the one before are nobody's */
	struct bpf_spin_lock lock;
};

_Static_assert(2 * SLOT_BITS + SHIFT_BITS < 64, "and a number");
_Static_assert(sizeof(struct pace) == 8 * sizeof(__u64) + 8 * sizeof(__u32), "no padding: user space writes raw words");
_Static_assert(sizeof(struct service) == __builtin_offsetof(struct service, lock) + sizeof(struct bpf_spin_lock), "nor here");

/* The verifier wants its bounds. */
static __always_inline __u32 shift_of(const struct pace *pace)
{
	return pace->slot_shift & SHIFT_MASK;
}

/* ---- Under the lock. ---- */

static __always_inline bool is_idle(const struct service *service, const struct pace *pace)
{
	return !service->recent[STAGE_WAITING] && (!pace->counts_silent || !service->recent[STAGE_SILENT]);
}

/* Somebody was refused within this part of patience_ns: there is a crowd. */
#define CROWD_SHIFT 4

static __always_inline __u64 crowd_ends_ns(const struct service *service, const struct pace *pace)
{
	return *(volatile __u64 *)&service->crowded_ns + (pace->patience_ns >> CROWD_SHIFT);
}

/* A crowd leaves moments in which nobody waits, too, which pay for nobody. How much of the time from `since` on is such. */
static __always_inline __u64 count_crowded_ns(const struct service *service, const struct pace *pace, __u64 since, __u64 now)
{
	__u64 began = *(volatile __u64 *)&service->crowd_began_ns, begin = began > since ? began : since;
	__u64 until = crowd_ends_ns(service, pace), end = until < now ? until : now;

	return end > begin ? end - begin : 0;
}

/* Keeps the time in which nobody waits, after whatever has changed. */
static __always_inline void settle_idle(struct service *service, const struct pace *pace, __u64 now)
{
	bool is = is_idle(service, pace), was = service->idle_since_ns;

	if (is == was)
		return;
	if (is) {
		service->idle_since_ns = now;
		return;
	}
	/* Clocks are read before the lock is taken. */
	if (now > service->idle_since_ns) {
		service->idle_ns += now - service->idle_since_ns;
		__sync_fetch_and_add(&service->spent_ns, count_crowded_ns(service, pace, service->idle_since_ns, now));
	}
	service->idle_since_ns = 0;
	service->busy_since_ns = now;
}

static __always_inline __u32 row_of(__u64 epoch)
{
	return epoch & (EPOCHS - 1);
}

static __always_inline __u32 count_row(const struct service *service, __u32 row)
{
	return service->count[STAGE_SILENT][row] + service->count[STAGE_WAITING][row];
}

static __always_inline bool is_oldest_overtaken(const struct service *service, const struct pace *pace)
{
	return service->overtaken[row_of(service->epoch + 1)] >= pace->overtaken_at;
}

/* Nobody is forgotten then. */
static __always_inline bool is_oldest_empty(const struct service *service)
{
	return !count_row(service, row_of(service->epoch + 1)) && count_row(service, row_of(service->epoch));
}

static __always_inline void turn_epoch(struct service *service, const struct pace *pace)
{
	__u32 row, stage;

	if (is_oldest_overtaken(service, pace))
		service->overtaken_before = service->epoch - (EPOCHS - 2);
	service->epoch++;
	row = row_of(service->epoch);
	service->overtaken[row] = 0;
	for (stage = 0; stage < STAGES; stage++) {
		service->recent[stage] -= service->count[stage][row];
		service->count[stage][row] = 0;
	}
}

/* Begins the next epoch if this one is over, and as many as would have begun while nothing happened. */
static __always_inline void turn_epochs(struct service *service, const struct pace *pace, __u64 now)
{
	__u64 due = 0;
	__u32 i;

	if (now >= service->epoch_ends_ns)
		due = 1 + (now - service->epoch_ends_ns) / pace->epoch_ns;
	for (i = 0; i < EPOCHS; i++) {
		if (i >= due && !is_oldest_overtaken(service, pace) && !is_oldest_empty(service))
			break;
		turn_epoch(service, pace);
	}
	if (!i)
		return;
	service->epoch_ends_ns = now + pace->epoch_ns;
	settle_idle(service, pace, now);
}

/* Those that count. */
static __always_inline __u32 count_recent(const struct service *service, const struct pace *pace)
{
	__u32 waiting = *(volatile __u32 *)&service->recent[STAGE_WAITING];

	return pace->counts_silent ? waiting + *(volatile __u32 *)&service->recent[STAGE_SILENT] : waiting;
}

static __always_inline __u32 beside_of(__u32 waiting)
{
	__u32 bucket = bucket_of(waiting);

	return bucket < BESIDE ? bucket : BESIDE - 1;
}

/* The verifier wants its bounds. */
static __always_inline __u32 beside(const struct wait *wait)
{
	return wait->beside & (BESIDE - 1);
}

static __always_inline bool is_counted(const struct service *service, const struct wait *wait)
{
	return service->epoch - wait->epoch < EPOCHS;
}

static __always_inline void enter(struct service *service, const struct pace *pace, struct wait *wait, enum stage stage, __u64 now)
{
	turn_epochs(service, pace, now);
	wait->turns++;
	wait->stage = stage;
	wait->since_ns = now;
	wait->epoch = service->epoch;
	wait->beside = beside_of(service->in_stage[STAGE_WAITING] + (pace->counts_silent ? service->in_stage[STAGE_SILENT] : 0));
	service->waiting_beside[stage][beside(wait)]++;
	service->in_stage[stage]++;
	service->recent[stage]++;
	service->count[stage][row_of(wait->epoch)]++;
	settle_idle(service, pace, now);
}

/* Off its bucket: when it leaves, or has come in so many pieces that it waits since the last one, and the bucket is of an earlier one. */
static __always_inline void forget_beside(struct service *service, const struct wait *wait)
{
	if (wait->turns < PIECEMEAL)
		service->waiting_beside[wait->stage & STAGE_WAITING][beside(wait)]--;
}

static __always_inline void leave(struct service *service, const struct pace *pace, const struct wait *wait, __u64 now)
{
	__u32 stage = wait->stage & STAGE_WAITING;

	turn_epochs(service, pace, now);
	service->in_stage[stage]--;
	forget_beside(service, wait);
	if (is_counted(service, wait)) {
		service->recent[stage]--;
		service->count[stage][row_of(wait->epoch)]--;
	}
	settle_idle(service, pace, now);
}

/* All of an earlier epoch that still count were overtaken by this one. */
static __always_inline void overtake(struct service *service, const struct wait *wait)
{
	__u32 back;

	for (back = 1; back < EPOCHS; back++)
		if (service->epoch - (wait->epoch - back) < EPOCHS)
			service->overtaken[row_of(wait->epoch - back)]++;
}

static __always_inline void count_overtakes(struct service *service, __u64 overtakes)
{
	service->overtakes[bucket_of(overtakes)]++;
}

/* The response has begun of one that has left, after a time of this bucket. */
static __always_inline void count_answer_of(struct service *service, const struct pace *pace, const struct wait *wait, __u32 bucket, __u64 now)
{
	__u64 sojourn = now - wait->since_ns;

	service->answered++;
	service->answered_handshakes_us += wait->handshake_us;
	service->answered_silent += wait->stage == STAGE_SILENT;
	/* One whose request we did not see says nothing of the server's time. */
	if (wait->stage == STAGE_SILENT && !pace->counts_silent)
		return;
	/* Nor does one whose client took so long that he counts no more. */
	if (wait->turns >= PIECEMEAL && !is_counted(service, wait)) {
		service->answered_piecemeal++;
		return;
	}
	if (wait->turns < PIECEMEAL) {
		service->answers_beside[beside(wait)]++;
		service->responses_beside_ns[beside(wait)] += sojourn;
	}
	if (wait->epoch < service->overtaken_before) {
		/* By how many is not known any more: if it is so of many, it took too few to be overtaken. */
		count_overtakes(service, 2 * (__u64)pace->overtaken_at);
		return;
	}
	service->answered_in_turn++;
	service->answered_ns = now;
	service->response_ns += sojourn;
	service->responses_us[bucket]++;
	service->sojourn_ns = service->sojourn_ns - service->sojourn_ns / 8 + sojourn / 8;
	if (!is_counted(service, wait))
		return;
	overtake(service, wait);
	count_overtakes(service, service->overtaken[row_of(wait->epoch)]);
}

static __always_inline void count_handshake(struct service *service, __u32 bucket, __u32 us)
{
	service->handshakes_us[bucket]++;
	service->handshakes_sum_us[bucket] += us;
}

/* The handshake has ended, and took so many us; 0 if that is not known. */
static __always_inline void begin(struct service *service, const struct pace *pace, struct wait *wait, __u32 handshake_us, __u64 now)
{
	__u64 longest_us = (2ULL << shift_of(pace)) / NS_PER_US;

	wait->generation = service->generation;
	/* Of one that takes longer than two slots nothing is expected, so that nothing may be taken off for it. */
	if (longest_us > LONGEST_HANDSHAKE_US)
		longest_us = LONGEST_HANDSHAKE_US;
	wait->handshake_us = handshake_us ? handshake_us : pace->handshake_ns / NS_PER_US;
	if (wait->handshake_us > longest_us)
		wait->handshake_us = longest_us;
	service->established++;
	if (handshake_us)
		count_handshake(service, bucket_of(handshake_us), handshake_us);
	enter(service, pace, wait, STAGE_SILENT, now);
}

/* More of a request has come. */
static __always_inline void go_on(struct service *service, const struct pace *pace, struct wait *wait, __u64 now)
{
	if (wait->generation != service->generation)
		return;
	/* A byte now and then must not hold a place for ever. But from when on the server can answer, its last piece says, or its client's time would be taken for the server's. */
	if (wait->turns >= MAX_TURNS) {
		forget_beside(service, wait);
		wait->since_ns = now;
		wait->turns = PIECEMEAL;
		return;
	}
	leave(service, pace, wait, now);
	enter(service, pace, wait, STAGE_WAITING, now);
}

/* The response begins, after a time of this bucket, or never will. */
static __always_inline void end(struct service *service, const struct pace *pace, const struct wait *wait, bool is_answered, __u32 bucket,
		       __u64 now)
{
	if (wait->generation != service->generation)
		return;
	leave(service, pace, wait, now);
	if (is_answered)
		count_answer_of(service, pace, wait, bucket, now);
	else
		service->ended++;
}

/* ---- Not under the lock. ---- */

/* How long somebody has waited and nobody was answered; below 0 if that was just now, on another CPU. */
static __always_inline __s64 read_stalled_ns(const struct service *service, __u64 now)
{
	__u64 since = service->answered_ns > service->busy_since_ns ? service->answered_ns : service->busy_since_ns;

	return now - since;
}

/* How long connections wait for the server now: as the last ones did, or longer if it has stalled. */
static __always_inline __u64 read_sojourn_ns(const struct service *service, __u64 now)
{
	__s64 stalled = read_stalled_ns(service, now), sojourn = service->sojourn_ns;

	return stalled > sojourn ? stalled : sojourn;
}

#endif
