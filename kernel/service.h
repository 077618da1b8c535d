/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Counts the connections that wait for a server, in the accept queue or inside it. It does not
 * decide: unserved.h does. follow.bpf.h says when a wait begins and ends. No map, no clock, no
 * kernel pointer: crates/kernel compiles this for the host, and crates/pacer tries it in virtual
 * time.
 *
 * A connection may wait for something else than the server: the rest of a request, or an event. It
 * must not hold a place. Later connections overtake it. So connections are counted by the epoch in
 * which they came, and only the last four epochs count.
 *
 * An epoch ends when the oldest of the four is empty or was overtaken. A server that takes requests
 * in order overtakes nobody, however long its queue. If the server stalls, an epoch ends after
 * epoch_ns, because all that wait may wait for something else.
 *
 * The includer provides __u32, __u64, __s64, bool, __always_inline and struct bpf_spin_lock.
 */
#ifndef TIDEGATE_SERVICE_H
#define TIDEGATE_SERVICE_H

#include "histogram.h"
#include "verdict.h"

enum {
	MAX_TURNS = 5,			/* most waits of a connection: its handshake, and four pieces of a request */
	PIECEMEAL = MAX_TURNS + 1,	/* the request came in more pieces */
	EPOCHS = 4,			/* epochs that count; a power of two */
	NS_PER_US = 1000,
	NS_PER_S = 1000000000,
	ALL_PPM = 1000000,
};

/* Facts about a server that the agent measures several times a second. */
struct pace {
	__u64 epoch_ns;			/* longest epoch */
	__u32 overtaken_at;		/* later answers after which a connection waits for something else; above 0 */
	__u32 limit;			/* connections that may wait, if the policy names no number; 0: none yet */
	__u32 completed_ppm;		/* admitted SYNs that become connections, of a million */
	__u16 counts_silent;		/* not 0: STAGE_SILENT waits: the server speaks first, or acknowledges late */
	__u16 follow_one_in;		/* while few wait, one in this many is followed, see weigh(); to 255, 0 as 1 */
	__u32 answers_per_s;		/* rate that it can give, as far as known */
	__u32 gain_per_s;		/* more admitted per second for each free place */
	__u64 quick_ns;			/* a sooner answer proves that no queue stands; 0: unknown yet */
	__u64 burst_ns;			/* time that a queue stands before the first refusal */
	__u64 calm_ns;			/* time after the last refusal until the kernel decides again */
};

/*
 * The time since which as many wait as the limit allows, and no answer was quick; see standing.h.
 */
struct standing {
	__u64 since_ns;			/* start of this window; 0: fewer wait */
	__u64 answered;			/* answers before the window */
	__u64 waiting;			/* connections that count, at its start */
	__u64 inside;			/* connections with a request at its start, whether they count or not */
	__u64 windows;			/* windows before this one */
	__u64 first;			/* `waiting` at the start of the first window */
};

/* The time that an accept queue has been full; see queue_stands() in standing.h. */
struct full_queue {
	__u64 full_ns;
	__u64 looked_ns;
	__u64 idle_ns;			/* the server's idle_ns at the last look */
	__u64 answered;			/* answers before the first of `syns` */
	__u64 syns;			/* SYNs that found it full since full_ns was 0 */
	__u64 waiting;			/* connections that waited at the first of `syns` */
};

/* The reason why a connection waits. */
enum stage {
	STAGE_SILENT,			/* its client has sent nothing yet */
	STAGE_WAITING,			/* a request has arrived */
	STAGES,
};

/*
 * One connection, from the end of its handshake to the first byte of the response. Later the struct
 * belongs to no connection.
 */
struct wait {
	__u64 since_ns;			/* its wait began, or its last piece came */
	__u64 epoch;
	__u64 received;			/* bytes received by then */
	__u32 index;			/* index of struct service */
	__u32 generation;		/* as in struct service */
	__u16 stage;			/* enum stage */
	__u8 turns;			/* waits begun, or PIECEMEAL */
	__u8 weight;			/* number of connections that it stands for */
	__u32 calls;			/* flags that the guard set in the socket, and nobody before it */
};

/*
 * One server, on all CPUs together: a decision must not add up a row for each CPU. Sums begin when
 * the guard does: established = answered + ended + in_stage. The lock covers all fields but those
 * marked below.
 */
struct service {
	__u64 epoch;			/* begins at EPOCHS */
	__u64 epoch_ends_ns;
	__u64 overtaken[EPOCHS];	/* answers to connections of later epochs */
	__u64 overtaken_before;		/* earlier epochs were overtaken */
	__u64 established;
	__u64 answered;
	__u64 answered_in_turn;		/* of `answered`: not overtaken before; the measures below are of these */
	__u64 answered_silent;		/* of `answered`: no byte of a request was seen */
	__u64 answered_piecemeal;	/* of `answered`: in many pieces, so slowly that they counted no more */
	__u64 ended;			/* closed, reset or timed out without an answer */
	__u64 idle_ns;			/* time without a waiting connection, up to idle_since_ns */
	__u64 idle_since_ns;		/* 0: a connection waits */
	__u64 busy_since_ns;
	__u64 answered_ns;		/* time of the last of these */
	__u64 sojourn_ns;		/* of the last answers; each counts an eighth */
	__u64 response_ns;		/* sum over `answered_in_turn`, from the request or the handshake's end */
	__u64 responses_us[BUCKETS];
	__u64 overtakes[BUCKETS];	/* answers, by the number of later connections that came first */
	__u64 handshakes_us[BUCKETS];	/* of `established`: round trips, where known */
	/* SYNs change the words from here to schedule_ns without the lock. */
	struct standing standing;
	struct full_queue full_queue;
	__u64 waiting_at_onset;		/* connections that waited when the last standing queue began */
	__u64 refused_ns;		/* time of the last refusal */
	__u64 schedule_ns;		/* of the tokens, see admission_rate() in unserved.h */
	__u32 in_stage[STAGES];		/* connections, however long they have waited */
	__u32 recent[STAGES];		/* connections in the epochs that count */
	__u32 count[STAGES][EPOCHS];
	__u32 generation;		/* changes with the server: connections of the last one are forgotten */
	struct bpf_spin_lock lock;
};

_Static_assert(sizeof(struct pace) == 4 * sizeof(__u64) + 6 * sizeof(__u32), "no padding: user space writes raw words");
_Static_assert(sizeof(struct service) == __builtin_offsetof(struct service, lock) + sizeof(struct bpf_spin_lock), "nor here");

/* ---- Under the lock. ---- */

static __always_inline bool is_idle(const struct service *service, const struct pace *pace)
{
	return !service->recent[STAGE_WAITING] && (!pace->counts_silent || !service->recent[STAGE_SILENT]);
}

/* Updates the idle time after a change. */
static __always_inline void settle_idle(struct service *service, const struct pace *pace, __u64 now)
{
	bool is = is_idle(service, pace), was = service->idle_since_ns;

	if (is == was)
		return;
	if (is) {
		service->idle_since_ns = now;
		return;
	}
	/* `now` may be older: a CPU reads its clock before it takes the lock. */
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

/* Connections that wait and count. */
static __always_inline __u32 count_recent(const struct service *service, const struct pace *pace)
{
	__u32 waiting = *(volatile __u32 *)&service->recent[STAGE_WAITING];

	return pace->counts_silent ? waiting + *(volatile __u32 *)&service->recent[STAGE_SILENT] : waiting;
}

/*
 * While few wait, one connection in `follow_one_in` is followed, by chance. It stands for all of
 * them.
 */
static __always_inline __u32 followed_one_in(const struct service *service, const struct pace *pace)
{
	return pace->follow_one_in && count_recent(service, pace) < pace->limit / 4 ? pace->follow_one_in : 1;
}

/* Connections that a new one stands for; 0: it is not followed. Needs no lock. */
static __always_inline __u32 weigh(const struct service *service, const struct pace *pace, __u32 random)
{
	__u32 one_in = followed_one_in(service, pace);

	return random % one_in ? 0 : one_in;
}

static __always_inline bool is_oldest_overtaken(const struct service *service, __u64 overtaken_at)
{
	return service->overtaken[row_of(service->epoch + 1)] >= overtaken_at;
}

/* Turning the epoch then forgets no connection. */
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
 * Begins the next epoch if this one is over. Catches up on the epochs that ended without any event.
 */
static __always_inline void turn_epochs(struct service *service, const struct pace *pace, __u64 now)
{
	/* One answer stands for several, so this many times as many are needed. */
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

/* Connections with a request, however long they have waited. */
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

/* This answer overtakes all of earlier epochs that still count. */
static __always_inline void overtake(struct service *service, const struct wait *wait)
{
	__u32 back;

	for (back = 1; back < EPOCHS; back++)
		if (service->epoch - (wait->epoch - back) < EPOCHS)
			service->overtaken[row_of(wait->epoch - back)] += wait->weight;
}

/* Counts only while all are followed: a sample does not see each overtaking. */
static __always_inline void count_overtakes(struct service *service, const struct wait *wait, __u64 overtakes)
{
	if (wait->weight == 1)
		service->overtakes[bucket_of(overtakes)]++;
}

/* Counts the first byte of a response. The connection has left; `bucket` is of its wait. */
static __always_inline void count_answer_of(struct service *service, const struct pace *pace, const struct wait *wait, __u32 bucket, __u64 now)
{
	__u64 sojourn = now - wait->since_ns;

	service->answered += wait->weight;
	if (wait->stage == STAGE_SILENT)
		service->answered_silent += wait->weight;
	/* Without its request the wait says nothing about the server's time. */
	if (wait->stage == STAGE_SILENT && !pace->counts_silent)
		return;
	/* Neither does the wait of a client so slow that it counts no more. */
	if (wait->turns >= PIECEMEAL && !is_counted(service, wait)) {
		service->answered_piecemeal += wait->weight;
		return;
	}
	if (sojourn < pace->quick_ns)
		service->standing.since_ns = 0;
	if (wait->epoch < service->overtaken_before) {
		/*
		 * The number of overtakings is lost. Twice `overtaken_at` makes the agent raise a
		 * number that was too low for many.
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

/* The handshake has ended. `handshake_us`: its duration, 0: unknown. `weight`: see weigh(). */
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

/* More of a request has arrived. */
static __always_inline void go_on(struct service *service, const struct pace *pace, struct wait *wait, __u64 now)
{
	if (wait->generation != service->generation)
		return;
	/*
	 * A client that sends a byte now and then must not hold a place for ever. But the server
	 * can answer only after the last piece. The client's time must not count as the server's.
	 */
	if (wait->turns >= MAX_TURNS) {
		wait->since_ns = now;
		wait->turns = PIECEMEAL;
		return;
	}
	leave(service, pace, wait, now);
	enter(service, pace, wait, STAGE_WAITING, now);
}

/* The response begins, after a wait of this bucket, or the connection ends without one. */
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
 * Time that connections have waited without any answer. Below 0 if another CPU saw an answer just
 * now.
 */
static __always_inline __s64 read_stalled_ns(const struct service *service, __u64 now)
{
	__u64 since = service->answered_ns > service->busy_since_ns ? service->answered_ns : service->busy_since_ns;

	return now - since;
}

/* Time that connections wait for the server now: as the last ones did, or longer in a stall. */
static __always_inline __u64 read_sojourn_ns(const struct service *service, __u64 now)
{
	__s64 stalled = read_stalled_ns(service, now), sojourn = service->sojourn_ns;

	return stalled > sojourn ? stalled : sojourn;
}

#endif
