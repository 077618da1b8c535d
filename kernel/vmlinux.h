/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The kernel types that our programs use, and no more: first the user-space ABI (fixed layout),
 * then kernel structs by CO-RE, where order and gaps do not matter but names and types do. Each
 * says who reads it. Checked on v6.18.
 */
#ifndef TIDEGATE_VMLINUX_H
#define TIDEGATE_VMLINUX_H

typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;

#define true 1
#define false 0
#define NULL ((void *)0)

/* ---- include/uapi/linux/bpf.h: part of the user-space ABI, so the numbers stay. ---- */

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
};

/* include/uapi/asm-generic/errno-base.h */
enum {
	ENOMEM = 12,
	EBUSY = 16,
	EINVAL = 22,
};

enum xdp_action {
	XDP_ABORTED = 0,
	XDP_DROP = 1,
	XDP_PASS = 2,
	XDP_TX = 3,
	XDP_REDIRECT = 4,
};

/* A tc verdict; TCX_NEXT has the same number as TC_ACT_UNSPEC, TCX_DROP as TC_ACT_SHOT. */
enum {
	TC_ACT_UNSPEC = -1,
	TC_ACT_SHOT = 2,
	TC_ACT_REDIRECT = 7,
};

enum {
	BPF_NOEXIST = 1,
};

enum {
	BPF_F_CURRENT_NETNS = -1,
	BPF_ADJ_ROOM_MAC = 1,
	BPF_F_INGRESS = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_CLONE = 1 << 9,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_SK_STORAGE_GET_F_CREATE = 1,
};

struct bpf_sock;

struct xdp_md {
	__u32 data;
	__u32 data_end;
	__u32 data_meta;
	__u32 ingress_ifindex;
	__u32 rx_queue_index;
	__u32 egress_ifindex;
};

struct __sk_buff {
	__u32 len;
	__u32 pkt_type;
	__u32 mark;
	__u32 queue_mapping;
	__u32 protocol;
	__u32 vlan_present;
	__u32 vlan_tci;
	__u32 vlan_proto;
	__u32 priority;
	__u32 ingress_ifindex;
	__u32 ifindex;
	__u32 tc_index;
	__u32 cb[5];
	__u32 hash;
	__u32 tc_classid;
	__u32 data;
	__u32 data_end;
	__u32 napi_id;
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 data_meta;
	void *flow_keys __attribute__((aligned(8)));
	__u64 tstamp;
	__u32 wire_len;
	__u32 gso_segs;
	struct bpf_sock *sk __attribute__((aligned(8)));
};

struct bpf_sock {
	__u32 bound_dev_if;
	__u32 family;
	__u32 type;
	__u32 protocol;
	__u32 mark;
	__u32 priority;
	__be32 src_ip4;
	__be32 src_ip6[4];
	__u32 src_port;			/* host order */
};

enum {
	BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB = 5,
	BPF_SOCK_OPS_STATE_CB = 10,
	BPF_SOCK_OPS_HDR_OPT_LEN_CB = 14,
	BPF_SOCK_OPS_STATE_CB_FLAG = 1 << 2,
	BPF_SOCK_OPS_WRITE_HDR_OPT_CB_FLAG = 1 << 6,
	BPF_WRITE_HDR_TCP_CURRENT_MSS = 1,
};

struct bpf_spin_lock {
	__u32 val;
};

/* Their content is the kernel's own. */
struct bpf_list_head {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_list_node {
	__u64 opaque[3];
} __attribute__((aligned(8)));

struct bpf_rb_root {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_rb_node {
	__u64 opaque[4];
} __attribute__((aligned(8)));

struct bpf_refcount {
	__u32 opaque[1];
} __attribute__((aligned(4)));

struct bpf_dynptr {
	__u64 opaque[2];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

struct bpf_sock_ops {
	__u32 op;
	__u32 args[4];
	__u32 family;
	__u32 remote_ip4;
	__u32 local_ip4;
	__u32 remote_ip6[4];
	__u32 local_ip6[4];
	__u32 remote_port;
	__u32 local_port;
	__u32 is_fullsock;
	__u32 snd_cwnd;
	__u32 srtt_us;
	__u32 bpf_sock_ops_cb_flags;
	__u32 state;
	__u32 rtt_min;
	__u32 snd_ssthresh;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 mss_cache;
	__u32 ecn_flags;
	__u32 rate_delivered;
	__u32 rate_interval_us;
	__u32 packets_out;
	__u32 retrans_out;
	__u32 total_retrans;
	__u32 segs_in;
	__u32 data_segs_in;
	__u32 segs_out;
	__u32 data_segs_out;
	__u32 lost_out;
	__u32 sacked_out;
	__u32 sk_txhash;
	__u64 bytes_received;
	__u64 bytes_acked;
	struct bpf_sock *sk __attribute__((aligned(8)));
	void *skb_data __attribute__((aligned(8)));
	void *skb_data_end __attribute__((aligned(8)));
	__u32 skb_len;
	__u32 skb_tcp_flags;
};

struct bpf_sockopt {
	struct bpf_sock *sk __attribute__((aligned(8)));
	void *optval __attribute__((aligned(8)));
	void *optval_end __attribute__((aligned(8)));
	__s32 level;
	__s32 optname;
	__s32 optlen;
	__s32 retval;
};

struct bpf_sock_tuple {
	union {
		struct {
			__be32 saddr;
			__be32 daddr;
			__be16 sport;
			__be16 dport;
		} ipv4;
		struct {
			__be32 saddr[4];
			__be32 daddr[4];
			__be16 sport;
			__be16 dport;
		} ipv6;
	};
};

/* include/net/tcp.h: no ABI, but an argument whose size the kernel checks. */
struct bpf_tcp_req_attrs {
	__u32 rcv_tsval;
	__u32 rcv_tsecr;
	__u16 mss;
	__u8 rcv_wscale;
	__u8 snd_wscale;
	__u8 ecn_ok;
	__u8 wscale_ok;
	__u8 sack_ok;
	__u8 tstamp_ok;
	__u8 usec_ts_ok;
	__u8 reserved[3];
};

struct bpf_fib_lookup {
	__u8 family;
	__u8 l4_protocol;
	__be16 sport;
	__be16 dport;
	__u16 tot_len;
	__u32 ifindex;
	union {
		__u8 tos;
		__be32 flowinfo;
	};
	union {
		__be32 ipv4_src;
		__be32 ipv6_src[4];
	};
	union {
		__be32 ipv4_dst;
		__be32 ipv6_dst[4];
	};
	__be16 h_vlan_proto;
	__be16 h_vlan_TCI;
	__u8 smac[6];
	__u8 dmac[6];
};

_Static_assert(sizeof(struct bpf_fib_lookup) == 64, "the helper checks the size");

enum {
	BPF_FIB_LKUP_RET_NOT_FWDED = 4,
	BPF_FIB_LKUP_RET_FWD_DISABLED = 5,
};

/* ---- Kernel structs, by CO-RE. ---- */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	int counter;
} atomic_t;

typedef struct refcount_struct {
	atomic_t refs;
} refcount_t;

struct netns_ipv4 {			/* include/net/netns/ipv4.h */
	__u8 sysctl_ip_default_ttl;	/* read by answer_ttl() */
	__u8 sysctl_tcp_sack;		/* this and the next two: read by offer_options() */
	__u8 sysctl_tcp_window_scaling;
	__u8 sysctl_tcp_timestamps;
	__u8 sysctl_tcp_syncookies;	/* read by on_syn_decided(): 0 never, 1 when the SYN queue is full, 2 always */
	__s32 sysctl_max_syn_backlog;	/* read by is_three_quarters_full(); request sockets */
};

struct netns_sysctl_ipv6 {		/* include/net/netns/ipv6.h; read by automatic_flow_label() and reset_flow_label() */
	__u8 auto_flowlabels;		/* 0 off, 1 on unless the socket says no, 2 off unless, 3 forced */
	__u8 flowlabel_reflect;		/* bit 1: a RST from no socket carries the SYN's label */
	__u8 flowlabel_state_ranges;	/* labels without state have their top bit set */
};

struct netns_ipv6 {			/* include/net/netns/ipv6.h; leads to the above */
	struct netns_sysctl_ipv6 sysctl;
};

struct ns_common {			/* include/linux/ns_common.h; read by is_from_guarded() and identify() */
	unsigned int inum;		/* inode number of /proc/PID/ns/net */
};

struct net {				/* include/net/net_namespace.h; leads to the above */
	struct ns_common ns;
	struct netns_ipv4 ipv4;
	struct netns_ipv6 ipv6;		/* absent without CONFIG_IPV6 */
};

typedef struct {			/* include/net/net_namespace.h; absent without CONFIG_NET_NS */
	struct net *net;
} possible_net_t;

struct in6_addr {			/* include/uapi/linux/in6.h */
	__be32 word[4];
};

struct kernfs_node {			/* include/linux/kernfs.h; read by identify() and is_in_cgroup() */
	__u64 id;
};

struct cgroup_subsys_state {		/* include/linux/cgroup-defs.h; read by is_in_cgroup() */
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {				/* include/linux/cgroup-defs.h; leads to the above */
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct sock_cgroup_data {		/* include/linux/cgroup-defs.h; leads to the above */
	struct cgroup *cgroup;		/* of version 2, in which the socket was made */
};

struct inode {				/* include/linux/fs.h; read by identify() */
	unsigned long i_ino;		/* and by list_holders() */
	__u16 i_mode;			/* read by note_sendfile(), as the next */
};

struct file {				/* include/linux/fs.h */
	struct inode *f_inode;
	void *private_data;		/* of a socket's: its struct socket */
};

struct sock;

struct socket {				/* include/linux/net.h */
	unsigned long flags;		/* read by read_outgoing() */
	struct sock *sk;		/* read by note_sendfile() */
};

struct socket_alloc {			/* include/net/sock.h; leads to the above; begins with a struct socket */
	struct inode vfs_inode;
};

struct sock_common {			/* include/net/sock.h; read by read_listener() and identify() */
	unsigned char skc_ipv6only : 1;
	struct sock *skc_listener;	/* of a request socket; read by find_handshake() */
	__be32 skc_daddr;		/* this and the next four: of a request socket, read by may_request() */
	__be32 skc_rcv_saddr;
	__u16 skc_num;			/* local port, host order */
	struct in6_addr skc_v6_daddr;	/* absent without CONFIG_IPV6 */
	struct in6_addr skc_v6_rcv_saddr;
	__u16 skc_family;
	volatile unsigned char skc_state;
	possible_net_t skc_net;
};

typedef struct {			/* include/net/sock.h; read by is_owned() */
	int owned;			/* not 0: by a process, in a system call */
} socket_lock_t;

struct sock {				/* include/net/sock.h; read by read_listener() */
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	__u32 sk_ack_backlog;		/* accept queue length, connections */
	__u32 sk_max_ack_backlog;	/* its limit: min(listen backlog, somaxconn) */
	atomic_t sk_drops;		/* read by list_listeners(); tcp_listendrop() counts there */
	struct socket *sk_socket;	/* read by identify() and read_outgoing() */
	refcount_t sk_wmem_alloc;	/* read by read_outgoing(): bytes below TCP, as charged, and 1 */
	__u16 sk_protocol;		/* read by note_sendfile() */
	struct sock_cgroup_data sk_cgrp_data;	/* the same; absent without CONFIG_SOCK_CGROUP_DATA */
};

struct inet_sock {			/* include/net/inet_sock.h; leads to sock */
	struct sock sk;
};

struct request_sock_queue {		/* include/net/request_sock.h; read by read_listener() */
	atomic_t qlen;			/* SYN queue length, connections */
};

struct inet_connection_sock {		/* include/net/inet_connection_sock.h; leads to the above */
	struct inet_sock icsk_inet;
	struct request_sock_queue icsk_accept_queue;
};

struct tcp_sock {			/* include/linux/tcp.h; leads to the above, and read by find_connection() */
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;			/* this and write_seq: read by read_outgoing(), too */
	__u32 copied_seq;		/* where the server will read on */
	__u32 write_seq;		/* where it will write on */
	__u32 snd_una;			/* the first byte that is not acknowledged; read by on_fin() of close.bpf.c */
};

struct request_sock {			/* include/net/request_sock.h; read by find_handshake() */
	struct sock_common __req_common;
};

struct inet_request_sock {		/* include/net/inet_sock.h; leads to request_sock */
	struct request_sock req;
};

struct tcp_request_sock {		/* include/linux/tcp.h; leads to request_sock */
	struct inet_request_sock req;
	__u32 rcv_isn;			/* sequence number of its SYN, host order; read by is_repeated_syn() */
};

struct inet_timewait_sock {		/* include/net/inet_timewait_sock.h; read by is_in_time_wait() */
	volatile unsigned char tw_substate;
};

struct tcp_timewait_sock {		/* include/linux/tcp.h; leads to inet_timewait_sock */
	struct inet_timewait_sock tw_sk;
};

enum tcp_synack_type {			/* include/net/tcp.h; read by on_syn_ack() */
	TCP_SYNACK_NORMAL,
	TCP_SYNACK_FASTOPEN,
	TCP_SYNACK_COOKIE,
};

struct ipv6_devconf {			/* include/linux/ipv6.h; read by answer_hop_limit() */
	__s32 hop_limit;
};

struct inet6_dev {			/* include/net/if_inet6.h; leads to the above */
	struct ipv6_devconf cnf;
};

struct net_device {			/* include/linux/netdevice.h */
	const unsigned char *dev_addr;	/* this and the next: read by xdp_is_for_host() */
	__u8 dev_addr_shadow[32];	/* the same address, in the struct itself; from 5.17 */
	unsigned int mtu;		/* read by own_mss() */
	struct inet6_dev *ip6_ptr;	/* read by answer_hop_limit(); absent without CONFIG_IPV6 */
	int ifindex;			/* read by is_own_device() */
	possible_net_t nd_net;		/* the same, and read by net_of_frame() */
};

struct sk_buff {			/* include/linux/skbuff.h */
	struct net_device *dev;
	int skb_iif;			/* read by is_from_guarded() */
	__u8 ip_summed : 2;		/* read by checksum_is_partial() */
	__be16 protocol;		/* read by watch.bpf.c, as the rest */
	__u16 network_header;		/* bytes from `head` */
	__u16 transport_header;
	__u32 len;			/* bytes from `data` */
	unsigned char *head;
	unsigned char *data;
	char cb[48];			/* read by packet_bytes() */
};

struct qdisc_skb_cb {			/* include/net/sch_generic.h; read by packet_bytes(): what `cb` is in a queue */
	unsigned int pkt_len;
	unsigned char data[20];		/* cb[0] to cb[4] of struct __sk_buff; read by told_word() */
};

struct netdev_queue {			/* include/linux/netdevice.h; leads to net_device */
	struct net_device *dev;
};

struct qdisc_skb_head {			/* include/net/sch_generic.h; written by root.bpf.h, as the next two */
	__u32 qlen;			/* packets */
};

struct gnet_stats_queue {		/* include/uapi/linux/gen_stats.h */
	__u32 backlog;			/* bytes */
	__u32 drops;
};

struct Qdisc {				/* include/net/sch_generic.h */
	__u32 handle;			/* read by begin_root() and end_root(), as the next */
	struct netdev_queue *dev_queue;
	struct qdisc_skb_head q;
	struct gnet_stats_queue qstats;
};

struct seq_file;

struct bpf_iter_meta {			/* include/linux/bpf.h; read by list_listeners() and list_holders() */
	struct seq_file *seq;
};

struct bpf_iter__tcp {			/* net/ipv4/tcp_ipv4.c; context of list_listeners() */
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
};

struct signal_struct {			/* include/linux/sched/signal.h; read by list_holders() */
	unsigned int flags;
};

struct task_struct {			/* include/linux/sched.h; read by list_holders() */
	int tgid;			/* the process, in the first pid namespace */
	struct signal_struct *signal;
};

struct bpf_iter__task_file {		/* kernel/bpf/task_iter.c; context of list_holders() */
	struct bpf_iter_meta *meta;
	struct task_struct *task;	/* of each process one, but for threads with files of their own */
	__u32 fd;
	struct file *file;
};

struct xdp_rxq_info {			/* include/net/xdp.h; leads to net_device */
	struct net_device *dev;
};

struct xdp_buff {			/* include/net/xdp.h; leads to net_device */
	struct xdp_rxq_info *rxq;
};

#pragma clang attribute pop

struct nlattr;
struct netlink_ext_ack;

struct Qdisc_ops {			/* include/net/sch_generic.h; libbpf puts the fields where the kernel has them */
	char id[16];			/* by which tc finds it; unique in the kernel */
	int (*enqueue)(struct sk_buff *, struct Qdisc *, struct sk_buff **);
	struct sk_buff *(*dequeue)(struct Qdisc *);
	int (*init)(struct Qdisc *, struct nlattr *, struct netlink_ext_ack *);
	void (*reset)(struct Qdisc *);
	void (*destroy)(struct Qdisc *);
};

#endif
