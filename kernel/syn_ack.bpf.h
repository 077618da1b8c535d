/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Turns a SYN into a SYN/ACK with a cookie, in the SYN's own buffer. Turns the segment that ends
 * such a handshake into a connection. cookie.h has the cookie itself.
 */
#ifndef TIDEGATE_SYN_ACK_BPF_H
#define TIDEGATE_SYN_ACK_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include "cookie.h"
#include "segment.bpf.h"
#include "options.bpf.h"
#include "hook.bpf.h"
#include "answer.bpf.h"
#include "listener.bpf.h"

enum {
	COOKIE_WSCALE = 7,		/* the guard's: windows up to 8 MB */
	INITIAL_WINDOW_SEGMENTS = 10,	/* a new connection may send as many, RFC 6928 */
	TIMESTAMP_SHIFT = 20,		/* ns to about ms, RFC 7323 5.4 */
};

/*
 * The random keys of the guard's cookies. They are in a map, so that the next guard accepts them,
 * too. The agent replaces the one that is not in use.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_keys);
} cookie_keys SEC(".maps");

/* Times at which the guard's cookies were sent. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COOKIE_PLACES);
	__type(key, __u32);
	__type(value, __u64);
} cookie_times SEC(".maps");

static __always_inline volatile __u64 *find_cookie_time(__u32 cookie)
{
	__u32 place = cookie_place(cookie);

	return bpf_map_lookup_elem(&cookie_times, &place);
}

static __always_inline void remember_cookie(__u32 cookie, __u64 now)
{
	volatile __u64 *stamp = find_cookie_time(cookie);

	if (stamp)
		*stamp = stamp_cookie(cookie, now);
}

/* See cookie_age_us(). */
static __always_inline __u32 read_cookie_age_us(__u32 cookie, __u64 now)
{
	volatile __u64 *stamp = find_cookie_time(cookie);

	return stamp ? cookie_age_us(*stamp, cookie, now) : 0;
}

/* Memory for a cookie, because the stack has no room for it. */
struct workspace {
	struct cookie_keys keys;
	struct cookie_flow flow;
	struct cookie_options said;
	struct tcp_bytes tcp;
	struct tcp_options offered;
	struct tcp_options ours;
	struct option_words words;
	struct answer_style style;
	__u32 isn;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct workspace);
} workspace SEC(".maps");

/* A zeroed workspace for the handshake that a SYN with this sequence number begins. */
static __always_inline struct workspace *workspace_for(const struct segment *segment, __u32 client_isn)
{
	struct workspace *work;
	struct cookie_keys *keys;
	__u32 zero = 0;

	work = bpf_map_lookup_elem(&workspace, &zero);
	keys = bpf_map_lookup_elem(&cookie_keys, &zero);
	if (!work || !keys)
		return NULL;
	__builtin_memset(work, 0, sizeof(*work));
	work->keys = *keys;
	__builtin_memcpy(work->flow.source, &segment->source, sizeof(work->flow.source));
	__builtin_memcpy(work->flow.destination, &segment->destination, sizeof(work->flow.destination));
	work->flow.source_port = segment->source_port;
	work->flow.destination_port = segment->destination_port;
	work->flow.client_isn = client_isn;
	return work;
}

/* From Linux 6.9. Without it the kernel accepts only its own cookies. */
extern int bpf_sk_assign_tcp_reqsk(struct __sk_buff *skb, struct sock *sk, struct bpf_tcp_req_attrs *attrs,
				   int attrs__sz) __ksym __weak;

static __always_inline __u32 cookie_period(__u64 now_ns)
{
	return now_ns >> COOKIE_PERIOD_SHIFT;
}

/*
 * The MSS that this host offers, from the interface's MTU. Differs: ignores a route's own MTU and
 * advmss metric.
 */
static __always_inline __u16 own_mss(void *ctx, enum hook hook, const struct segment *segment)
{
	struct net_device *device = device_of(ctx, hook);
	__u32 mtu = BPF_CORE_READ(device, mtu);

	return (mtu > 65535 ? 65535 : mtu) - answer_bytes(segment);
}

/* Options of a SYN/ACK with the guard's cookie: those that the SYN offered and this host has on. */
static __always_inline void offer_options(struct net *net, const struct tcp_options *offered, __u64 now_ns,
					  struct tcp_options *ours)
{
	ours->has_sack = offered->has_sack && BPF_CORE_READ(net, ipv4.sysctl_tcp_sack);
	ours->has_wscale = offered->has_wscale && BPF_CORE_READ(net, ipv4.sysctl_tcp_window_scaling);
	ours->has_timestamp = offered->has_timestamp && BPF_CORE_READ(net, ipv4.sysctl_tcp_timestamps);
	ours->wscale = COOKIE_WSCALE;
	ours->tsval = now_ns >> TIMESTAMP_SHIFT;
	ours->tsecr = offered->tsval;
}

/* Chooses the options, and stores them in the cookie. */
static __noinline int choose_own_cookie(const struct segment *segment, struct net *net, struct workspace *work, __u64 now)
{
	read_options(&work->tcp, tcp_header_bytes(segment), &work->offered);
	offer_options(net, &work->offered, now, &work->ours);
	/* RFC 9293 3.7.1: a client without an MSS option takes 536 bytes, the first index. */
	work->said.mss_index = cookie_mss_index(work->offered.mss, segment->is_ipv6);
	work->said.wscale = work->ours.has_wscale ? work->offered.wscale : COOKIE_NO_WSCALE;
	work->said.has_sack = work->ours.has_sack;
	work->isn = make_cookie(&work->keys, &work->flow, &work->said, cookie_period(now));
	return true;
}

/*
 * The kernel's own cookie. The kernel accepts it only if it has sent one itself within two minutes
 * (tcp_synq_no_recent_overflow()).
 */
static __noinline int choose_kernel_cookie(const struct segment *segment, struct workspace *work)
{
	__u32 size = tcp_header_bytes(segment);
	struct ipv4_header ipv4 = {};
	struct ipv6_header ipv6 = {};
	__s64 answer;

	if (!is_within(&size, sizeof(struct tcp_header), MAX_TCP_HEADER_BYTES))
		return false;
	if (segment->is_ipv6) {
		__builtin_memcpy(ipv6.source, &segment->source, sizeof(ipv6.source));
		__builtin_memcpy(ipv6.destination, &segment->destination, sizeof(ipv6.destination));
		answer = bpf_tcp_raw_gen_syncookie_ipv6((void *)&ipv6, (void *)&work->tcp, size);
	} else {
		ipv4.source = segment->source.word[3];
		ipv4.destination = segment->destination.word[3];
		answer = bpf_tcp_raw_gen_syncookie_ipv4((void *)&ipv4, (void *)&work->tcp, size);
	}
	work->isn = answer;
	return answer >= 0;
}

static __always_inline void build_syn_ack_tcp(const struct segment *segment, const struct answer_style *style, __u32 isn,
					      __u16 window, const struct option_words *words, struct tcp_header *tcp)
{
	__u32 tcp_bytes = sizeof(*tcp) + words->count * 4, sum = 0, i;

	tcp->source = segment->destination_port;
	tcp->destination = segment->source_port;
	tcp->seq = bpf_htonl(isn);
	tcp->ack = bpf_htonl(segment->seq + 1);
	tcp->flags = TCP_SYN | TCP_ACK;
	tcp->offset = tcp_bytes / 4 << 4;
	tcp->window = bpf_htons(window);
	for (i = 0; i < MAX_OPTION_WORDS; i++) {
		if (i < words->count)
			sum += sum_words(&words->word[i], 4);
	}
	sum_tcp(segment, style, sum, tcp_bytes, tcp);
}

/* Fills `answer`, which the caller has zeroed: no DSCP, no ECN. */
static __always_inline void build_syn_ack(const struct segment *segment, const struct answer_style *style, __u32 isn,
					  __u16 window, const struct option_words *words, struct answer *answer)
{
	__u32 tcp_bytes = sizeof(struct tcp_header) + words->count * 4;

	if (segment->is_ipv6) {
		build_ipv6(segment, style, 0, tcp_bytes, &answer->v6.ip);
		build_syn_ack_tcp(segment, style, isn, window, words, &answer->v6.tcp);
	} else {
		build_ipv4(segment, style, 0, tcp_bytes, &answer->v4.ip);
		build_syn_ack_tcp(segment, style, isn, window, words, &answer->v4.tcp);
	}
}

static __always_inline __u16 initial_window(__u16 mss)
{
	__u32 bytes = (__u32)mss * INITIAL_WINDOW_SEGMENTS;

	return bytes > 65535 ? 65535 : bytes;
}

/* Builds the SYN/ACK in the workspace, and sends it. */
static __always_inline enum sent send_chosen(void *ctx, enum hook hook, const struct segment *segment, struct workspace *work)
{
	__u32 offset = segment->l3_offset + answer_bytes(segment);
	struct answer *answer = clean_answer();
	enum sent sent;
	__u32 size;

	if (!answer)
		return SENT_NOT;
	write_options(&work->ours, &work->words);
	work->style = answer_style(ctx, hook, segment);
	if (segment->is_ipv6)
		work->style.flow_label = automatic_flow_label(net_of_frame(ctx, hook), segment);
	build_syn_ack(segment, &work->style, work->isn, initial_window(work->ours.mss), &work->words, answer);
	size = work->words.count * 4;
	sent = send_back(ctx, hook, segment, answer, size);
	if (sent != SENT)
		return sent;
	if (!is_within(&size, 4, sizeof(work->words.word)))
		return SENT_LOST;
	return store(ctx, hook, offset, work->words.word, size) ? SENT : SENT_LOST;
}

static __noinline int send_chosen_tc(struct __sk_buff *skb, const struct segment *segment, struct workspace *work)
{
	return send_chosen(skb, HOOK_TC, segment, work);
}

static __noinline int send_chosen_xdp(struct xdp_md *xdp, const struct segment *segment, struct workspace *work)
{
	return send_chosen(xdp, HOOK_XDP, segment, work);
}

static __noinline int send_chosen_xdp_generic(struct xdp_md *xdp, const struct segment *segment, struct workspace *work)
{
	return send_chosen(xdp, HOOK_XDP_GENERIC, segment, work);
}

/*
 * Answers a SYN with a SYN/ACK and a cookie, the guard's or the kernel's (`is_kernels`). With the
 * kernel's only the MSS is offered, because the kernel could not know the rest later. The answer is
 * not larger than the SYN, except for an MSS option that the SYN lacked.
 */
static __always_inline enum sent send_syn_ack(void *ctx, enum hook hook, const struct segment *segment, __u64 now, bool is_kernels)
{
	struct workspace *work = workspace_for(segment, segment->seq);

	if (!work || !load_tcp(ctx, hook, segment, &work->tcp))
		return SENT_NOT;
	work->ours.mss = own_mss(ctx, hook, segment);
	if (!(is_kernels ? choose_kernel_cookie(segment, work) : choose_own_cookie(segment, net_of_frame(ctx, hook), work, now)))
		return SENT_NOT;
	if (!is_kernels)
		remember_cookie(work->isn, now);
	switch (hook) {
	case HOOK_TC:
		return send_chosen_tc(ctx, segment, work);
	case HOOK_XDP:
		return send_chosen_xdp(ctx, segment, work);
	default:
		return send_chosen_xdp_generic(ctx, segment, work);
	}
}

/* Tells the kernel about a handshake of which it has seen only the end. */
static __always_inline void describe_request(const struct segment *segment, const struct cookie_options *cookie,
					     const struct tcp_options *options, struct bpf_tcp_req_attrs *attrs)
{
	attrs->mss = cookie_mss(cookie->mss_index, segment->is_ipv6);
	attrs->wscale_ok = cookie->wscale != COOKIE_NO_WSCALE;
	attrs->snd_wscale = attrs->wscale_ok ? cookie->wscale : 0;
	attrs->rcv_wscale = attrs->wscale_ok ? COOKIE_WSCALE : 0;
	attrs->sack_ok = cookie->has_sack;
	/* A client that agreed on timestamps sends them in every segment, RFC 7323 3.2. */
	attrs->tstamp_ok = options->has_timestamp;
	attrs->rcv_tsval = options->tsval;
	attrs->rcv_tsecr = options->tsecr;
}

static __always_inline bool assign_request(struct __sk_buff *skb, const struct segment *segment,
					   struct bpf_tcp_req_attrs *attrs)
{
	struct sock_common *socket = lookup_socket(skb, segment);
	struct tcp_sock *listener;
	bool is_assigned = false;

	if (!socket)
		return false;
	listener = bpf_skc_to_tcp_sock(socket);
	if (listener)
		is_assigned = !bpf_sk_assign_tcp_reqsk(skb, (struct sock *)listener, attrs, sizeof(*attrs));
	bpf_sk_release(socket);
	return is_assigned;
}

/*
 * True when the segment ends a handshake by one of the guard's cookies. The kernel then makes it a
 * connection of its listener.
 */
static __noinline int take_cookie(struct __sk_buff *skb, const struct segment *segment)
{
	struct workspace *work = workspace_for(segment, segment->seq - 1);
	struct bpf_tcp_req_attrs attrs = {};

	if (!work || !bpf_ksym_exists(bpf_sk_assign_tcp_reqsk))
		return false;
	if (!open_cookie(&work->keys, &work->flow, segment->ack - 1, cookie_period(bpf_ktime_get_ns()), &work->said) ||
	    !load_tcp(skb, HOOK_TC, segment, &work->tcp))
		return false;
	read_options(&work->tcp, tcp_header_bytes(segment), &work->offered);
	describe_request(segment, &work->said, &work->offered, &attrs);
	return assign_request(skb, segment, &attrs);
}

#endif
