/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Parts of every root qdisc of Tidegate: interface, rate, counts, and a trace for a replay. It
 * decides about no packet. Each interface has programs and maps of its own. The counters need no
 * atomics, because the kernel holds the qdisc's lock.
 *
 * The includer provides vmlinux.h, bpf_helpers.h and qdisc.bpf.h.
 */
#ifndef TIDEGATE_ROOT_BPF_H
#define TIDEGATE_ROOT_BPF_H

enum {
	MAX_DRAINED = 1 << 23,			/* packets at once; the limit of bpf_for() */
	WORDS_BYTES = 512,			/* with a zero at the end; longer text is cut */
};

#define BIT_NS_PER_BYTE_S 8000000000ull		/* 8 bits in a byte, 10^9 ns in a second */
#define MAX_LATE_NS 1000000ull			/* a timer this late loses no bandwidth */

/* The reason of a drop. The numbers are those of DropReason in crates/aqm. */
enum drop_reason {
	DROP_TAIL = 0,
	DROP_EARLY = 1,
	DROP_FORCED = 2,
	DROP_PUSHED_OUT = 4,
	DROP_PROTECTED_SHARE = 6,
	DROP_FLOW_LIMIT = 8,
	DROP_REASONS = 9,
	NO_DROP = DROP_REASONS,
};

/* Settings, fixed before the qdisc is made. */
struct root_config {
	__u64 bits_per_s;			/* limit; 0: as fast as the interface takes it */
	__u32 ifindex;
	__u32 netns_inode;			/* namespace of the interface */
	__u32 is_replayed;			/* not 0: fill `trace` */
	__u32 reserved;
	char words[WORDS_BYTES];		/* for people: the configuration, and tc's line of the former qdisc */
	char replaced[WORDS_BYTES];
};

/* A number of packets and their bytes. */
struct length {
	__u64 bytes;
	__u64 pkts;
};

/* arrived = sent + dropped + unallocated + thrown_away + waiting, in packets and in bytes. */
struct root_state {
	struct length arrived;
	struct length sent;
	struct length unallocated;		/* dropped because there was no memory to queue it */
	struct length thrown_away;		/* waited when the interface went down or the qdisc was removed */
	__u64 dropped[DROP_REASONS];		/* packets */
	__u64 dropped_bytes;
	__u64 next_send_ns;			/* the rate allows no packet before */
	__u64 traced;				/* number of events, also of those that `trace` has no room for */
	__u32 handle;				/* of the qdisc */
	__u32 is_attached;			/* from init to destroy: no other qdisc may use these maps */
};

enum traced {
	TRACED_ARRIVED = 0,
	TRACED_SENT = 1,
	TRACED_DROPPED = 2,
};

struct root_event {
	__u64 time_ns;				/* the time that the decision was given */
	__u64 rank;				/* of an arrival: its rank among the flows, and its flow; or 0 */
	__u64 flow;
	__u32 packet;				/* number of the packet by arrival, from 0 */
	__u32 bytes;
	__u32 what;				/* enum traced */
	__u32 detail;				/* of an arrival: enum packet_kind; of a drop: enum drop_reason */
};

_Static_assert(sizeof(struct root_state) % sizeof(__u64) == 0, "user space reads raw words");
_Static_assert(sizeof(struct root_event) == 40, "no padding: user space copies raw bytes");

/* User space sets the size: as many events as it wants to replay. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct root_event);
} trace SEC(".maps");

static __always_inline void note(const struct root_config *config, struct root_state *state, const struct root_event *what)
{
	struct root_event *event;
	__u32 index;

	if (!config->is_replayed)
		return;
	index = state->traced++;
	event = bpf_map_lookup_elem(&trace, &index);
	if (event)
		*event = *what;
}

static __always_inline void add(struct length *length, __u32 bytes)
{
	length->pkts++;
	length->bytes += bytes;
}

static __always_inline void take(struct length *length, __u32 bytes)
{
	length->pkts--;
	length->bytes -= bytes;
}

/* Counts the packets that wait, for tc. */
static __always_inline void enter_qdisc(struct Qdisc *sch, __u32 bytes)
{
	sch->q.qlen++;
	sch->qstats.backlog += bytes;
}

static __always_inline void leave_qdisc(struct Qdisc *sch, __u32 bytes)
{
	sch->q.qlen--;
	sch->qstats.backlog -= bytes;
}

static __always_inline void count_drop(struct root_state *state, struct Qdisc *sch, enum drop_reason reason, __u32 bytes)
{
	if (reason < DROP_REASONS)
		state->dropped[reason]++;
	state->dropped_bytes += bytes;
	sch->qstats.drops++;
}

/* ---- The rate. ---- */

/* True when the rate allows a packet now. If not, the kernel asks again when it does. */
static __always_inline bool may_send(const struct root_config *config, const struct root_state *state, struct Qdisc *sch,
				     __u64 now_ns)
{
	if (!config->bits_per_s || now_ns >= state->next_send_ns)
		return true;
	bpf_qdisc_watchdog_schedule(sch, state->next_send_ns, 0);
	return false;
}

static __always_inline void spend_time(const struct root_config *config, struct root_state *state, __u32 bytes, __u64 now_ns)
{
	__u64 begin_ns = state->next_send_ns;

	if (!config->bits_per_s)
		return;
	if (begin_ns + MAX_LATE_NS < now_ns)
		begin_ns = now_ns - MAX_LATE_NS;
	state->next_send_ns = begin_ns + bytes * BIT_NS_PER_BYTE_S / config->bits_per_s;
}

/* ---- Start and end. ---- */

/* False for another device. A second qdisc there, made at the same time, would share the maps. */
static __always_inline bool is_own_device(const struct root_config *config, const struct Qdisc *sch)
{
	const struct net_device *device = sch->dev_queue->dev;

	return (__u32)device->ifindex == config->ifindex && device->nd_net.net->ns.inum == config->netns_inode;
}

/* The result of `init`. */
static __always_inline int begin_root(const struct root_config *config, struct root_state *state, const struct Qdisc *sch)
{
	if (state->is_attached || !is_own_device(config, sch))
		return -EBUSY;
	state->handle = sch->handle;
	state->is_attached = 1;
	return 0;
}

/*
 * The kernel calls `destroy` also for a qdisc that init refused. That has another handle or
 * interface.
 */
static __always_inline void end_root(const struct root_config *config, struct root_state *state, const struct Qdisc *sch)
{
	if (is_own_device(config, sch) && state->handle == sch->handle)
		state->is_attached = 0;
}

/* Counts all waiting packets, `waiting`, as thrown away. */
static __always_inline void reset_root(struct root_state *state, const struct length *waiting, struct Qdisc *sch)
{
	state->thrown_away.pkts += waiting->pkts;
	state->thrown_away.bytes += waiting->bytes;
	state->next_send_ns = 0;
	sch->q.qlen = 0;
	sch->qstats.backlog = 0;
}

#endif
