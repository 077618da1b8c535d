//! Invented runs for tests. Their numbers are shaped like the prototype's in DESIGN.md, not
//! measured.

use std::collections::BTreeMap;

use results::{
    Answer, BottleneckSummary, BurstLengths, Cell, ClaimAnswer, CpuShares, CrowdSummary, Environment,
    Estimate, Flood, GeneratorHealth, Header, LatencySummary, Record, Sample, Saturation, Unit,
};

use crate::Run;

/// Saturation rate of every invented server, replies/s.
const RATE: f64 = 23_000.0;

/// A name that breaks out of HTML wherever it is not escaped.
pub(crate) const HOSTILE: &str = "\"'><b onload=alert(1)>&amp;";

/// Results of one cell: policy, load, goodput per second, mean in ms, SYNs per attempt, share
/// refused.
type Measured = (&'static str, f64, f64, f64, f64, f64);

const BUILT_IN: [Measured; 12] = [
    ("stock", 0.5, 11_500.0, 0.412, 1.0, 0.0),
    ("abort", 0.5, 11_490.0, 0.408, 1.0, 0.0),
    ("rst-syn", 0.5, 11_500.0, 0.431, 1.0, 0.0),
    ("stock", 1.0, 22_400.0, 48.1, 1.08, 0.0),
    ("abort", 1.0, 22_100.0, 39.9, 1.02, 0.012),
    ("rst-syn", 1.0, 22_800.0, 9.4, 1.0, 0.006),
    ("stock", 1.5, 17_642.0, 1040.0, 2.9, 0.0),
    ("abort", 1.5, 18_812.0, 903.0, 2.1, 0.11),
    ("rst-syn", 1.5, 23_110.0, 22.1, 1.01, 0.322),
    ("stock", 4.0, 12_600.0, 1230.0, 4.6, 0.0),
    ("abort", 4.0, 9_100.0, 1270.0, 3.8, 0.21),
    ("rst-syn", 4.0, 16_800.0, 514.0, 1.03, 0.79),
];

/// A run like the demo's: two servers, three policies, four loads, one marked cell.
pub(crate) fn demo() -> Run {
    let built_in = BUILT_IN.iter().map(|measured| measured_cell("built-in", *measured, 1.0));
    let nginx = BUILT_IN.iter().map(|measured| measured_cell("nginx", *measured, 0.7));
    let mut run = run(built_in.chain(nginx).collect());
    run.claims = claims();
    let last = run.cells.last_mut().expect("two servers");
    last.marks = vec!["generator limited: 3.1% of attempts started more than 1 ms late".to_owned()];
    last.lost_replies = 1_204;
    run
}

/// The demo's built-in server, three repetitions of each point.
pub(crate) fn repeated() -> Run {
    let cells = BUILT_IN.iter().flat_map(|measured| {
        [1.0, 0.93, 1.05]
            .into_iter()
            .zip(0..)
            .map(|(factor, repetition)| Cell { repetition, ..measured_cell("built-in", *measured, factor) })
    });
    run(cells.collect())
}

/// One claim for each answer.
pub(crate) fn claims() -> Vec<ClaimAnswer> {
    let claim = |text: &str, mean: f64, half: f64, answer| ClaimAnswer {
        experiment: "demo".to_owned(),
        server: "built-in".to_owned(),
        source: "[Shu05] figure 4.7(a)".to_owned(),
        text: text.to_owned(),
        measured: format!("goodput of {text}"),
        unit: Unit::Ratio,
        paper: Some(1.35),
        at_least: Some(1.27),
        at_most: None,
        ours: Some(Estimate { mean, low: mean - half, high: mean + half, count: 3 }),
        answer,
        marks: Vec::new(),
        why: None,
    };
    vec![
        claim("after the peak it answers more", 1.34, 0.02, Answer::Holds),
        ClaimAnswer {
            at_least: None,
            at_most: Some(1.1),
            ..claim("after the peak it answers the same", 1.2, 0.01, Answer::Fails)
        },
        claim("nobody knows", 1.3, 0.09, Answer::Undecided),
        ClaimAnswer {
            ours: None,
            marks: vec!["rst-fin was not measured at 1.5 times saturation".to_owned()],
            ..claim("nothing came of it", 1.0, 0.0, Answer::NotMeasured)
        },
    ]
}

/// A cell of the scenario `paper`.
pub(crate) fn link_cell(queue: &str, link: BottleneckSummary) -> Cell {
    Cell {
        server: "paper".to_owned(),
        policy: queue.to_owned(),
        load: 1.0,
        link: Some(Box::new(link)),
        ..Cell::default()
    }
}

/// A run whose every name tries to be markup.
pub(crate) fn hostile() -> Run {
    let mut cells = vec![cell(HOSTILE, 1.5, HOSTILE), guarded(HOSTILE, 1.5, "rst-syn")];
    cells[0].marks = vec![HOSTILE.to_owned()];
    cells[0].kernel.insert(HOSTILE.to_owned(), 1);
    cells[1].marks = vec!["x".repeat(300)];
    let mut run = run(cells);
    run.claims = claims();
    run.claims[0].text = HOSTILE.to_owned();
    run.claims[0].marks = vec![HOSTILE.to_owned()];
    run.header.title = HOSTILE.to_owned();
    run.header.source = HOSTILE.to_owned();
    run.header.experiment = HOSTILE.to_owned();
    run.header.deviations = vec![HOSTILE.to_owned()];
    run
}

/// A run that was interrupted before its first measurement.
pub(crate) fn empty() -> Run {
    Run {
        header: header(),
        saturations: Vec::new(),
        cells: Vec::new(),
        traces: Vec::new(),
        claims: Vec::new(),
    }
}

/// A run of these cells, with the saturation of each of their servers.
pub(crate) fn run(cells: Vec<Cell>) -> Run {
    let mut run = Run { cells, ..empty() };
    run.saturations = run.servers().into_iter().map(saturation).collect();
    run
}

/// The run as a results file.
pub(crate) fn json_lines(run: &Run) -> String {
    let header = Record::Header(Box::new(run.header.clone()));
    let saturations = run.saturations.iter().cloned().map(Record::Saturation);
    let cells = run.cells.iter().cloned().map(|cell| Record::Cell(Box::new(cell)));
    let claims = run.claims.iter().cloned().map(|claim| Record::Claim(Box::new(claim)));
    let records = [header].into_iter().chain(saturations).chain(cells).chain(claims);
    records.map(|record| serde_json::to_string(&record).expect("finite numbers") + "\n").collect()
}

/// A cell without a guard: half of the attempts answered, after 1 ms on average.
pub(crate) fn cell(server: &str, load: f64, policy: &str) -> Cell {
    let crowd = crowd(load * RATE, load * RATE / 2.0, 1.0, 1.0, 0.0);
    Cell {
        crowd,
        server_cpu: cpu(load),
        crowd_cpu: CpuShares { user: 0.3, system: 0.1, idle: 0.6, ..CpuShares::default() },
        ..cell_without_crowd(server, load, policy)
    }
}

/// The same cell with a guard.
pub(crate) fn guarded(server: &str, load: f64, policy: &str) -> Cell {
    Cell {
        guard: Some(counters(&[
            ("seen", 412_000),
            ("admitted", 401_234),
            ("reset", 10_766),
            ("malformed", 0),
        ])),
        ..cell(server, load, policy)
    }
}

/// The same cell beside a flood.
pub(crate) fn flooded(server: &str, load: f64, policy: &str) -> Cell {
    let flood = Flood { syns_per_s: 413_920.0, answers_per_s: 148_862.0 };
    Cell { flood: Some(flood), ..cell(server, load, policy) }
}

/// A cell in which nothing was offered and nothing happened.
pub(crate) fn cell_without_crowd(server: &str, load: f64, policy: &str) -> Cell {
    Cell { server: server.to_owned(), policy: policy.to_owned(), load, ..Cell::default() }
}

/// The cell with another goodput per second and mean response time in ms.
pub(crate) fn answering(mut cell: Cell, goodput: f64, mean_ms: f64) -> Cell {
    cell.crowd = crowd(cell.crowd.offered_per_s, goodput, mean_ms, 1.0, 0.0);
    cell
}

fn measured_cell(server: &str, measured: Measured, factor: f64) -> Cell {
    let (policy, load, goodput, mean_ms, syns, refused) = measured;
    let mut cell =
        if policy == "rst-syn" { guarded(server, load, policy) } else { cell(server, load, policy) };
    cell.crowd = crowd(load * RATE, goodput * factor, mean_ms / factor, syns, refused);
    let overflows = (syns - 1.0) * load * RATE * 5.0;
    cell.kernel = counters(&[
        ("TcpExt.ListenOverflows", overflows as u64),
        ("TcpExt.ListenDrops", (overflows * 1.01) as u64),
        ("TcpExt.TCPReqQFullDoCookies", 0),
        ("TcpExt.SyncookiesSent", (overflows * 0.2) as u64),
        ("TcpExt.TCPAutoCorking", 17),
        ("Tcp.OutRsts", (refused * 20_000.0) as u64),
        ("Tcp.RetransSegs", (overflows * 0.1) as u64),
    ]);
    cell.samples = samples(load, overflows);
    cell.lost_before_server = if load > 3.0 { 5_321 } else { 0 };
    cell
}

fn samples(load: f64, overflows: f64) -> Vec<Sample> {
    (0..40)
        .map(|index| {
            let share = f64::from(index) / 39.0;
            let wobble = (f64::from(index) * 0.9).sin().abs();
            Sample {
                at_ms: share * 10_000.0,
                kernel: counters(&[("TcpExt.ListenOverflows", (overflows * share) as u64)]),
                accept_qlen: Some(((load * 60.0).min(129.0) * (0.6 + 0.4 * wobble)) as u64),
            }
        })
        .collect()
}

/// A crowd of a window of five seconds whose causes sum to its attempts.
fn crowd(
    offered_per_s: f64,
    goodput_per_s: f64,
    mean_ms: f64,
    syns: f64,
    refused_share: f64,
) -> CrowdSummary {
    let window_s = 5.0;
    let offered = (offered_per_s * window_s) as u64;
    let ok = ((goodput_per_s * window_s) as u64).min(offered);
    let refused = ((offered as f64 * refused_share) as u64).min(offered - ok);
    let failed = offered - ok - refused;
    CrowdSummary {
        window_s,
        offered_per_s,
        goodput_per_s,
        syns_per_s: offered_per_s * syns,
        offered,
        sent: offered,
        ok,
        refused,
        reset: failed / 7,
        timed_out_connect: failed - failed / 7 - failed / 11,
        timed_out_response: failed / 11,
        syns_per_attempt: syns,
        ended_by_syns: vec![ok, 0, failed],
        response_ms: latency(ok, mean_ms),
        refusal_ms: latency(refused, 0.2),
        generator: GeneratorHealth {
            late_share: 0.0004,
            late_max_ms: 1.7,
            frames_sent: offered * 4,
            frames_received: ok * 3,
            cpu_share: 0.61,
            turns: offered,
            busy_share: 0.34,
            peak_connections: 21_000,
            bytes_per_connection: 152,
            receive_mode: "xdp-native".to_owned(),
            ..GeneratorHealth::default()
        },
        ..CrowdSummary::default()
    }
}

fn latency(count: u64, mean: f64) -> LatencySummary {
    if count == 0 {
        return LatencySummary::default();
    }
    LatencySummary {
        count,
        mean,
        c2: 1.0,
        p50: mean * 0.8,
        p90: mean * 1.9,
        p99: mean * 3.3,
        p999: mean * 4.1,
        max: mean * 5.0,
    }
}

fn cpu(load: f64) -> CpuShares {
    let busy = load.min(1.0);
    let softirq = (0.2 * load).min(0.75);
    CpuShares {
        user: (busy - softirq).max(0.1) * 0.4,
        system: (busy - softirq).max(0.1) * 0.6,
        softirq,
        idle: (1.0 - busy.max(softirq + 0.1)).max(0.0),
        steal: 0.0,
    }
}

fn saturation(server: &str) -> Saturation {
    Saturation {
        server: server.to_owned(),
        rate_per_s: RATE,
        round_trip_us: 1.0,
        probes: vec![
            (10_000.0, 10_000.0),
            (20_000.0, 19_900.0),
            (40_000.0, 17_100.0),
            (28_300.0, 21_300.0),
            (23_800.0, 23_000.0),
            (25_900.0, 22_400.0),
        ],
        marks: Vec::new(),
        users: None,
        bursts: None,
    }
}

/// Stock and rst-syn before bursts and gaps of these lengths, seconds; rst-syn has so many times
/// stock's goodput in each row and column.
pub(crate) fn mapped(on: &[f64], off: &[f64], ratio: impl Fn(usize, usize) -> f64) -> Run {
    let (mut cells, mut saturations) = (Vec::new(), Vec::new());
    for (row, &on_s) in on.iter().enumerate() {
        for (column, &off_s) in off.iter().enumerate() {
            let server = format!("b-{on_s}-{off_s}");
            let goodput = 10_000.0;
            cells.push(measured_cell(&server, ("stock", 1.5, goodput, 10.0, 1.0, 0.0), 1.0));
            let guarded = ("rst-syn", 1.5, goodput * ratio(row, column), 1.0, 1.0, 0.1);
            cells.push(measured_cell(&server, guarded, 1.0));
            saturations
                .push(Saturation { bursts: Some(BurstLengths { on_s, off_s }), ..saturation(&server) });
        }
    }
    Run { saturations, ..run(cells) }
}

fn header() -> Header {
    Header {
        experiment: "demo".to_owned(),
        title: "What does a flash crowd do to a stock server, and what does the guard change?".to_owned(),
        source: "[experiment]\nname = \"demo\"\nloads = [0.5, 1.0, 1.5, 4.0]\n".to_owned(),
        started: "2025-11-20T19:00:00+01:00[Europe/Berlin]".to_owned(),
        environment: Environment {
            kernel: "Linux 6.18.0 #1 SMP PREEMPT_DYNAMIC (invented)".to_owned(),
            cpu: "Invented CPU @ 3.00GHz".to_owned(),
            cpus: 2,
            memory_mib: 7_900,
            versions: pairs(&[("nginx", "1.22.1"), ("rustc", "1.90.0"), ("tidegate", "0.1.0")]),
            sysctls: pairs(&[
                ("net.core.somaxconn", "4096"),
                ("net.ipv4.tcp_abort_on_overflow", "0"),
                ("net.ipv4.tcp_syncookies", "1"),
            ]),
        },
        deviations: vec![
            "Segmentation and checksum offloads are off on both ends of the veth pair.".to_owned(),
            "Receive processing shares the server's CPU through RPS instead of a NIC's interrupt.".to_owned(),
        ],
        planned: None,
        is_quick: false,
    }
}

fn counters(named: &[(&str, u64)]) -> BTreeMap<String, u64> {
    named.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
}

fn pairs(named: &[(&str, &str)]) -> BTreeMap<String, String> {
    named.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}
