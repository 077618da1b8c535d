/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The decision about a segment: a pure function of the policy, the listener's load and the time. No
 * map, no clock, no kernel pointer. The BPF programs include this file, and crates/kernel compiles
 * it for the host.
 *
 * The includer provides __u32, __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h> on
 * the host.
 */
#ifndef TIDEGATE_VERDICT_H
#define TIDEGATE_VERDICT_H

/* An answer to a segment. */
enum verdict {
	VERDICT_ADMIT = 0,	/* leave it to the kernel */
	VERDICT_DROP = 1,	/* say nothing: the client tries again later */
	VERDICT_RESET = 2,	/* answer with RST: the client knows at once */
	VERDICT_COOKIE = 3,	/* SYN stage: SYN/ACK with the guard's cookie, which keeps the client's options */
	VERDICT_KERNEL_COOKIE = 4, /* SYN/ACK with a cookie that the kernel can take back, without options */
};

/*
 * A listener's two queues, and the connections that wait for the server behind them. The program
 * reads the queues at the moment of the decision.
 */
struct listener_load {
	__u32 accept_qlen;	/* established, waiting for accept(2) */
	__u32 accept_limit;	/* min(listen backlog, somaxconn) */
	__u32 syn_qlen;		/* request sockets: handshakes in progress */
	__u32 syn_limit;
	__u32 unserved;		/* connections that wait for the server; see service.h */
	__u32 unserved_limit;	/* found by the agent; 0: none yet */
	__u32 sojourn_us;	/* time that they wait */
	__u32 answers_per_s;	/* rate that the server can give, as far as known */
};

/*
 * The reason to refuse before the accept queue is full. A full accept queue always refuses: the
 * kernel then takes nobody.
 */
enum trigger {
	TRIGGER_QUEUE = 0,	/* none: only a full queue refuses, [Shu05] */
	TRIGGER_UNSERVED = 1,	/* a number of connections wait for the server */
	TRIGGER_SOJOURN = 2,	/* they wait longer than a target */
};

/* The meaning of "full" at the SYN stage. */
enum full {
	FULL_ACCEPT_QUEUE = 0,	/* the accept queue has no place, as in the kernel */
	FULL_RESERVED = 1,	/* each place is taken, or promised to a handshake: reserv of [Shu05] 4.1.2 */
	FULL_RATE = 2,		/* attempts exceed a rate: SYN policing, Voigt and others, USENIX 2001 */
	FULL_CLASS = 3,		/* the attempt's class is refused: persistent dropping, Jamjoom/Shin, SIGCOMM 2003 */
	FULL_ANY_QUEUE = 4,	/* the accept queue or the SYN queue: no-syn-drop of [Shu05] 4.1.5 */
};

/* The fate of a connection whose peer sends FIN. */
enum on_fin {
	FIN_KEEP = 0,		/* half-closed, as in TCP */
	FIN_RESET_IDLE = 1,	/* rst-fin of [Shu05] 4.2, but never with unread or unacknowledged bytes */
	FIN_RESET = 2,		/* rst-fin: the peer is gone, whatever was in progress */
};

/* A token bucket. */
struct rate {
	__u32 per_s;			/* above 0 */
	__u32 burst;			/* most tokens that are spent at once, above 0 */
};

/* A question and an answer for each stage. All 0 is the stock kernel. */
struct listener_policy {
	enum full full;
	__u32 overbook_percent;		/* FULL_RESERVED: promises per 100 places of the accept queue; at least 100 */
	struct rate rate;		/* FULL_RATE: attempts */
	__u32 refused_permille;		/* FULL_CLASS: share of all attempts */
	enum verdict syn_when_full;	/* answer to a SYN when `full` or `trigger` says full */
	enum verdict ack_when_full;	/* answer to the end of a handshake when the accept queue is full */
	enum on_fin on_fin;
	__u32 reserved_slots;		/* last places of the accept queue, for reserved sources only */
	enum trigger trigger;
	__u32 trigger_at;		/* TRIGGER_UNSERVED: connections, 0: the agent finds it; TRIGGER_SOJOURN: us */
	enum verdict syn_when_syn_queue_full; /* answer to a SYN when only the SYN queue is full */
};

/* A FIN and its established connection. All in bytes. */
struct fin {
	__u32 payload;			/* data in the FIN's segment */
	__u32 ahead;			/* distance from rcv_nxt; 0: in order */
	__u32 unread;			/* received, but the server has not read them */
	__u32 unacknowledged;		/* written by the server, but not acknowledged up to this FIN */
};

/* One SYN. */
struct attempt {
	__u64 now_ns;			/* FULL_RATE: from any clock that does not step back */
	__u64 schedule_ns;		/* FULL_RATE: the listener's state, 0 at first; see next_schedule() */
	__u32 hash;			/* FULL_CLASS: keyed, of addresses and ports; a retransmission has the same */
	__u32 is_reserved;		/* the source must always get in */
	__u32 is_behind_time_wait;	/* the SYN reuses the four-tuple of a connection in TIME_WAIT here */
	__u32 zero;			/* fills the hole, because tests hand the struct over */
};

/*
 * Greater than, as in sk_acceptq_is_full(). A listen(fd, N) queues N + 1 connections, so that a
 * backlog of 0 still works (Linux 64a146513f8f). With >= the guard would refuse one connection
 * early.
 */
static inline bool accept_queue_is_full(const struct listener_load *load)
{
	return load->accept_qlen > load->accept_limit;
}

/*
 * Places of the accept queue that a source may use. The crowd gets at least one. Otherwise a
 * restart with a smaller backlog could leave only reserved places.
 */
static inline __u64 accept_places(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	__u64 places = (__u64)load->accept_limit + 1;

	if (is_reserved)
		return places;
	return places > policy->reserved_slots ? places - policy->reserved_slots : 1;
}

/*
 * Free places of the accept queue for a source that is not reserved, which may use the fewest.
 * Handshakes in progress take no place here.
 */
static inline __u64 accept_places_left(const struct listener_policy *policy, const struct listener_load *load)
{
	__u64 places = accept_places(policy, load, 0);

	return places > load->accept_qlen ? places - load->accept_qlen : 0;
}

/*
 * One connection that waits long says nothing about the others. So at least two must wait, and at
 * least half of what the server answers within the target.
 */
static inline bool sojourn_is_long(const struct listener_policy *policy, const struct listener_load *load)
{
	__u64 usual = (__u64)load->answers_per_s * policy->trigger_at / 2000000;

	return load->sojourn_us > policy->trigger_at && load->unserved >= (usual > 2 ? usual : 2);
}

static inline bool is_limit_found(const struct listener_policy *policy)
{
	return policy->trigger == TRIGGER_UNSERVED && !policy->trigger_at;
}

/*
 * True when the server has all that it should take. Reserved sources get `reserved_slots` more, as
 * in the accept queue.
 */
static inline bool server_is_full(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	__u32 limit = policy->trigger_at ? policy->trigger_at : load->unserved_limit;
	__u64 places = (__u64)limit + (is_reserved ? policy->reserved_slots : 0);

	switch (policy->trigger) {
	case TRIGGER_UNSERVED:
		return limit && load->unserved >= places;
	case TRIGGER_SOJOURN:
		return !is_reserved && sojourn_is_long(policy, load);
	default:
		return 0;
	}
}

static inline bool listener_is_full(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	return accept_queue_is_full(load) || server_is_full(policy, load, is_reserved);
}

/*
 * As in inet_csk_reqsk_queue_is_full() until Linux 6.14: the limit itself counts as full. Since
 * then (3479c7549fb1) one more fits. The stricter rule lets the guard's cookie come before the
 * kernel's, on either kernel.
 */
static inline bool syn_queue_is_full(const struct listener_load *load)
{
	return load->syn_qlen >= load->syn_limit;
}

/* True when only reserved sources may use the places left. The kernel would take the connection. */
static inline bool is_held_back(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	return !accept_queue_is_full(load) && load->accept_qlen >= accept_places(policy, load, is_reserved);
}

/* Connections that wait for accept(2), or will if every handshake in progress ends. */
static inline __u64 accept_places_claimed(const struct listener_load *load)
{
	return (__u64)load->accept_qlen + load->syn_qlen;
}

/*
 * reserv: each SYN/ACK promises a place. SYNs received in one batch all see the queues before the
 * first of them. The promise ends when accept(2) empties the place, or the handshake fails.
 *
 * More than 100 percent is for far clients: the queue would run empty before their ACKs arrive.
 * Then the queue can overflow.
 */
static inline bool accept_queue_is_promised(const struct listener_policy *policy, const struct listener_load *load,
					   __u32 is_reserved)
{
	/* Less than 100 is seen for an instant while the agent changes the policy. */
	__u32 percent = policy->overbook_percent < 100 ? 100 : policy->overbook_percent;

	return accept_places_claimed(load) * 100 >= accept_places(policy, load, is_reserved) * percent;
}

/* True when the policy has an answer to segments that end handshakes. */
static inline bool has_ack_stage(const struct listener_policy *policy)
{
	return policy->ack_when_full != VERDICT_ADMIT || policy->reserved_slots;
}

/*
 * True when a handshake that starts now may find no place at its end. A handshake by the kernel's
 * cookie is in no queue. But the kernel sends cookies only when request sockets alone reach the
 * limit.
 */
static inline bool accept_queue_may_overflow(const struct listener_policy *policy, const struct listener_load *load)
{
	return accept_places_claimed(load) + 1 >= accept_places(policy, load, 0);
}

/*
 * A token bucket, stored as the time when it is full again (GCRA, ITU-T I.371 appendix I). Each
 * token moves that time by 1/rate. A token is left while the time is less than `burst` of those
 * ahead.
 */
static inline __u64 token_interval_ns(const struct rate *rate)
{
	return 1000000000ull / rate->per_s;
}

/*
 * The schedule under this rate. No schedule is worse than an empty bucket, whatever another rate
 * has left.
 */
static inline __u64 clamped_schedule(const struct rate *rate, __u64 now_ns, __u64 schedule_ns)
{
	__u64 empty = now_ns + token_interval_ns(rate) * rate->burst;

	return schedule_ns < empty ? schedule_ns : empty;
}

static inline bool has_token(const struct rate *rate, __u64 now_ns, __u64 schedule_ns)
{
	return clamped_schedule(rate, now_ns, schedule_ns) + token_interval_ns(rate) <=
	       now_ns + token_interval_ns(rate) * rate->burst;
}

/* The schedule after one token was taken. */
static inline __u64 next_schedule(const struct rate *rate, __u64 now_ns, __u64 schedule_ns)
{
	__u64 from = clamped_schedule(rate, now_ns, schedule_ns);

	if (from < now_ns)
		from = now_ns;
	return from + token_interval_ns(rate);
}

/* The class needs no state, because the same hash is refused at every retransmission. */
static inline bool is_refused_class(const struct listener_policy *policy, const struct attempt *attempt)
{
	return (__u64)attempt->hash * 1000 >> 32 < policy->refused_permille;
}

static inline bool syn_stage_is_full(const struct listener_policy *policy, const struct listener_load *load,
				    const struct attempt *attempt)
{
	switch (policy->full) {
	case FULL_RESERVED:
		return listener_is_full(policy, load, attempt->is_reserved) ||
		       accept_queue_is_promised(policy, load, attempt->is_reserved);
	case FULL_RATE:
		return !attempt->is_reserved && !has_token(&policy->rate, attempt->now_ns, attempt->schedule_ns);
	case FULL_CLASS:
		return !attempt->is_reserved && is_refused_class(policy, attempt);
	case FULL_ANY_QUEUE:
		return listener_is_full(policy, load, attempt->is_reserved) || syn_queue_is_full(load);
	default:
		return listener_is_full(policy, load, attempt->is_reserved);
	}
}

static inline bool is_cookie(enum verdict verdict)
{
	return verdict == VERDICT_COOKIE || verdict == VERDICT_KERNEL_COOKIE;
}

/*
 * Makes no cookie for a SYN behind TIME_WAIT. A cookie leaves no trace at the server. So the socket
 * in TIME_WAIT would answer the end of the handshake. The kernel removes that socket only if it
 * answers the SYN itself.
 */
static inline enum verdict unless_behind_time_wait(enum verdict verdict, const struct attempt *attempt)
{
	return attempt->is_behind_time_wait && is_cookie(verdict) ? VERDICT_ADMIT : verdict;
}

/* True when the policy may answer a SYN with this verdict. */
static inline bool may_answer(const struct listener_policy *policy, enum verdict verdict)
{
	return policy->syn_when_full == verdict || policy->syn_when_syn_queue_full == verdict;
}

/*
 * The SYN queue alone never refuses, except under reserv, where a handshake in progress holds a
 * place. Handshakes in flight fill it at every burst, and a reset would refuse far too many. The
 * SYN cookie loses nobody; the policy chooses the kernel's or the guard's.
 */
static inline enum verdict enter_syn_queue(const struct listener_policy *policy, const struct listener_load *load,
					   const struct attempt *attempt)
{
	return syn_queue_is_full(load) ? unless_behind_time_wait(policy->syn_when_syn_queue_full, attempt) : VERDICT_ADMIT;
}

/* No queue is full, but the last places are for reserved sources. */
static inline enum verdict keep_reserved(const struct listener_policy *policy, const struct listener_load *load,
					 const struct attempt *attempt)
{
	if (!is_held_back(policy, load, attempt->is_reserved))
		return enter_syn_queue(policy, load, attempt);
	return policy->syn_when_full == VERDICT_ADMIT ? VERDICT_DROP : unless_behind_time_wait(policy->syn_when_full, attempt);
}

/* SYN stage: may this attempt start? */
static inline enum verdict admit_syn(const struct listener_policy *policy, const struct listener_load *load,
				     const struct attempt *attempt)
{
	if (syn_stage_is_full(policy, load, attempt))
		return unless_behind_time_wait(policy->syn_when_full, attempt);
	return keep_reserved(policy, load, attempt);
}

/* True when a refused attempt was refused because of the server alone. */
static inline bool is_refused_by_server_alone(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	if (policy->full == FULL_RESERVED && accept_queue_is_promised(policy, load, is_reserved))
		return 0;
	return server_is_full(policy, load, is_reserved) && !accept_queue_is_full(load) && !is_held_back(policy, load, is_reserved);
}

/*
 * ACK stage: may this handshake finish? The kernel drops the segment when the accept queue is full.
 */
static inline enum verdict admit_ack(const struct listener_policy *policy, const struct listener_load *load,
				     __u32 is_reserved)
{
	if (accept_queue_is_full(load))
		return policy->ack_when_full;
	if (!is_held_back(policy, load, is_reserved))
		return VERDICT_ADMIT;
	return policy->ack_when_full == VERDICT_ADMIT ? VERDICT_DROP : policy->ack_when_full;
}

/* FIN stage: may the peer half-close? VERDICT_RESET destroys the connection at both ends. */
static inline enum verdict admit_fin(const struct listener_policy *policy, const struct fin *fin)
{
	bool is_idle = !fin->unread && !fin->unacknowledged;

	if (fin->payload || fin->ahead)
		return VERDICT_ADMIT;
	if (policy->on_fin == FIN_RESET || (policy->on_fin == FIN_RESET_IDLE && is_idle))
		return VERDICT_RESET;
	return VERDICT_ADMIT;
}

#endif
