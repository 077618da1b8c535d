// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Which processes hold a listener. /proc/PID/fd says so only to somebody with CAP_SYS_PTRACE and
 * CAP_DAC_READ_SEARCH, with which every file and all memory can be read. This needs no more than
 * the guard has: CAP_BPF and CAP_PERFMON.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>

enum {
	LISTEN = 10,			/* TCP_LISTEN; that of other families, too */
	UNKILLABLE = 0x40,		/* SIGNAL_UNKILLABLE, include/linux/sched/signal.h: init of a pid namespace */
};

/*
 * Writes a record for each descriptor of a listening socket, of any family. It has the socket's
 * inode number, the process as the first pid namespace numbers it, and whether that is the init of
 * its own.
 */
SEC("iter/task_file")
int list_holders(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;
	struct socket *socket;
	__u64 record[3];

	if (!task || !file)
		return 0;
	socket = bpf_sock_from_file(file);
	if (!socket || !socket->sk || socket->sk->__sk_common.skc_state != LISTEN)
		return 0;
	record[0] = file->f_inode->i_ino;
	record[1] = task->tgid;
	record[2] = !!(task->signal->flags & UNKILLABLE);
	bpf_seq_write(ctx->meta->seq, record, sizeof(record));
	return 0;
}

/* Our code is GPL-2.0 OR Apache-2.0. The kernel has no word for that. */
char LICENSE[] SEC("license") = "GPL";
