/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * How many connections wait for a server, in the accept queue or inside it. follow.bpf.h says when
 * one begins to wait and when it ends. No map, no clock, no kernel pointer: crates/kernel compiles
 * this for the host, and crates/pacer tries it in virtual time.
 *
 * A connection that waits for something else than the server must not hold a place: half a request,
 * or one that waits for an event. Later connections overtake it. So connections are counted by the
 * epoch in which they came, and only the last four epochs count. An epoch ends when the oldest of
 * the four has nobody left or was overtaken. A server that takes requests in their order overtakes
 * nobody, however long its queue. If the server stalls, an epoch ends after epoch_ns, as there may
 * be nothing but such connections.
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
	NS_PER_US = 1000,
	NS_PER_S = 1000000000,
	ALL_PPM = 1000000,
};

/* What the agent finds out about a server while it runs, several times a second. */
struct pace {
	__u64 epoch_ns;			/* longest epoch, whatever happens */
	__u32 overtaken_at;		/* answers to later ones after which a connection waits for something else than the server; above 0 */
	__u32 limit;			/* for the policy's trigger, if it names none; connections, 0 is none yet */
	__u32 completed_ppm;		/* of a million admitted SYNs, those that become connections */
	__u16 counts_silent;		/* not 0: those wait, too, whose request we did not see: the server speaks first, or acknowledges late */
	__u16 follow_one_in;		/* so many connections while few wait, see weigh(); up to 255, 0 as 1 */
	__u32 answers_per_s;		/* that it can give, as far as is known */
	__u32 gain_per_s;		/* so many more are let in each second for each place that is free */
	__u64 quick_ns;			/* a sooner answer says that no queue stands; 0: not known yet */
	__u64 burst_ns;			/* a queue stands for so long before anybody is refused */
	__u64 calm_ns;			/* so long after the last refusal the kernel decides again */
};

/* Since when as many wait as may, and no answer was quick; see standing.h. */
struct standing {
	__u64 since_ns;			/* a window began; 0: fewer wait */
	__u64 answered;			/* by then */
	__u64 waiting;			/* by then */
	__u64 inside;			/* by then, whether they count or not */
	__u64 windows;			/* before this one */
	__u64 first;			/* waited when the first began */
};

/* How long an accept queue has been full; see queue_stands() in standing.h. */
struct full_queue {
	__u64 full_ns;
	__u64 looked_ns;
	__u64 idle_ns;			/* of the server, by then */
	__u64 answered;			/* when the first of `syns` came */
	__u64 syns;			/* that found it full, since full_ns was 0 last */
	__u64 waiting;			/* when the first of them came */
};

/* What a connection waits for. */
enum stage {
	STAGE_SILENT,			/* its client has sent nothing yet */
	STAGE_WAITING,			/* a request is there */
	STAGES,
};

/*
 * Of one connection, from the handshake's end to the beginning of the response; what is there later
 * is nobody's.
 */
struct wait {
	__u64 since_ns;			/* it began to wait last, or its last piece came */
	__u64 epoch;
	__u64 received;			/* bytes, by then */
	__u32 index;			/* of struct service */
	__u32 generation;		/* of struct service */
	__u16 stage;			/* enum stage */
	__u8 turns;			/* that it has begun to wait, or PIECEMEAL */
	__u8 weight;			/* it counts for so many connections */
	__u32 calls;			/* flags that we have set in the socket, and nobody before */
};

/*
 * Of one server, on all CPUs together: the decision must not add up as many rows as there are CPUs.
 * Sums are since it is guarded: established = answered + ended + in_stage. Under `lock`, but for
 * what says otherwise.
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
	__u64 handshakes_us[BUCKETS];	/* of `established`: round trips, where they are known */
	/* From here to schedule_ns: words that SYNs change without the lock. */
	struct standing standing;
	struct full_queue full_queue;
	__u64 waiting_at_onset;		/* when the queue of the last crowd began to stand */
	__u64 refused_ns;		/* when the last SYN was refused */
	__u64 schedule_ns;		/* of tokens, see admission_rate() in unserved.h */
	__u32 in_stage[STAGES];		/* all, however long they have been there */
	__u32 recent[STAGES];		/* in the epochs that count */
	__u32 count[STAGES][EPOCHS];
	__u32 generation;		/* another one for another server: connections of the one before are nobody's */
	struct bpf_spin_lock lock;
};

_Static_assert(sizeof(struct pace) == 4 * sizeof(__u64) + 6 * sizeof(__u32), "no padding: user space writes raw words");
_Static_assert(sizeof(struct service) == __builtin_offsetof(struct service, lock) + sizeof(struct bpf_spin_lock), "nor here");

/* ---- Under the lock. ---- */

static __always_inline bool is_idle(const struct service *service, const struct pace *pace)
{
	return !service->recent[STAGE_WAITING] && (!pace->counts_silent || !service->recent[STAGE_SILENT]);
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
	if (now > service->idle_since_ns)
		service->idle_ns += now - service->idle_since_ns;
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

/* Those that count. */
static __always_inline __u32 count_recent(const struct service *service, const struct pace *pace)
{
	__u32 waiting = *(volatile __u32 *)&service->recent[STAGE_WAITING];

	return pace->counts_silent ? waiting + *(volatile __u32 *)&service->recent[STAGE_SILENT] : waiting;
}

/* While few wait, one connection in so many is followed, by chance, and counts for all of them. */
static __always_inline __u32 followed_one_in(const struct service *service, const struct pace *pace)
{
	return pace->follow_one_in && count_recent(service, pace) < pace->limit / 4 ? pace->follow_one_in : 1;
}

/* For how many connections a new one counts; 0 if it is not followed. Needs no lock. */
static __always_inline __u32 weigh(const struct service *service, const struct pace *pace, __u32 random)
{
	__u32 one_in = followed_one_in(service, pace);

	return random % one_in ? 0 : one_in;
}

static __always_inline bool is_oldest_overtaken(const struct service *service, __u64 overtaken_at)
{
	return service->overtaken[row_of(service->epoch + 1)] >= overtaken_at;
}

/* Nobody is forgotten then. */
static __always_inline bool is_oldest_empty(const struct service *service)
{
	return !count_row(service, row_of(service->epoch + 1)) && count_row(service, row_of(service->epoch));
}

static __always_inline void turn_epoch(struct service *service, __u64 overtaken_at)
{
	__u32 row, stage;

	if (is_oldest_overtaken(service, overtaken_at))
		service->overtaken_before = service->epoch - (EPOCHS - 2);
	service->epoch++;
	row = row_of(service->epoch);
	service->overtaken[row] = 0;
	for (stage = 0; stage < STAGES; stage++) {
		service->recent[stage] -= service->count[stage][row];
		service->count[stage][row] = 0;
	}
}

/*
 * Begins the next epoch if this one is over, and as many as would have begun while nothing
 * happened.
 */
static __always_inline void turn_epochs(struct service *service, const struct pace *pace, __u64 now)
{
	/* As one answer counts for several, it takes so many times as many. */
	__u64 due = 0, overtaken_at = (__u64)pace->overtaken_at * followed_one_in(service, pace);
	__u32 i;

	if (now >= service->epoch_ends_ns)
		due = 1 + (now - service->epoch_ends_ns) / pace->epoch_ns;
	for (i = 0; i < EPOCHS; i++) {
		if (i >= due && !is_oldest_overtaken(service, overtaken_at) && !is_oldest_empty(service))
			break;
		turn_epoch(service, overtaken_at);
	}
	if (!i)
		return;
	service->epoch_ends_ns = now + pace->epoch_ns;
	settle_idle(service, pace, now);
}

/* All with a request, however long they have been there. */
static __always_inline __u32 count_inside(const struct service *service)
{
	return *(volatile __u32 *)&service->in_stage[STAGE_WAITING];
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
	service->in_stage[stage] += wait->weight;
	service->recent[stage] += wait->weight;
	service->count[stage][row_of(wait->epoch)] += wait->weight;
	settle_idle(service, pace, now);
}

static __always_inline void leave(struct service *service, const struct pace *pace, const struct wait *wait, __u64 now)
{
	__u32 stage = wait->stage & STAGE_WAITING;

	turn_epochs(service, pace, now);
	service->in_stage[stage] -= wait->weight;
	if (is_counted(service, wait)) {
		service->recent[stage] -= wait->weight;
		service->count[stage][row_of(wait->epoch)] -= wait->weight;
	}
	settle_idle(service, pace, now);
}

/* All of an earlier epoch that still count were overtaken by this one. */
static __always_inline void overtake(struct service *service, const struct wait *wait)
{
	__u32 back;

	for (back = 1; back < EPOCHS; back++)
		if (service->epoch - (wait->epoch - back) < EPOCHS)
			service->overtaken[row_of(wait->epoch - back)] += wait->weight;
}

/* Only while all are followed: a sample does not see who overtook whom. */
static __always_inline void count_overtakes(struct service *service, const struct wait *wait, __u64 overtakes)
{
	if (wait->weight == 1)
		service->overtakes[bucket_of(overtakes)]++;
}

/* The response has begun of one that has left, after a time of this bucket. */
static __always_inline void count_answer_of(struct service *service, const struct pace *pace, const struct wait *wait, __u32 bucket, __u64 now)
{
	__u64 sojourn = now - wait->since_ns;

	service->answered += wait->weight;
	if (wait->stage == STAGE_SILENT)
		service->answered_silent += wait->weight;
	/* One whose request we did not see says nothing of the server's time. */
	if (wait->stage == STAGE_SILENT && !pace->counts_silent)
		return;
	/* Nor does one whose client took so long that he counts no more. */
	if (wait->turns >= PIECEMEAL && !is_counted(service, wait)) {
		service->answered_piecemeal += wait->weight;
		return;
	}
	if (sojourn < pace->quick_ns)
		service->standing.since_ns = 0;
	if (wait->epoch < service->overtaken_before) {
		/*
		 * By how many is not known any more: if it is so of many, it took too few to be
		 * overtaken.
		 */
		count_overtakes(service, wait, 2 * (__u64)pace->overtaken_at);
		return;
	}
	service->answered_in_turn += wait->weight;
	service->answered_ns = now;
	service->response_ns += sojourn * wait->weight;
	service->responses_us[bucket] += wait->weight;
	service->sojourn_ns = service->sojourn_ns - service->sojourn_ns / 8 + sojourn / 8;
	if (!is_counted(service, wait))
		return;
	overtake(service, wait);
	count_overtakes(service, wait, service->overtaken[row_of(wait->epoch)]);
}

/*
 * The handshake has ended, and took so many us; 0 if that is not known. `weight`: for how many
 * connections this one counts, see weigh().
 */
static __always_inline void begin(struct service *service, const struct pace *pace, struct wait *wait, __u32 weight, __u32 handshake_us,
				 __u64 now)
{
	wait->generation = service->generation;
	wait->weight = weight;
	service->established += weight;
	if (handshake_us)
		service->handshakes_us[bucket_of(handshake_us)] += weight;
	enter(service, pace, wait, STAGE_SILENT, now);
}

/* More of a request has come. */
static __always_inline void go_on(struct service *service, const struct pace *pace, struct wait *wait, __u64 now)
{
	if (wait->generation != service->generation)
		return;
	/*
	 * A byte now and then must not hold a place for ever. But the server can answer only from
	 * the last piece on, or its client's time would be taken for the server's.
	 */
	if (wait->turns >= MAX_TURNS) {
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
	if (count_recent(service, pace) < pace->limit)
		service->standing.since_ns = 0;
	if (is_answered)
		count_answer_of(service, pace, wait, bucket, now);
	else
		service->ended += wait->weight;
}

/* ---- Not under the lock. ---- */

/*
 * How long somebody has waited and nobody was answered; below 0 if that was just now, on another
 * CPU.
 */
static __always_inline __s64 read_stalled_ns(const struct service *service, __u64 now)
{
	__u64 since = service->answered_ns > service->busy_since_ns ? service->answered_ns : service->busy_since_ns;

	return now - since;
}

/*
 * How long connections wait for the server now: as the last ones did, or longer if it has stalled.
 */
static __always_inline __u64 read_sojourn_ns(const struct service *service, __u64 now)
{
	__s64 stalled = read_stalled_ns(service, now), sojourn = service->sojourn_ns;

	return stalled > sojourn ? stalled : sojourn;
}

#endif
