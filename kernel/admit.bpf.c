// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The guard's programs. The hooks tc/tcx ingress and XDP share one body for the SYN and ACK stages.
 * The FIN stage is at tc/tcx ingress. For reserv there is an LSM hook where the kernel makes a
 * request socket. Socket options and followed sockets have hooks of their own.
 *
 * The programs fail open: the kernel gets every other frame as it came, and a counter says why.
 * They act on three kinds of segments only:
 *
 * - a plain SYN to a guarded port of this host where a server listens
 * - the end of a handshake that finds its accept queue full
 * - a FIN under rst-fin
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include "verdict.h"
#include "segment.bpf.h"
#include "listener.bpf.h"
#include "hook.bpf.h"
#include "rules.bpf.h"
#include "syn_stage.bpf.h"
#include "later_stages.bpf.h"
#include "request_stage.bpf.h"
#include "sockopt.bpf.h"
#include "follow.bpf.h"

enum {
	EPERM = 1,
	PULL_BYTES = 256,		/* headers that are pulled into the linear part of a paged buffer */
};

static __always_inline struct frame skb_frame(struct __sk_buff *skb)
{
	return (struct frame){
		.data = (void *)(long)skb->data,
		.data_end = (void *)(long)skb->data_end,
		.length = skb->len,
	};
}

static __always_inline struct frame xdp_frame(struct xdp_md *xdp)
{
	struct frame frame = { .data = (void *)(long)xdp->data, .data_end = (void *)(long)xdp->data_end };
	long length = frame.data_end - frame.data;

	/* The verifier allows the difference of two pointers in 64 bits only. */
	asm volatile("" : "+r"(length));
	frame.length = length;
	return frame;
}

/* Not inline: see decide_before_server(). */
static __noinline int finds_room_tc(struct __sk_buff *skb)
{
	struct frame frame = skb_frame(skb);

	return finds_room(&frame, true);
}

static __noinline int finds_room_xdp(struct xdp_md *xdp)
{
	struct frame frame = xdp_frame(xdp);

	return finds_room(&frame, false);
}

/*
 * True when a frame passes after a look at its headers. Most frames of a server are data and their
 * ACKs. They need no lookup while no handshake may find its queue full, or when this one finds
 * room. `asked`: TCP flags that a stage asks about.
 */
static __always_inline bool passes_unseen(void *ctx, const struct frame *frame, __u8 asked, bool is_tc)
{
	const struct tcp_header *tcp = find_plain_tcp(frame);

	if (!tcp || tcp->flags & asked)
		return false;
	if (!may_be_armed() || !may_end_handshake(tcp->flags))
		return true;
	return is_tc ? finds_room_tc(ctx) : finds_room_xdp(ctx);
}

static __always_inline bool pass_plain(void *ctx, const struct frame *frame, __u8 asked, bool is_tc)
{
	struct path_stats *path;

	if (!passes_unseen(ctx, frame, asked, is_tc))
		return false;
	path = path_counters();
	if (path)
		count_not_syn(path);
	return true;
}

/* Not static: see on_syn_tc(). */
__noinline int parse_linear(struct __sk_buff *skb, struct segment *segment)
{
	struct frame frame = skb_frame(skb);

	return segment ? parse_frame(&frame, segment) : PARSED_MALFORMED;
}

/* Pulls headers that a driver left in pages, only for a frame that cannot be read otherwise. */
static __always_inline enum parsed parse_skb(struct __sk_buff *skb, struct segment *segment)
{
	enum parsed parsed = parse_linear(skb, segment);
	__u32 linear = skb->data_end - skb->data;

	if (parsed != PARSED_MALFORMED || linear >= skb->len || linear >= PULL_BYTES)
		return parsed;
	if (bpf_skb_pull_data(skb, skb->len < PULL_BYTES ? skb->len : PULL_BYTES))
		return parsed;
	__builtin_memset(segment, 0, sizeof(*segment));
	return parse_linear(skb, segment);
}

static __always_inline int tc_answer(enum action action)
{
	switch (action) {
	case ACTION_SEND_BACK:
		return TC_ACT_REDIRECT;
	case ACTION_DROP:
		return TC_ACT_SHOT;
	default:
		return TC_ACT_UNSPEC;
	}
}

static __always_inline int admit_skb(struct __sk_buff *skb)
{
	struct segment segment = {};
	enum parsed parsed = parse_skb(skb, &segment);
	enum action action = on_frame(skb, HOOK_TC, parsed, &segment);

	if (action == ACTION_PASS && parsed == PARSED_TCP)
		action = on_other(skb, &segment, false);
	return tc_answer(action);
}

/* All stages. */
SEC("tc")
int admit_tc(struct __sk_buff *skb)
{
	struct frame frame = skb_frame(skb);

	return pass_plain(skb, &frame, TCP_SYN | TCP_FIN, true) ? TC_ACT_UNSPEC : admit_skb(skb);
}

static __always_inline int finish_skb(struct __sk_buff *skb)
{
	struct segment segment = {};

	if (parse_skb(skb, &segment) != PARSED_TCP)
		return TC_ACT_UNSPEC;
	return tc_answer(on_other(skb, &segment, true));
}

/*
 * The FIN stage and cookies, for an interface whose other stages are in XDP. The end of a handshake
 * without a place arrives here with SYN set, or XDP has dropped it.
 */
SEC("tc")
int finish_tc(struct __sk_buff *skb)
{
	struct frame frame = skb_frame(skb);
	const struct tcp_header *tcp = find_plain_tcp(&frame);

	if (tcp && !(tcp->flags & TCP_FIN) && !may_end_by_cookie())
		return TC_ACT_UNSPEC;
	return finish_skb(skb);
}

__noinline int parse_xdp(struct xdp_md *xdp, struct segment *segment)
{
	struct frame frame = xdp_frame(xdp);

	return segment ? parse_frame(&frame, segment) : PARSED_MALFORMED;
}

static __always_inline int admit_frame(struct xdp_md *xdp, enum hook hook)
{
	struct segment segment = {};
	enum parsed parsed = parse_xdp(xdp, &segment);
	enum action action = on_frame(xdp, hook, parsed, &segment);

	if (parsed == PARSED_TCP && may_end_handshake(segment.flags) && is_armed())
		action = on_ack_xdp(xdp, &segment);
	switch (action) {
	case ACTION_SEND_BACK:
		return XDP_TX;
	case ACTION_DROP:
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

static __always_inline int admit(struct xdp_md *xdp, enum hook hook)
{
	struct frame frame = xdp_frame(xdp);

	return pass_plain(xdp, &frame, TCP_SYN, false) ? XDP_PASS : admit_frame(xdp, hook);
}

SEC("xdp")
int admit_xdp(struct xdp_md *xdp)
{
	return admit(xdp, HOOK_XDP);
}

SEC("xdp")
int admit_xdp_skb(struct xdp_md *xdp)
{
	return admit(xdp, HOOK_XDP_GENERIC);
}

/*
 * The arguments are sk, skb, request. An error drops the SYN (tcp_v4_route_req(),
 * net/ipv4/tcp_ipv4.c).
 */
SEC("lsm/inet_conn_request")
int admit_request(__u64 *ctx)
{
	return may_request((void *)ctx[0], (void *)ctx[1], (void *)ctx[2]) ? 0 : -EPERM;
}

SEC("cgroup/setsockopt")
int set_option(struct bpf_sockopt *option)
{
	return is_option(option, TIDEGATE_RST_FIN, guarded_netns_cookie) ? write_option(option) : leave_option(option);
}

SEC("cgroup/getsockopt")
int get_option(struct bpf_sockopt *option)
{
	return is_option(option, TIDEGATE_RST_FIN, guarded_netns_cookie) ? read_option_value(option) : leave_option(option);
}

/* Sees the sockets of a control group and of all below it; see follow.bpf.h. */
SEC("sockops")
int follow_socket(struct bpf_sock_ops *ops)
{
	switch (ops->op) {
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		begin_wait(ops);
		break;
	case BPF_SOCK_OPS_HDR_OPT_LEN_CB:
		on_options(ops);
		break;
	case BPF_SOCK_OPS_STATE_CB:
		on_state(ops);
		break;
	default:
		break;
	}
	return 1;
}

/*
 * Shows a listener as a SYN would see it. The agent runs it by BPF_PROG_TEST_RUN; it is never
 * attached.
 */
SEC("tc")
int ask_listener(struct __sk_buff *skb)
{
	struct listener_query *question;
	struct listener listener = {};
	struct segment segment = {};
	__u32 zero = 0;

	question = bpf_map_lookup_elem(&query, &zero);
	if (!question)
		return TC_ACT_UNSPEC;
	segment.destination = question->address;
	segment.destination_port = question->port;
	segment.is_ipv6 = question->is_ipv6;
	question->found = find_listener(skb, &segment, &listener);
	question->family = listener.family;
	question->load = listener.load;
	return TC_ACT_UNSPEC;
}

/* One case of the decision table. The tests run it here and on the host. */
struct verdict_case {
	struct listener_policy policy;
	struct listener_load load;
	struct attempt attempt;
	struct fin fin;
};

/* Returns the answers of the stages: SYN in bits 0 to 7, ACK from bit 8, FIN from bit 16. */
SEC("syscall")
int run_case(struct verdict_case *input)
{
	struct verdict_case copy = *input;

	return admit_syn(&copy.policy, &copy.load, &copy.attempt) |
	       admit_ack(&copy.policy, &copy.load, copy.attempt.is_reserved) << 8 |
	       admit_fin(&copy.policy, &copy.fin) << 16;
}

/* Our code is GPL-2.0 OR Apache-2.0. The kernel has no word for that, and the helpers want GPL. */
char LICENSE[] SEC("license") = "GPL";
