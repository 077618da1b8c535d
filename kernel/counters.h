/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The guard's counters, one row for each. All that shows counters is made from these rows:
 *
 * - stats.h: the structs, for BPF and for the host
 * - crates/kernel: a table in Rust, for the JSON, its schema, Prometheus, the simulator,
 *   the lab and the packet scripts
 *
 * A row is COUNTER(field, name, unit, who, shown, help):
 *
 * - name in JSON and in results: a group, a dot, and the name in the group
 * - who counts it: KERNEL (the programs alone), or BOTH (also the simulator's guard)
 * - shown to Prometheus: SHOWN(family, value of its label), or HIDDEN
 *
 * This file has macros only: the preprocessor leaves nothing of it but their expansions.
 */
#ifndef TIDEGATE_COUNTERS_H
#define TIDEGATE_COUNTERS_H

/*
 * Counters of one listener. The guard examines segments that would end a handshake only while the
 * accept queue may overflow.
 */
#define LISTENER_COUNTERS(COUNTER) \
	COUNTER(seen, "syns.seen", "SYNs", BOTH, HIDDEN, \
		"new ones to the listener: admitted + dropped + reset + cookies + unsent") \
	COUNTER(admitted, "syns.admitted", "SYNs", BOTH, SHOWN(guard_syns, "admitted"), \
		"left to the kernel, which may still drop them") \
	COUNTER(dropped, "syns.dropped", "SYNs", BOTH, SHOWN(guard_syns, "dropped"), \
		"dropped without an answer") \
	COUNTER(reset, "syns.reset", "SYNs", BOTH, SHOWN(guard_syns, "reset"), \
		"answered with RST") \
	COUNTER(cookies, "syns.cookies", "SYNs", BOTH, SHOWN(guard_syns, "cookie"), \
		"answered with SYN/ACK and a cookie of ours") \
	COUNTER(unsent, "syns.unsent", "SYNs", KERNEL, SHOWN(guard_syns, "unsent"), \
		"to be answered, but no route leads to the client, or the frame cannot be rewritten: passed or lost") \
	COUNTER(over_budget, "syns.over_budget", "SYNs", KERNEL, SHOWN(guard_syns_over_budget, ""), \
		"of dropped: to be answered, but there have been too many answers") \
	COUNTER(late, "syns.late", "SYNs", KERNEL, SHOWN(guard_syns_late, ""), \
		"beside seen: dropped when the kernel came to them, as the last place was promised by then") \
	COUNTER(first, "syns.first", "SYNs", BOTH, HIDDEN, \
		"of seen, in a dry run: not sent before, as far as the guard remembers") \
	COUNTER(accept_full, "syns.accept_full", "SYNs", BOTH, SHOWN(guard_syns_found_full, "accept"), \
		"of seen: found the accept queue full") \
	COUNTER(syn_full, "syns.syn_full", "SYNs", BOTH, SHOWN(guard_syns_found_full, "syn"), \
		"of seen: found the SYN queue full") \
	COUNTER(server_full, "syns.server_full", "SYNs", BOTH, SHOWN(guard_syns_found_full, "server"), \
		"of seen: refused although the accept queue had room, as many waited for the server as may, or as long") \
	COUNTER(acks_full, "acks.full", "segments", BOTH, HIDDEN, \
		"would end a handshake, and found no place in the accept queue: dropped + reset + what the policy leaves to the kernel") \
	COUNTER(acks_implied, "acks.implied", "segments", BOTH, HIDDEN, \
		"of full: data or FIN, so that a segment before them did not end it") \
	COUNTER(acks_dropped, "acks.dropped", "segments", BOTH, SHOWN(guard_acks, "dropped"), \
		"of full: dropped, to keep a reserved place") \
	COUNTER(acks_reset, "acks.reset", "segments", BOTH, SHOWN(guard_acks, "reset"), \
		"of full: the client got a RST, and the request socket went") \
	COUNTER(cookies_back, "acks.cookies_back", "handshakes", BOTH, HIDDEN, \
		"by cookies of ours, given to the kernel") \
	COUNTER(fins, "fins.seen", "FINs", BOTH, HIDDEN, \
		"of established connections, under rst-fin") \
	COUNTER(fins_reset, "fins.reset", "FINs", BOTH, SHOWN(guard_fins, "reset"), \
		"destroyed their connection at both ends")

/* Counters of all frames. All but the first say why a frame passed, whatever the policy. */
#define PATH_COUNTERS(COUNTER) \
	COUNTER(frames, "passed.frames", "frames", KERNEL, HIDDEN, \
		"all that the programs saw") \
	COUNTER(not_ip, "passed.not_ip", "frames", KERNEL, HIDDEN, \
		"neither IPv4 nor IPv6") \
	COUNTER(not_tcp, "passed.not_tcp", "frames", KERNEL, HIDDEN, \
		"of another protocol") \
	COUNTER(fragment, "passed.fragment", "frames", KERNEL, HIDDEN, \
		"a part of a packet") \
	COUNTER(malformed, "passed.malformed", "frames", KERNEL, HIDDEN, \
		"that cannot be read") \
	COUNTER(not_syn, "passed.not_syn", "frames", KERNEL, HIDDEN, \
		"without SYN, or with RST or FIN: every data segment, too") \
	COUNTER(had_room, "passed.had_room", "frames", KERNEL, HIDDEN, \
		"of not_syn: with ACK, and not looked up while a queue might overflow, as the last SYN had seen room") \
	COUNTER(syn_ack, "passed.syn_ack", "frames", KERNEL, HIDDEN, \
		"to a client on this host") \
	COUNTER(not_guarded, "passed.not_guarded", "SYNs", KERNEL, HIDDEN, \
		"to another address or port") \
	COUNTER(other_host, "passed.other_host", "SYNs", KERNEL, HIDDEN, \
		"bridged or forwarded, not for this host") \
	COUNTER(martian, "passed.martian", "SYNs", KERNEL, HIDDEN, \
		"between addresses that must not be answered") \
	COUNTER(again, "passed.again", "SYNs", KERNEL, HIDDEN, \
		"let through at an interface below, as that of a VLAN below a bridge, and counted there") \
	COUNTER(no_listener, "passed.no_listener", "SYNs", KERNEL, HIDDEN, \
		"to a guarded address where nothing listens") \
	COUNTER(known, "passed.known", "SYNs", BOTH, HIDDEN, \
		"of a connection or attempt that the kernel already has") \
	COUNTER(unleased, "passed.unleased", "segments", KERNEL, SHOWN(guard_unleased, ""), \
		"would have been acted on, had the agent been heard of within its lease")

/*
 * Names in Prometheus: FAMILY(name, label, help). The label tells the counters of a family apart. A
 * family of one counter has no label, "".
 */
#define FAMILIES(FAMILY) \
	FAMILY(guard_syns, "outcome", "SYNs of guarded listeners, by what became of them") \
	FAMILY(guard_syns_found_full, "place", \
		"SYNs that found a queue full, or were refused for the server alone; one may be in both queues' counts") \
	FAMILY(guard_syns_over_budget, "", "Of the SYNs dropped, those beyond the most that are answered in a second") \
	FAMILY(guard_syns_late, "", "Beside all of these, SYNs dropped when the kernel came to them, as the last place was promised by then") \
	FAMILY(guard_acks, "outcome", "Ends of handshakes that were not let through") \
	FAMILY(guard_fins, "outcome", "FINs whose connection was destroyed") \
	FAMILY(guard_unleased, "", "Segments that were left to the kernel because the guard did not run")

#endif
