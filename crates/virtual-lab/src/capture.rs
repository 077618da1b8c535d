//! Captures of simulated links, as pcap files (`tidegate sim --trace`).
//!
//! Times are virtual: nanoseconds since the start of the warm-up. Source of the format:
//! draft-ietf-opsawg-pcap; the magic number is that for nanoseconds.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use files::{try_folder, write_whole};
use nix::sys::statvfs::statvfs;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, TsResolution};
use sim::Capture;

/// Of the largest frame with what the file has about it, bytes.
const MOST_OF_FRAME: u64 = 1514 + 16;

/// Where captures go, and how long each may be.
#[derive(Debug, Clone)]
pub struct Captures {
    /// Folder in which each experiment has its own.
    pub folder: PathBuf,
    /// Frames of each cell that are kept, from its start.
    pub frames: usize,
}

impl Captures {
    /// Looks whether as many files have room where they go, each as long as it may be, and makes
    /// the folder.
    ///
    /// # Errors
    ///
    /// When they have none, or nobody can tell; when it cannot be made, or takes no files.
    pub(crate) fn make_room(&self, files: usize) -> Result<()> {
        let there = self.folder.ancestors().find(|folder| folder.is_dir()).unwrap_or(Path::new("."));
        let room = statvfs(there).with_context(|| format!("ask how much room {} has", there.display()))?;
        let free = room.blocks_available() * room.fragment_size();
        let needed = (self.frames as u64).saturating_mul(files as u64).saturating_mul(MOST_OF_FRAME);
        // What has no room at all, as /proc, is no place for files: the system says it better
        // below.
        ensure!(
            needed <= free || free == 0,
            "captures of {} with up to {} frames each could take {}, and {} has {}; keep fewer frames by --trace-frames",
            counted(files, "cell"),
            self.frames,
            gigabytes(needed),
            there.display(),
            gigabytes(free)
        );
        fs::create_dir_all(&self.folder)
            .and_then(|()| try_folder(&self.folder))
            .with_context(|| format!("make files in the folder for captures, {}", self.folder.display()))
    }

    /// Writes a capture to a file below the folder, all of it or nothing.
    ///
    /// # Errors
    ///
    /// When that cannot be done.
    pub(crate) fn write(&self, path: &[&str], capture: &Capture) -> Result<()> {
        let path = path.iter().fold(self.folder.clone(), |path, name| path.join(name));
        let context = || format!("write the capture {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(context)?;
        }
        write_whole(&path, &pcap(capture)?).with_context(context)
    }
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

fn pcap(capture: &Capture) -> Result<Vec<u8>> {
    let header = PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(Vec::new(), header).context("begin a capture")?;
    for (at, frame) in capture.frames() {
        let orig_len = u32::try_from(frame.len()).context("a frame of gigabytes")?;
        let packet = PcapPacket { timestamp: Duration::from(at), orig_len, data: Cow::Borrowed(frame) };
        writer.write_packet(&packet).context("add a frame to a capture")?;
    }
    Ok(writer.into_writer())
}

/// `1 cell`, `2 cells`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use experiment::Experiment;
    use pcap_file::pcap::PcapReader;
    use wire::{Flags, parse};

    use super::*;
    use crate::{Options, grid};

    const ONE_A_SECOND: &str = r#"
        name = "slow"
        title = "One after another."
        [crowd]
        timeout = "10s"
        close = "fin"
        arrivals = "fixed"
        [grid]
        loads = [0.001]
        warmup = "1s"
        duration = "1s"
        [saturation]
        from = 1000
        duration = "10ms"
        confirm = "10ms"
        factor = 2.0
        refinements = 0
        [[server]]
        name = "built-in"
        kind = "built-in"
        backlog = 128
        [[policy]]
        name = "stock"
    "#;

    #[test]
    fn file_is_read_back_with_whole_connections_and_virtual_nanoseconds() {
        let folder = tempfile::tempdir().expect("a folder");
        let experiment =
            Experiment::parse(Path::new("slow.toml"), ONE_A_SECOND.to_owned()).expect("an experiment");
        let captures = Captures { folder: folder.path().join("frames"), frames: 9 };
        let profile = sim::Profile::shipped("round-numbers").expect("shipped");
        let options = Options {
            results: folder.path(),
            profile: Some(&profile),
            threads: 1,
            rates_of: None,
            captures: Some(&captures),
            stop: &AtomicBool::new(false),
            watch: &(),
        };
        grid::run(&experiment, &options, |_| {}).expect("a run");
        let path = captures.folder.join("slow/built-in/stock-0.001x-1.pcap");
        let mut reader = PcapReader::new(fs::File::open(path).expect("a capture")).expect("a header");
        assert_eq!(reader.header().ts_resolution, TsResolution::NanoSecond);
        let (mut flags, mut times) = (Vec::new(), Vec::new());
        while let Some(packet) = reader.next_packet() {
            let packet = packet.expect("a whole packet");
            let (_, segment) = parse(&packet.data).expect("a frame");
            flags.push(segment.flags);
            times.push(packet.timestamp.as_nanos());
        }
        assert_eq!(flags.len(), 9);
        assert_eq!(flags[..3], [Flags::SYN, Flags::SYN | Flags::ACK, Flags::ACK]);
        assert!(flags[3..].iter().any(|flags| flags.has(Flags::FIN)), "{flags:?}");
        // The profile takes 7 us for a SYN, the wire 50 us each way.
        assert_eq!([times[1] - times[0], times[2] - times[1]], [7_000, 100_000]);
    }
}
