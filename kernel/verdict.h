/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What happens to a segment: a pure function of the policy, the listener's load and the time. No
 * map, no clock, no kernel pointer. The BPF programs include this file, and crates/kernel compiles
 * it for the host.
 *
 * The includer provides __u32, __u64 and bool: vmlinux.h in BPF, <linux/types.h> and <stdbool.h> on
 * the host.
 */
#ifndef TIDEGATE_VERDICT_H
#define TIDEGATE_VERDICT_H

/* What to do with a segment. */
enum verdict {
	VERDICT_ADMIT = 0,	/* leave it to the kernel */
	VERDICT_DROP = 1,	/* say nothing: the client tries again later */
	VERDICT_RESET = 2,	/* answer with RST: the client knows at once */
	VERDICT_COOKIE = 3,	/* SYN stage: answer with SYN/ACK and a cookie of ours, which keeps the client's options */
	VERDICT_KERNEL_COOKIE = 4, /* the same with a cookie that the kernel itself can take back, without options */
};

/*
 * A listener's two queues, and who waits for the server behind them, in connections. Read at the
 * moment of the decision.
 */
struct listener_load {
	__u32 accept_qlen;	/* established, waiting for accept(2) */
	__u32 accept_limit;	/* min(listen backlog, somaxconn) */
	__u32 syn_qlen;		/* request sockets: handshakes in progress */
	__u32 syn_limit;
	__u32 unserved;		/* wait for the server; see service.h */
	__u32 unserved_limit;	/* that the agent has found; 0: none yet */
	__u32 sojourn_us;	/* how long they wait */
	__u32 answers_per_s;	/* that the server can give, as far as is known */
};

/*
 * When a listener has all that it should take, besides a full accept queue, with which the kernel
 * takes nobody.
 */
enum trigger {
	TRIGGER_QUEUE = 0,	/* no sooner: [Shu05] */
	TRIGGER_UNSERVED = 1,	/* so many wait for the server */
	TRIGGER_SOJOURN = 2,	/* they wait longer than a target */
};

/* What counts as full at the SYN stage. */
enum full {
	FULL_ACCEPT_QUEUE = 0,	/* the accept queue has no place now, as in the kernel */
	FULL_RESERVED = 1,	/* every place is taken, or promised to a handshake in progress: reserv of [Shu05] 4.1.2 */
	FULL_RATE = 2,		/* more attempts than a rate: SYN policing, Voigt and others, USENIX 2001 */
	FULL_CLASS = 3,		/* the attempt is of a refused class: persistent dropping, Jamjoom and Shin, SIGCOMM 2003 */
	FULL_ANY_QUEUE = 4,	/* the accept queue or the SYN queue: no-syn-drop of [Shu05] 4.1.5 */
};

/* What becomes of a connection whose peer sends FIN. */
enum on_fin {
	FIN_KEEP = 0,		/* half-closed, as TCP has it */
	FIN_RESET_IDLE = 1,	/* rst-fin of [Shu05] 4.2, but never with bytes that were not read or not acknowledged */
	FIN_RESET = 2,		/* rst-fin: the peer is gone, whatever was under way */
};

/* Of a token bucket. */
struct rate {
	__u32 per_s;			/* above 0 */
	__u32 burst;			/* that may come at once, above 0 */
};

/* What is asked and answered at each stage; all 0 is the stock kernel. */
struct listener_policy {
	enum full full;
	__u32 overbook_percent;		/* FULL_RESERVED: promises for 100 places of the accept queue; 100 is one each */
	struct rate rate;		/* FULL_RATE: of attempts */
	__u32 refused_permille;		/* FULL_CLASS: share of all attempts */
	enum verdict syn_when_full;	/* to a SYN that finds it full, or full by the policy's own question */
	enum verdict ack_when_full;	/* to the end of a handshake that finds the accept queue full */
	enum on_fin on_fin;
	__u32 reserved_slots;		/* last places of the accept queue that only reserved sources get */
	enum trigger trigger;
	__u32 trigger_at;		/* TRIGGER_UNSERVED: connections, 0 is what the agent finds; TRIGGER_SOJOURN: us */
	enum verdict syn_when_syn_queue_full; /* to a SYN that only the SYN queue has no place for */
};

/* A FIN, and the established connection that it is for. All in bytes. */
struct fin {
	__u32 payload;			/* that come with it */
	__u32 ahead;			/* of what was received so far: 0 is in order */
	__u32 unread;			/* received, and not read by the server */
	__u32 unacknowledged;		/* written by the server, and not acknowledged up to this FIN */
};

/* One SYN. */
struct attempt {
	__u64 now_ns;			/* FULL_RATE: any clock that does not step back */
	__u64 schedule_ns;		/* FULL_RATE: state of the listener, 0 at first; see next_schedule() */
	__u32 hash;			/* FULL_CLASS: keyed, of addresses and ports: the same for every retransmission */
	__u32 is_reserved;		/* from a source that must always get in */
	__u32 is_behind_time_wait;	/* its four-tuple is that of a connection in TIME_WAIT here */
	__u32 zero;			/* no hole, as tests hand it over */
};

/*
 * Greater than, as in sk_acceptq_is_full(): listen(fd, N) queues N + 1 connections, so that a
 * backlog of 0 still works (Linux 64a146513f8f). With >= we would refuse one connection early.
 */
static inline bool accept_queue_is_full(const struct listener_load *load)
{
	return load->accept_qlen > load->accept_limit;
}

/*
 * Places of the accept queue that a source may have: the crowd does not get the last ones, but
 * always one. A server that comes back with a smaller backlog would otherwise serve nobody else.
 */
static inline __u64 accept_places(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	__u64 places = (__u64)load->accept_limit + 1;

	if (is_reserved)
		return places;
	return places > policy->reserved_slots ? places - policy->reserved_slots : 1;
}

/*
 * Places of the accept queue that no connection is in, for a source that is not reserved, who may
 * have the fewest; handshakes under way take none of them.
 */
static inline __u64 accept_places_left(const struct listener_policy *policy, const struct listener_load *load)
{
	__u64 places = accept_places(policy, load, 0);

	return places > load->accept_qlen ? places - load->accept_qlen : 0;
}

/*
 * One that waits long says nothing of the others, so there must be several: two at least, and half
 * of what the server answers within the target.
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

/* Reserved sources have as many places more in the server as in the queue before it. */
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
 * As in inet_csk_reqsk_queue_is_full() until Linux 6.14, where the limit itself counts as full;
 * since then (3479c7549fb1) one more fits. We keep to the stricter, so that our cookie comes before
 * either kernel has to think of its own.
 */
static inline bool syn_queue_is_full(const struct listener_load *load)
{
	return load->syn_qlen >= load->syn_limit;
}

/* The kernel would take it, since it knows nothing of reserved places. */
static inline bool is_held_back(const struct listener_policy *policy, const struct listener_load *load, __u32 is_reserved)
{
	return !accept_queue_is_full(load) && load->accept_qlen >= accept_places(policy, load, is_reserved);
}

/* Connections that wait for accept(2) now, or will if every handshake in progress ends. */
static inline __u64 accept_places_claimed(const struct listener_load *load)
{
	return (__u64)load->accept_qlen + load->syn_qlen;
}

/*
 * reserv: a place is promised with every SYN/ACK (of SYNs that are received in one batch, all see
 * the queues before the first), and given back when the handshake ends in the accept queue and
 * accept(2) empties it, or fails. More than 100 percent is for clients so far away that the queue
 * would run empty while their ACKs are under way; then it can overflow.
 */
static inline bool accept_queue_is_promised(const struct listener_policy *policy, const struct listener_load *load,
					   __u32 is_reserved)
{
	/*
	 * Less makes no sense, and may be seen for an instant while the agent changes the policy.
	 */
	__u32 percent = policy->overbook_percent < 100 ? 100 : policy->overbook_percent;

	return accept_places_claimed(load) * 100 >= accept_places(policy, load, is_reserved) * percent;
}

/* Whether anything is to be said about segments that end handshakes. */
static inline bool has_ack_stage(const struct listener_policy *policy)
{
	return policy->ack_when_full != VERDICT_ADMIT || policy->reserved_slots;
}

/*
 * Whether a handshake that starts now may find no place when it ends. Handshakes by the kernel's
 * cookie are in no queue, but it sends cookies only when request sockets alone reach the limit.
 */
static inline bool accept_queue_may_overflow(const struct listener_policy *policy, const struct listener_load *load)
{
	return accept_places_claimed(load) + 1 >= accept_places(policy, load, 0);
}

/*
 * Token bucket, kept as the time at which it will be full again (GCRA, ITU-T I.371 appendix I):
 * each token taken moves that by 1/rate, and there is a token as long as it is less than `burst` of
 * those ahead.
 */
static inline __u64 token_interval_ns(const struct rate *rate)
{
	return 1000000000ull / rate->per_s;
}

/* An empty bucket is the worst there is: what another rate has left behind cannot be worse. */
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

/* The schedule after a token was taken. */
static inline __u64 next_schedule(const struct rate *rate, __u64 now_ns, __u64 schedule_ns)
{
	__u64 from = clamped_schedule(rate, now_ns, schedule_ns);

	if (from < now_ns)
		from = now_ns;
	return from + token_interval_ns(rate);
}

/* No state: whoever is refused is refused again each time it tries. */
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
 * A cookie of ours leaves no trace at the server: what is in TIME_WAIT would answer the end of that
 * handshake, and the kernel lets go of it for one of its own only.
 */
static inline enum verdict unless_behind_time_wait(enum verdict verdict, const struct attempt *attempt)
{
	return attempt->is_behind_time_wait && is_cookie(verdict) ? VERDICT_ADMIT : verdict;
}

/* Whether a SYN may get this answer. */
static inline bool may_answer(const struct listener_policy *policy, enum verdict verdict)
{
	return policy->syn_when_full == verdict || policy->syn_when_syn_queue_full == verdict;
}

/*
 * The SYN queue alone never refuses, but under reserv, where a handshake in progress holds a place.
 * Handshakes in flight fill it at every burst, and there is an answer for that which loses nobody,
 * the SYN cookie; a reset there would refuse far too much. Whose cookie it is, the kernel's or
 * ours, is the policy's.
 */
static inline enum verdict enter_syn_queue(const struct listener_policy *policy, const struct listener_load *load,
					   const struct attempt *attempt)
{
	return syn_queue_is_full(load) ? unless_behind_time_wait(policy->syn_when_syn_queue_full, attempt) : VERDICT_ADMIT;
}

/* Nothing is full: but the last places are for reserved sources. */
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

/* Whether nothing but the server is in the way of an attempt that was refused. */
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
