/* SPDX-License-Identifier: Apache-2.0 */
/* kernel/unserved.h, with all that it includes, and kernel/returned.h for the host, as kernel/follow.bpf.h and kernel/syn_stage.bpf.h use it; there is one CPU, and no lock. */
#include <linux/types.h>
#include <stdbool.h>
#include <sys/cdefs.h>

struct bpf_spin_lock {
	__u32 val;
};

#include "returned.h"
#include "unserved.h"

void tidegate_begin(struct service *service, const struct pace *pace, struct wait *wait, __u32 handshake_us, __u64 now)
{
	arrive(service, pace, handshake_us, now);
	begin(service, pace, wait, handshake_us, now);
}

void tidegate_go_on(struct service *service, const struct pace *pace, struct wait *wait, __u64 now)
{
	go_on(service, pace, wait, now);
}

void tidegate_end(struct service *service, const struct pace *pace, const struct wait *wait, bool is_answered, __u64 now)
{
	end(service, pace, wait, is_answered, bucket_of((now - wait->since_ns) / NS_PER_US), now);
}

/* What the SYN stage reads, into the fields of struct listener_load in their order. */
void tidegate_read_service(struct service *service, const struct pace *pace, __u64 now, __u32 load[9])
{
	struct listener_load its_load = {
		.accept_qlen = load[0],
		.accept_limit = load[1],
		.syn_qlen = load[2],
		.syn_limit = load[3],
	};

	if (now >= service->epoch_ends_ns)
		turn_epochs(service, pace, now);
	read_waiting(service, pace, now, &its_load);
	load[4] = its_load.unserved;
	load[5] = its_load.unserved_limit;
	load[6] = its_load.promised;
	load[7] = its_load.sojourn_us;
	load[8] = its_load.answers_per_s;
}

bool tidegate_may_exceed(struct service *service, const struct pace *pace, __u64 now, const __u32 load[9], bool is_found, bool is_owed)
{
	const struct listener_load its_load = { .unserved = load[4], .unserved_limit = load[5] };

	return may_go_past(service, pace, count_past(&its_load, is_found, 0), is_owed, now);
}

bool tidegate_may_defer(struct service *service, const struct pace *pace, __u64 now)
{
	return defer(service, pace, now);
}

void tidegate_repay(struct service *service, const struct pace *pace, __u64 now)
{
	repay(service, pace, now);
}

__u64 tidegate_next_refused(__u64 word, __u32 hash, __u32 seq, __u32 outcome)
{
	return next_refused(word, hash, seq, (enum outcome)outcome);
}

__u64 tidegate_next_unanswered(__u64 word, __u32 hash, __u32 seq, __u32 outcome, __u64 now)
{
	return next_unanswered(word, hash, seq, (enum outcome)outcome, now);
}

bool tidegate_is_unanswered(__u32 outcome)
{
	return is_unanswered((enum outcome)outcome);
}

bool tidegate_is_marked(__u64 word, __u32 hash, __u64 now)
{
	return is_marked(word, hash, now);
}

__u64 tidegate_mark(__u64 word, __u32 hash, __u64 now)
{
	return with_mark(word, hash, now);
}

bool tidegate_is_back(__u64 word, __u32 hash, __u32 seq)
{
	return is_back(word, hash, seq);
}

__u32 tidegate_read_unanswered(__u64 word, __u32 hash, __u32 seq)
{
	return read_unanswered(word, hash, seq);
}

bool tidegate_may_defer_again(__u64 word, __u32 hash, __u32 seq, __u64 now)
{
	return may_defer_again(word, hash, seq, now);
}

/* Its places in the three tables: word of those that got a RST, row of those that got no answer, word of their marks. */
void tidegate_places_of(__u32 hash, __u32 places[3])
{
	places[0] = refused_index_of(hash);
	places[1] = unanswered_row_of(hash);
	places[2] = marks_index_of(hash);
}

/* And how many there are of each, as log2. */
void tidegate_places(__u32 shifts[3])
{
	shifts[0] = REFUSED_SHIFT;
	shifts[1] = UNANSWERED_SHIFT;
	shifts[2] = MARKS_SHIFT;
}

__u32 tidegate_which_word(const __u64 words[2], __u32 hash, __u32 seq, __u64 now)
{
	const struct unanswered_row row = { .words = { words[0], words[1] } };

	return which_word(&row, hash, seq, now);
}

void tidegate_expect(struct service *service, const struct pace *pace, __u64 now)
{
	expect(service, pace, now);
}

__SIZE_TYPE__ tidegate_size_of_service(void)
{
	return sizeof(struct service);
}

__SIZE_TYPE__ tidegate_size_of_pace(void)
{
	return sizeof(struct pace);
}

__SIZE_TYPE__ tidegate_size_of_wait(void)
{
	return sizeof(struct wait);
}

__u32 tidegate_longest_handshake_us(void)
{
	return LONGEST_HANDSHAKE_US;
}
