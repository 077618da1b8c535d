//! What is left is what connect(2) can still have.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use netns::{Namespace, VethPair};
use ports::{Advice, Settings, Survey, advise};

/// A client with 200 ports, and a server that waits until the client has closed.
fn world() -> Option<(Namespace, Namespace, SocketAddr)> {
    if let Err(reason) = netns::root_or_reason() {
        eprintln!("{reason}");
        return None;
    }
    let client = Namespace::create("client").expect("create");
    let server = Namespace::create("server").expect("create");
    VethPair::create(&client, "c0", &server, "s0").expect("create veth");
    client.ip(&["addr", "add", "10.8.0.1/24", "dev", "c0"]).expect("address");
    server.ip(&["addr", "add", "10.8.0.2/24", "dev", "s0"]).expect("address");
    client.set_sysctl("net.ipv4.ip_local_port_range", "2000 2199").expect("sysctl");
    client.set_sysctl("net.ipv4.tcp_tw_reuse", "0").expect("sysctl");
    let listener = server.enter(|| TcpListener::bind("10.8.0.2:8080")).expect("enter").expect("bind");
    let address = listener.local_addr().expect("address");
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { return };
            std::thread::spawn(move || connection.read_to_end(&mut Vec::new()).ok());
        }
    });
    Some((client, server, address))
}

fn take(client: &Namespace) -> (Settings, Survey) {
    let look = || {
        let settings = Settings::read().expect("read");
        let survey = Survey::take(&settings).expect("list");
        (settings, survey)
    };
    client.enter(look).expect("enter")
}

/// Connections until there is no port.
fn connect_all(client: &Namespace, to: SocketAddr) -> Vec<TcpStream> {
    let connect = || {
        let mut all = Vec::new();
        loop {
            match TcpStream::connect(to) {
                Ok(stream) => all.push(stream),
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => return all,
                Err(error) => panic!("connect: {error}"),
            }
        }
    };
    client.enter(connect).expect("enter")
}

#[test]
fn root_ports_left_are_those_that_connect_finds() {
    let Some((client, _server, address)) = world() else { return };
    for _ in 0..150 {
        let stream = client.enter(|| TcpStream::connect(address)).expect("enter").expect("connect");
        drop(stream);
    }
    let start = Instant::now();
    let (settings, survey) = loop {
        let (settings, survey) = take(&client);
        if survey.pairs[0].open == 0 {
            break (settings, survey);
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{survey:?}");
    };
    let pair = &survey.pairs[0];
    // Nearly all: where the accept queue is full for a moment, a connection ends without TIME_WAIT.
    assert!((140..=150).contains(&pair.time_wait), "{pair:?}");
    assert_eq!((pair.to, pair.left), (address, 200 - pair.time_wait));
    let (left, kept) = (pair.left, pair.time_wait);
    let advice: Vec<String> = advise(&survey, &settings).iter().map(ToString::to_string).collect();
    assert!(advice.iter().any(|line| line.contains("tcp_tw_reuse=1")), "{advice:?}");
    let open = connect_all(&client, address);
    assert_eq!(open.len(), left as usize);

    client.set_sysctl("net.ipv4.tcp_tw_reuse", "1").expect("sysctl");
    std::thread::sleep(Duration::from_millis(1_100));
    let (settings, survey) = take(&client);
    assert_eq!((survey.pairs[0].open, survey.pairs[0].left), (left, kept));
    let advice = advise(&survey, &settings);
    assert!(matches!(advice.as_slice(), [Advice::OtherEnd { .. }]), "what could be wrong: {advice:?}");
    let others = connect_all(&client, address);
    assert_eq!(others.len(), kept as usize);
    let (settings, survey) = take(&client);
    assert_eq!(survey.pairs[0].left, 0);
    let advice: Vec<String> = advise(&survey, &settings).iter().map(ToString::to_string).collect();
    assert!(advice.iter().any(|line| line.starts_with("connect to 10.8.0.2:8080 from more")), "{advice:?}");
}
