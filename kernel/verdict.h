/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What happens to a segment: a pure function of the policy, the listener's load and the time. No map, no clock,
 * no kernel pointer. The BPF programs include this file, and crates/verdict compiles it for the host.
 *
 * The includer provides __u32 and __u64: vmlinux.h in BPF, <linux/types.h> on the host.
 */
#ifndef TIDEGATE_VERDICT_H
#define TIDEGATE_VERDICT_H

/* What to do with a segment. The numbers are shared with crates/verdict. */
enum verdict {
	VERDICT_ADMIT = 0,	/* leave it to the kernel */
	VERDICT_DROP = 1,	/* say nothing: the client tries again later */
	VERDICT_RESET = 2,	/* answer with RST: the client knows at once */
};

/* A listener's two queues, in connections. Read at the moment of the decision. */
struct listener_load {
	__u32 accept_qlen;	/* established, waiting for accept(2) */
	__u32 accept_limit;	/* min(listen backlog, somaxconn) */
	__u32 syn_qlen;		/* request sockets: handshakes in progress */
	__u32 syn_limit;
};

/* One answer for each stage; 0 (VERDICT_ADMIT) everywhere is the stock kernel. */
struct listener_policy {
	__u32 syn_when_accept_full;	/* enum verdict for a SYN that finds the accept queue full */
};

/*
 * Greater than, as in sk_acceptq_is_full(): listen(fd, N) queues N + 1 connections, so that a backlog of 0 still
 * works (Linux 64a146513f8f). With >= we would refuse one connection early.
 */
static inline int accept_queue_is_full(const struct listener_load *load)
{
	return load->accept_qlen > load->accept_limit;
}

/* As in inet_csk_reqsk_queue_is_full(): here the limit itself counts as full. */
static inline int syn_queue_is_full(const struct listener_load *load)
{
	return load->syn_qlen >= load->syn_limit;
}

/*
 * SYN stage: may this attempt start?
 *
 * Only the accept queue decides. Handshakes in flight fill the SYN queue at every burst, and the kernel has an
 * answer for that which loses nobody, the SYN cookie; a reset there would refuse far too much.
 *
 * `now_ns` is for policies that look at the past; these two do not.
 */
static inline enum verdict admit_syn(const struct listener_policy *policy, const struct listener_load *load,
				     __u64 now_ns)
{
	(void)now_ns;
	if (accept_queue_is_full(load))
		return (enum verdict)policy->syn_when_accept_full;
	return VERDICT_ADMIT;
}

#endif
