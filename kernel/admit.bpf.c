// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The programs of the guard: SYN and ACK stage at tc/tcx ingress and in XDP, from one body; FIN
 * stage at tc/tcx ingress; for reserv, the LSM hook where the kernel makes a request; and the
 * socket option by which a server asks.
 *
 * Fails open: whatever is not a plain SYN to a guarded port of this host with a listener behind it,
 * nor the end of a handshake that finds its accept queue full, nor a FIN under rst-fin, goes to the
 * kernel as it came, and a counter says why.
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
	PULL_BYTES = 256,		/* headers to bring into the linear part of a paged socket buffer */
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

	/* Of pointers the verifier takes a difference in 64 bits only. */
	asm volatile("" : "+r"(length));
	frame.length = length;
	return frame;
}

/* Not inline: see read_service(). */
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
 * Most frames of a server are data and their ACKs, which nobody asks about while no handshake may
 * find its queue full, or this one finds room there: they go on after a look at their headers.
 * `asked` are the flags that somebody asks about.
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

/*
 * Some drivers leave headers in pages. Pulling them is for the rare frame that cannot be read
 * without.
 */
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

static __always_inline int tc_answer(struct __sk_buff *skb, enum action action)
{
	switch (action) {
	case ACTION_SEND_BACK:
		return bpf_redirect(skb->ifindex, 0);
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
	return tc_answer(skb, action);
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
	return tc_answer(skb, on_other(skb, &segment, true));
}

/*
 * The FIN stage and cookies alone, for an interface whose other stages are in XDP. What ended a
 * handshake without a place comes by with SYN set, or not at all.
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

/* sk, skb, request. An error drops the SYN (tcp_v4_route_req(), net/ipv4/tcp_ipv4.c). */
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

/* Of the sockets of a control group and all below it; see follow.bpf.h. */
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
 * Never attached: the agent runs it (BPF_PROG_TEST_RUN) to see a listener as a SYN would, without a
 * SYN.
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

/* A case of the table of decisions; the tests run it here and on the host. */
struct verdict_case {
	struct listener_policy policy;
	struct listener_load load;
	struct attempt attempt;
	struct fin fin;
};

/* The answers of the SYN stage and, 8 and 16 bits up, of the ACK and the FIN stage. */
SEC("syscall")
int run_case(struct verdict_case *input)
{
	struct verdict_case copy = *input;

	return admit_syn(&copy.policy, &copy.load, &copy.attempt) |
	       admit_ack(&copy.policy, &copy.load, copy.attempt.is_reserved) << 8 |
	       admit_fin(&copy.policy, &copy.fin) << 16;
}

/*
 * What we wrote is GPL-2.0 OR Apache-2.0; the kernel has no word for that, and the helpers want a
 * GPL one.
 */
char LICENSE[] SEC("license") = "GPL";
