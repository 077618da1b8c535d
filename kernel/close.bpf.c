// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Moves TIME_WAIT from a server that closes first to its client [FTY97]. The programs run at tc
 * ingress and egress of the client's interface, and close.h decides. A segment that closes nothing
 * costs a look at its headers and at one byte of `marks`.
 *
 * A segment with IP options, a VLAN tag, or a TCP option of MD5, AO or MPTCP passes unchanged. So
 * does one that finds a map full.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "segment.bpf.h"
#include "hook.bpf.h"
#include "lookup.bpf.h"
#include "options.bpf.h"
#include "answer.bpf.h"
#include "option.bpf.h"
#include "close.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum {
	OPTION_MD5 = 19,		/* RFC 2385 */
	OPTION_AUTHENTICATION = 29,	/* RFC 5925 */
	OPTION_MULTIPATH = 30,		/* RFC 8684 */
	MAX_DESTINATIONS = 64,
	MARKS_LAST = 2,			/* a mark is valid for this many further generations */
	MAX_CGROUP_DEPTH = 32,
	NO_WAKEUP = 1,			/* BPF_RB_NO_WAKEUP of include/uapi/linux/bpf.h */
};

/* ---- Fixed at load. ---- */

const volatile __u32 way = 0;			/* enum close_way; the agent always sets it */
const volatile __u32 is_dry_run = 1;
const volatile __u64 quarantine_ns = 0;		/* if both ends have timestamps */
const volatile __u64 long_quarantine_ns = 0;	/* if an end has none */
const volatile __u64 cgroup = 0;		/* id: only sockets of this group; 0: of any */
const volatile __u32 must_ask = 0;		/* only sockets that set TIDEGATE_CLOSE to 1 */
/* Cookie of our network namespace: the setsockopt hook sees sockets of the whole host. */
const volatile __u64 netns_cookie = 0;

/* ---- Destinations of the connections that we handle. ---- */

struct destination {
	__u32 bits;				/* prefix length, over the three fields below */
	__be16 port;
	__u16 reserved;
	struct address address;
};

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_DESTINATIONS);
	__type(key, struct destination);
	__type(value, __u32);			/* index into close_counts */
} destinations SEC(".maps");

/* ---- Counters of each destination. ---- */

struct close_counts {
	__u64 noted;				/* swap: closes that the server began */
	__u64 answered;				/* last ACKs of a server that a RST answered */
	__u64 held;				/* hold: FINs that were held */
	__u64 idle;				/* hold: FINs passed: the client had read all */
	__u64 released;				/* held FINs that entered with the client's own */
	__u64 given_up;				/* held FINs that the server repeated */
	__u64 late;				/* held FINs that could not enter at the close */
	__u64 resets;				/* hold: ACKs after the first RST, sent as another */
	__u64 quarantined;			/* SYNs dropped: their ports are in quarantine */
	__u64 signed_or_joined;			/* closes with MD5, AO, MPTCP or bad options */
	__u64 full;				/* closes that found a map full */
	__u64 failed;				/* segments that the kernel did not change or send */
	__u64 overdue;				/* held FINs that the agent let in by itself */
	__u64 backed_off;			/* FINs that passed: too many were held in vain */
	__u64 unchecked;			/* FINs that passed: the NIC did not check them */
};

/* crates/close/src/program.rs reads the fields by their number. */
_Static_assert(sizeof(struct close_counts) == 15 * sizeof(__u64), "counts");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_DESTINATIONS);
	__type(key, __u32);
	__type(value, struct close_counts);
} close_counts SEC(".maps");

/* ---- State of connections. ---- */

/* Four-tuple of a connection, as the client sees it. */
struct ends {
	struct address local;
	struct address remote;
	__be16 local_port;
	__be16 remote_port;
};

/* Connections whose last FIN has left. A full map forgets the least recently used. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 262144);
	__type(key, struct ends);
	__type(value, struct last_ack);
} last_acks SEC(".maps");

/* swap: end of a four-tuple's quarantine, ns of bpf_ktime_get_ns(). The agent deletes old ones. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1048576);
	__type(key, struct ends);
	__type(value, __u64);
} quarantine SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hold);
} holds SEC(".maps");

/* Value of TIDEGATE_CLOSE that the socket's program has set. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} asked SEC(".maps");

/* hold: report to the agent that a FIN is held. */
struct held_fin {
	struct ends ends;
	__u32 seq;				/* of the FIN */
	__u32 ack;
	__u32 ifindex;
	__be32 timestamps[2];			/* value, echo; both 0: the FIN has none */
	__be16 window;
	__u8 mac[12];				/* destination, source */
	__u16 reserved;
	__u64 at_ns;				/* when it was held, by bpf_ktime_get_ns() */
};

/* crates/close/src/held.rs reads the fields by their offset. */
_Static_assert(sizeof(struct ends) == 36 && __builtin_offsetof(struct held_fin, ifindex) == 44 &&
	       __builtin_offsetof(struct held_fin, window) == 56 && __builtin_offsetof(struct held_fin, mac) == 58 &&
	       __builtin_offsetof(struct held_fin, at_ns) == 72 && sizeof(struct held_fin) == 80, "held_fin");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} held_fins SEC(".maps");

/* The agent writes this about once a second. */
struct control {
	/*
	 * End of the lease, ns of bpf_ktime_get_ns(). After it the programs hold no FIN and answer
	 * no last ACK. Before Linux 6.6 they outlive an agent that is killed.
	 */
	__u64 lease_until_ns;
	/* Number of the half minute, from 1 to 255 and again from 1. 0: the agent has not begun. */
	__u32 generation;
	__u32 reserved;
	__u64 backed_off;			/* bit per destination: hold no FIN there */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct control);
} controls SEC(".maps");

/* Generation in which `last_acks` last got a connection of this local port; 0: in none. */
__u8 marks[65536] = {};

static __always_inline const struct control *control(void)
{
	__u32 only = 0;

	return bpf_map_lookup_elem(&controls, &only);
}

static __always_inline __u8 generation(void)
{
	const struct control *now = control();

	return now ? now->generation : 0;
}

static __always_inline bool is_leased(void)
{
	const struct control *now = control();

	return now && bpf_ktime_get_ns() < now->lease_until_ns;
}

static __always_inline bool is_backed_off(__u32 destination)
{
	const struct control *now = control();

	return now && now->backed_off >> (destination % MAX_DESTINATIONS) & 1;
}

/* The mask is for the verifier of Linux 6.1: it does not see that bpf_ntohs() gives 16 bits. */
static __always_inline __u8 *mark_of(__be16 local_port)
{
	__u32 index = bpf_ntohs(local_port);

	barrier_var(index);
	return &marks[index & 0xffff];
}

static __always_inline void mark(__be16 local_port)
{
	*mark_of(local_port) = generation();
}

/* False is sure: `last_acks` has no recent connection of this port. True may be wrong. */
static __always_inline bool is_marked(__be16 local_port)
{
	__u8 mark = *mark_of(local_port);

	/* From 255 the next generation is 1. */
	return mark && (generation() + 255u - mark) % 255 <= MARKS_LAST;
}

/* ---- A segment. ---- */

static __always_inline struct frame frame_of(const struct __sk_buff *skb)
{
	struct frame frame = {
		.data = (void *)(long)skb->data,
		.data_end = (void *)(long)skb->data_end,
		.length = skb->len,
	};

	return frame;
}

/* True if the segment needs no work, or is not plain. It must be cheap: all segments come here. */
static __always_inline bool passes(const struct __sk_buff *skb, bool is_arriving)
{
	struct frame frame = frame_of(skb);
	const struct tcp_header *tcp = find_plain_tcp(&frame);

	if (!tcp)
		return true;
	if (tcp->flags & TCP_FIN)
		return is_arriving && way == WAY_SWAP;
	if (is_arriving)
		return !is_marked(tcp->destination);
	if (way == WAY_SWAP)
		return (tcp->flags & (TCP_SYN | TCP_ACK)) != TCP_SYN;
	return !is_marked(tcp->source);
}

static __always_inline bool read_segment(const struct __sk_buff *skb, struct segment *segment)
{
	struct frame frame = frame_of(skb);

	return parse_frame(&frame, segment) == PARSED_TCP;
}

static __always_inline struct close_segment numbers_of(const struct segment *segment)
{
	struct close_segment numbers = {
		.seq = segment->seq, .ack = segment->ack, .payload = segment->payload_length, .flags = segment->flags,
	};

	return numbers;
}

static __always_inline struct ends ends_of_arriving(const struct segment *segment)
{
	struct ends ends = {
		.local = segment->destination, .remote = segment->source,
		.local_port = segment->destination_port, .remote_port = segment->source_port,
	};

	return ends;
}

static __always_inline struct ends ends_of_leaving(const struct segment *segment)
{
	struct ends ends = {
		.local = segment->source, .remote = segment->destination,
		.local_port = segment->source_port, .remote_port = segment->destination_port,
	};

	return ends;
}

/* Index of the connection's destination; NULL if we do not handle it. */
static __noinline __u32 *destination_of(const struct ends *ends)
{
	struct destination key = { .bits = 8 * (sizeof(key) - sizeof(key.bits)) };

	if (!ends)
		return NULL;
	key.port = ends->remote_port;
	key.address = ends->remote;
	return bpf_map_lookup_elem(&destinations, &key);
}

/* Counters of the connection's destination; NULL if we do not handle it. */
static __always_inline struct close_counts *counts_of(const struct ends *ends)
{
	__u32 *index = destination_of(ends);

	return index ? bpf_map_lookup_elem(&close_counts, index) : NULL;
}

/*
 * True if an option signs the segment (MD5, AO), belongs to MPTCP, or is malformed. `timestamp`:
 * bytes from the TCP header to that option; unchanged if there is none.
 *
 * The function is not static, so that the verifier walks it once.
 */
__noinline int find_options(const struct tcp_bytes *tcp, __u32 size, __u32 *timestamp)
{
	__u32 at = sizeof(struct tcp_header), i;

	if (!tcp || !timestamp)
		return true;
	for (i = 0; i < MAX_TCP_OPTIONS && at < size; i++) {
		const __u8 *option = &tcp->byte[at & OPTION_INDEX_MASK];

		if (option[0] == OPTION_END)
			return false;
		if (option[0] == OPTION_NOP) {
			at++;
			continue;
		}
		if (option[1] < 2 || at + option[1] > size || option[0] == OPTION_MD5 ||
		    option[0] == OPTION_AUTHENTICATION || option[0] == OPTION_MULTIPATH)
			return true;
		if (option[0] == OPTION_TIMESTAMP && option[1] == 10)
			*timestamp = at;
		at += option[1];
	}
	return at < size;
}

static __always_inline bool is_signed_or_joined(struct __sk_buff *skb, const struct segment *segment, __u32 *timestamp)
{
	struct tcp_bytes tcp = {};

	return !load_tcp(skb, HOOK_TC, segment, &tcp) || find_options(&tcp, tcp_header_bytes(segment), timestamp);
}

static __always_inline bool change_flags(struct __sk_buff *skb, const struct segment *segment, __u8 set, __u8 clear)
{
	__u32 offset = __builtin_offsetof(struct tcp_header, offset);
	__be16 before, after;

	/* The checksum goes by 16-bit words: the flags are the second byte of this one. */
	if (bpf_skb_load_bytes(skb, segment->l4_offset + offset, &before, sizeof(before)))
		return false;
	after = (before | bpf_htons(set)) & ~bpf_htons(clear);
	return replace_in_tcp(skb, segment, offset, before, after, sizeof(after));
}

static __always_inline void read_socket(const struct tcp_sock *tcp, struct close_socket *socket)
{
	socket->state = tcp->inet_conn.icsk_inet.sk.__sk_common.skc_state;
	socket->rcv_nxt = tcp->rcv_nxt;
	socket->copied_seq = tcp->copied_seq;
}

/* True if the checksum is verified or needs none: we act on a FIN before TCP has checked it. */
static __always_inline bool is_known_good(struct __sk_buff *skb)
{
	__u32 summed = BPF_CORE_READ_BITFIELD_PROBED((struct sk_buff *)skb, ip_summed);

	return summed == CHECKSUM_UNNECESSARY || summed == CHECKSUM_PARTIAL;
}

/* ---- Sockets that we handle. ---- */

/* True for a socket made in `cgroup` or below it. tc may not call bpf_sk_ancestor_cgroup_id(). */
static __noinline int is_in_cgroup(struct tcp_sock *tcp)
{
	const struct cgroup_subsys_state *state;
	const struct cgroup *group;
	__u32 depth;

	if (!bpf_core_field_exists(tcp->inet_conn.icsk_inet.sk.sk_cgrp_data))
		return false;
	group = BPF_CORE_READ(tcp, inet_conn.icsk_inet.sk.sk_cgrp_data.cgroup);
	for (depth = 0; depth < MAX_CGROUP_DEPTH && group; depth++) {
		if (BPF_CORE_READ(group, kn, id) == cgroup)
			return true;
		state = BPF_CORE_READ(group, self.parent);
		group = state ? BPF_CORE_READ(state, cgroup) : NULL;
	}
	return false;
}

static __always_inline bool is_meant(struct tcp_sock *tcp)
{
	__u32 *value;

	if (cgroup && !is_in_cgroup(tcp))
		return false;
	if (!must_ask)
		return true;
	value = bpf_sk_storage_get(&asked, tcp, 0, 0);
	return value && *value;
}

/* A program opts one of its sockets in (1) or out (0): TIDEGATE_CLOSE, an int. */
SEC("cgroup/setsockopt")
int ask(struct bpf_sockopt *option)
{
	__u32 *value = option->optval, *stored;

	if (!is_option(option, TIDEGATE_CLOSE, netns_cookie))
		return leave_option(option);
	/* -1: another tidegate close, for other destinations, has taken the option before. */
	if ((option->optlen != -1 && option->optlen < (__s32)sizeof(*value)) || (void *)(value + 1) > option->optval_end ||
	    *value > 1)
		return refuse_option(EINVAL);
	stored = bpf_sk_storage_get(&asked, option->sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!stored)
		return refuse_option(ENOMEM);
	*stored = *value;
	option->optlen = -1; /* the kernel skips the option */
	return 1;
}

/* ---- A segment arrives. ---- */

/* Tells the agent what it needs to let the FIN in later. If that fails, the FIN is not held. */
static __noinline bool tell_agent(struct __sk_buff *skb, const struct segment *segment, __u32 timestamp)
{
	struct held_fin held = {};

	if (!segment || timestamp > MAX_TCP_HEADER_BYTES)
		return false;
	held.ends = ends_of_arriving(segment);
	held.seq = segment->seq + segment->payload_length;
	held.ack = segment->ack;
	held.ifindex = skb->ifindex;
	held.at_ns = bpf_ktime_get_ns();
	__builtin_memcpy(held.mac, segment->mac, sizeof(held.mac));
	if (timestamp && bpf_skb_load_bytes(skb, segment->l4_offset + timestamp + 2, held.timestamps, sizeof(held.timestamps)))
		return false;
	if (bpf_skb_load_bytes(skb, segment->l4_offset + __builtin_offsetof(struct tcp_header, window), &held.window,
			       sizeof(held.window)))
		return false;
	return !bpf_ringbuf_output(&held_fins, &held, sizeof(held), NO_WAKEUP);
}

/* Decides about a FIN, and counts why it passes. */
static __always_inline enum close_action decide_fin(struct __sk_buff *skb, const struct segment *segment, struct tcp_sock *tcp,
						    struct hold *hold, struct close_counts *counts, __u32 *timestamp)
{
	struct close_segment numbers = numbers_of(segment);
	struct close_socket socket = {};
	enum close_action action;

	if (hold->stage == HOLD_OVER)
		return CLOSE_PASS;
	if (is_signed_or_joined(skb, segment, timestamp)) {
		counts->signed_or_joined++;
		return CLOSE_PASS;
	}
	if (!is_known_good(skb)) {
		counts->unchecked++;
		return CLOSE_PASS;
	}
	read_socket(tcp, &socket);
	action = on_fin_arriving(&socket, &numbers, hold);
	if (action == CLOSE_GIVE_UP)
		counts->given_up++;
	else if (action == CLOSE_PASS && socket.state == STATE_ESTABLISHED)
		counts->idle++;
	return action;
}

/* Takes the FIN off the segment. False if it stays, with the reason counted. */
static __always_inline bool hold_fin(struct __sk_buff *skb, const struct segment *segment, struct close_counts *counts,
				     __u32 timestamp, bool backed_off)
{
	if (backed_off) {
		counts->backed_off++;
		return false;
	}
	counts->held++;
	if (is_dry_run)
		return false;
	if (!tell_agent(skb, segment, timestamp)) {
		counts->full++;
		return false;
	}
	if (!change_flags(skb, segment, 0, TCP_FIN)) {
		counts->failed++;
		return false;
	}
	return true;
}

/* hold: a FIN arrives from the server. */
static __always_inline void on_fin_in(struct __sk_buff *skb, const struct segment *segment, struct close_counts *counts,
				      bool backed_off)
{
	struct tcp_sock *tcp;
	__u32 timestamp = 0;
	struct hold *hold;
	void *found;

	found = lookup_socket(skb, segment);
	if (!found)
		return;
	tcp = bpf_skc_to_tcp_sock(found);
	if (tcp && is_meant(tcp)) {
		hold = bpf_sk_storage_get(&holds, tcp, 0, BPF_SK_STORAGE_GET_F_CREATE);
		if (!hold)
			counts->full++;
		else if (decide_fin(skb, segment, tcp, hold, counts, &timestamp) == CLOSE_HOLD &&
			 !hold_fin(skb, segment, counts, timestamp, backed_off))
			hold->stage = HOLD_OVER;
	}
	bpf_sk_release(found);
}

/* The server acknowledges the client's FIN. A clone goes on, and the ACK itself becomes the RST. */
static __always_inline int on_last_ack_in(struct __sk_buff *skb, const struct segment *segment)
{
	struct close_segment numbers = numbers_of(segment);
	struct ends ends = ends_of_arriving(segment);
	struct last_ack *last = bpf_map_lookup_elem(&last_acks, &ends);
	struct close_counts *counts;
	__u32 timestamp = 0;
	__u64 until_ns;

	if (!last || on_ack_arriving(&numbers, last) != CLOSE_ANSWER || !is_leased())
		return TC_ACT_UNSPEC;
	counts = counts_of(&ends);
	if (!counts)
		return TC_ACT_UNSPEC;
	if (is_dry_run) {
		last->resets++;
		counts->answered++;
		return TC_ACT_UNSPEC;
	}
	/* The ACK has a timestamp if both ends agreed on timestamps (RFC 7323 3.2). */
	if (is_signed_or_joined(skb, segment, &timestamp)) {
		counts->signed_or_joined++;
		return TC_ACT_UNSPEC;
	}
	until_ns = bpf_ktime_get_ns() + (timestamp ? quarantine_ns : long_quarantine_ns);
	if (way == WAY_SWAP && bpf_map_update_elem(&quarantine, &ends, &until_ns, 0)) {
		counts->full++;
		return TC_ACT_UNSPEC;
	}
	/* The clone meets this program again, and must find the RST counted. */
	last->resets++;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS)) {
		counts->failed++;
		return TC_ACT_UNSPEC;
	}
	if (send_reset(skb, HOOK_TC, segment) != SENT) {
		counts->failed++;
		return TC_ACT_SHOT;
	}
	counts->answered++;
	return bpf_redirect(skb->ifindex, 0);
}

SEC("tc")
int arriving(struct __sk_buff *skb)
{
	struct segment segment = {};
	struct close_counts *counts;
	struct ends ends;
	__u32 *index;

	if (passes(skb, true) || skb->pkt_type != PACKET_HOST || !read_segment(skb, &segment))
		return TC_ACT_UNSPEC;
	if (!(segment.flags & TCP_FIN))
		return on_last_ack_in(skb, &segment);
	ends = ends_of_arriving(&segment);
	index = destination_of(&ends);
	counts = index ? bpf_map_lookup_elem(&close_counts, index) : NULL;
	if (counts && is_leased())
		on_fin_in(skb, &segment, counts, is_backed_off(*index));
	return TC_ACT_UNSPEC;
}

/*
 * hold: the agent runs this on a copy of a held FIN that it has made. The FIN enters if it is still
 * held: a server whose host is gone never repeats it.
 */
SEC("tc")
int overdue(struct __sk_buff *skb)
{
	struct segment segment = {};
	struct close_counts *counts;
	struct hold *hold = NULL;
	bool is_held = false;
	struct tcp_sock *tcp;
	struct ends ends;
	void *found;

	if (!read_segment(skb, &segment))
		return TC_ACT_SHOT;
	ends = ends_of_arriving(&segment);
	counts = counts_of(&ends);
	found = counts ? lookup_socket(skb, &segment) : NULL;
	if (!found)
		return TC_ACT_SHOT;
	tcp = bpf_skc_to_tcp_sock(found);
	if (tcp)
		hold = bpf_sk_storage_get(&holds, tcp, 0, 0);
	if (hold && (hold->stage == HOLD_HELD || hold->stage == HOLD_LATE) && hold->fin == segment.seq) {
		hold->stage = HOLD_OVER;
		is_held = true;
	}
	bpf_sk_release(found);
	if (!is_held)
		return TC_ACT_SHOT;
	if (bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		counts->failed++;
	else
		counts->overdue++;
	return TC_ACT_SHOT;
}

/* ---- A segment leaves. ---- */

/* True if a new connection's four-tuple is in quarantine. An entry that is over goes. */
static __always_inline bool is_quarantined(const struct ends *ends)
{
	__u64 *until_ns = bpf_map_lookup_elem(&quarantine, ends);

	if (!until_ns)
		return false;
	if (bpf_ktime_get_ns() < *until_ns)
		return true;
	bpf_map_delete_elem(&quarantine, ends);
	return false;
}

/* Header fields that change when the client's FIN becomes the server's. */
struct turned {
	__u8 mac[12];				/* destination, source */
	struct address addresses[2];		/* source, destination */
	__be16 ports[2];
	__be32 numbers[2];			/* seq, ack */
	__be32 timestamps[2];			/* value, echo */
};

/* `timestamp`: bytes from the TCP header to its timestamp option; 0 if it has none. */
static __always_inline bool write_turned(struct __sk_buff *skb, const struct segment *segment, __u32 timestamp,
					 const struct turned *turned)
{
	__u32 tcp = segment->l4_offset, ip = segment->l3_offset;
	__be32 ipv4[2] = { turned->addresses[0].word[3], turned->addresses[1].word[3] };

	if (bpf_skb_store_bytes(skb, 0, turned->mac, sizeof(turned->mac), 0))
		return false;
	if (segment->is_ipv6 ? bpf_skb_store_bytes(skb, ip + __builtin_offsetof(struct ipv6_header, source),
						   turned->addresses, sizeof(turned->addresses), 0) :
			       bpf_skb_store_bytes(skb, ip + __builtin_offsetof(struct ipv4_header, source), ipv4,
						   sizeof(ipv4), 0))
		return false;
	if (bpf_skb_store_bytes(skb, tcp, turned->ports, sizeof(turned->ports), 0) ||
	    bpf_skb_store_bytes(skb, tcp + __builtin_offsetof(struct tcp_header, seq), turned->numbers,
				sizeof(turned->numbers), 0))
		return false;
	return !timestamp || !bpf_skb_store_bytes(skb, tcp + timestamp + 2, turned->timestamps, sizeof(turned->timestamps), 0);
}

/* Outcomes of let_fin_in(). */
enum let_in {
	LET_IN,
	LET_IN_NOT,			/* the segment is unchanged, and may leave */
	LET_IN_SPOILED,			/* the segment is damaged: drop it, TCP repeats it */
};

/*
 * The client's FIN becomes the server's, a clone of it enters, and it becomes the client's again.
 * The checksum stays true: it covers only the pseudo header, whose addresses may change places
 * (CHECKSUM_PARTIAL).
 */
static __noinline int let_fin_in(struct __sk_buff *skb, const struct segment *segment, __u32 timestamp, __u32 ack)
{
	struct turned before = {}, after = {};
	bool is_sent;

	if (!segment || timestamp > MAX_TCP_HEADER_BYTES)
		return LET_IN_NOT;
	__builtin_memcpy(before.mac, segment->mac, sizeof(before.mac));
	before.addresses[0] = segment->source;
	before.addresses[1] = segment->destination;
	before.ports[0] = segment->source_port;
	before.ports[1] = segment->destination_port;
	before.numbers[0] = bpf_htonl(segment->seq);
	before.numbers[1] = bpf_htonl(segment->ack);
	if (timestamp && bpf_skb_load_bytes(skb, segment->l4_offset + timestamp + 2, before.timestamps, sizeof(before.timestamps)))
		return LET_IN_NOT;
	swap_macs(segment, after.mac);
	after.addresses[0] = before.addresses[1];
	after.addresses[1] = before.addresses[0];
	after.ports[0] = before.ports[1];
	after.ports[1] = before.ports[0];
	after.numbers[0] = before.numbers[1];
	after.numbers[1] = bpf_htonl(ack);
	after.timestamps[0] = before.timestamps[1];
	after.timestamps[1] = before.timestamps[0];
	is_sent = write_turned(skb, segment, timestamp, &after) && !bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS);
	if (!write_turned(skb, segment, timestamp, &before))
		return LET_IN_SPOILED;
	return is_sent ? LET_IN : LET_IN_NOT;
}

/* The client's socket of a leaving segment; NULL if it has no full TCP socket. */
static __always_inline struct tcp_sock *socket_of(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;

	if (!sk)
		return NULL;
	sk = bpf_sk_fullsock(sk);
	return sk && sk->protocol == PROTOCOL_TCP ? bpf_skc_to_tcp_sock(sk) : NULL;
}

/* Stores the connection, and marks its port so that its segments no longer pass unseen. */
static __always_inline bool keep(const struct ends *ends, const struct last_ack *last, struct close_counts *counts)
{
	if (bpf_map_update_elem(&last_acks, ends, last, 0)) {
		counts->full++;
		return false;
	}
	mark(ends->local_port);
	return true;
}

/* swap: the client's FIN leaves. */
static __always_inline void on_last_fin_out(struct __sk_buff *skb, const struct segment *segment)
{
	struct close_segment numbers = numbers_of(segment);
	struct ends ends = ends_of_leaving(segment);
	struct tcp_sock *tcp = socket_of(skb);
	struct close_socket socket = {};
	struct close_counts *counts;
	struct last_ack last = {};
	__u32 timestamp = 0;
	struct last_ack *known;
	bool is_known;

	if (!tcp || !is_meant(tcp))
		return;
	read_socket(tcp, &socket);
	if (on_last_fin_leaving(&socket, &numbers, &last) != CLOSE_NOTE)
		return;
	counts = counts_of(&ends);
	if (!counts)
		return;
	/* A repeated FIN counts once. */
	known = bpf_map_lookup_elem(&last_acks, &ends);
	is_known = known && known->seq == last.seq;
	if (is_signed_or_joined(skb, segment, &timestamp))
		counts->signed_or_joined++;
	else if (keep(&ends, &last, counts) && !is_known)
		counts->noted++;
}

/* hold: the client's FIN leaves. */
static __always_inline int on_held_fin_out(struct __sk_buff *skb, const struct segment *segment)
{
	struct close_segment numbers = numbers_of(segment);
	struct ends ends = ends_of_leaving(segment);
	struct tcp_sock *tcp = socket_of(skb);
	struct close_socket socket = {};
	struct close_counts *counts;
	struct last_ack last = {};
	__u32 timestamp = 0;
	struct hold *hold;
	int let_in;

	hold = tcp ? bpf_sk_storage_get(&holds, tcp, 0, 0) : NULL;
	if (!hold || hold->stage != HOLD_HELD)
		return TC_ACT_UNSPEC;
	counts = counts_of(&ends);
	if (!counts)
		return TC_ACT_UNSPEC;
	read_socket(tcp, &socket);
	if (on_held_fin_leaving(&socket, &numbers, hold, &last) != CLOSE_RELEASE || !checksum_is_partial(skb, HOOK_TC, segment) ||
	    is_signed_or_joined(skb, segment, &timestamp)) {
		hold->stage = HOLD_LATE;
		counts->late++;
		return TC_ACT_UNSPEC;
	}
	if (!keep(&ends, &last, counts)) {
		hold->stage = HOLD_LATE;
		return TC_ACT_UNSPEC;
	}
	/* It acknowledges no more than the server did, so that our kernel repeats what is lost. */
	let_in = let_fin_in(skb, segment, timestamp, tcp->snd_una);
	if (let_in == LET_IN) {
		counts->released++;
		return TC_ACT_UNSPEC;
	}
	hold->stage = HOLD_LATE;
	bpf_map_delete_elem(&last_acks, &ends);
	counts->failed++;
	return let_in == LET_IN_SPOILED ? TC_ACT_SHOT : TC_ACT_UNSPEC;
}

/* hold: a segment leaves, perhaps the client's ACK of the server's FIN. */
static __always_inline int on_last_ack_out(struct __sk_buff *skb, const struct segment *segment)
{
	struct close_segment numbers = numbers_of(segment);
	struct ends ends = ends_of_leaving(segment);
	struct last_ack *last = bpf_map_lookup_elem(&last_acks, &ends);
	struct close_counts *counts;

	if (!last)
		return TC_ACT_UNSPEC;
	switch (on_last_ack_leaving(&numbers, last)) {
	case CLOSE_DROP:
		return TC_ACT_SHOT;
	case CLOSE_RESET:
		break;
	default:
		return TC_ACT_UNSPEC;
	}
	counts = counts_of(&ends);
	if (counts && change_flags(skb, segment, TCP_RST, 0))
		counts->resets++;
	else if (counts)
		counts->failed++;
	return TC_ACT_UNSPEC;
}

SEC("tc")
int leaving(struct __sk_buff *skb)
{
	struct segment segment = {};
	struct close_counts *counts;
	struct ends ends;

	if (passes(skb, false) || !read_segment(skb, &segment))
		return TC_ACT_UNSPEC;
	if (segment.flags & TCP_FIN) {
		if (way == WAY_HOLD)
			return on_held_fin_out(skb, &segment);
		on_last_fin_out(skb, &segment);
		return TC_ACT_UNSPEC;
	}
	if (way == WAY_SWAP) {
		ends = ends_of_leaving(&segment);
		if (!is_leased() || !is_quarantined(&ends))
			return TC_ACT_UNSPEC;
		counts = counts_of(&ends);
		if (counts)
			counts->quarantined++;
		return TC_ACT_SHOT;
	}
	return on_last_ack_out(skb, &segment);
}
