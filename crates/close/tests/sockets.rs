//! Only some sockets are meant: those of a control group, or those that ask.

use std::fs;
use std::io::{Error, Result};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use close::{Closing, Setup, Sockets, Way};

use crate::world::{World, settled, start};

/// One that is removed at the end, with one in it.
struct ControlGroup(PathBuf);

impl ControlGroup {
    fn create() -> Self {
        let root = bpf::cgroup::root("a test").expect("control groups of version 2");
        let folder = root.join(format!("tg-close-{}", std::process::id()));
        fs::create_dir_all(folder.join("inner")).expect("create a control group");
        Self(folder)
    }

    /// What a process does there that has all its threads there meanwhile.
    fn run<T>(&self, act: impl FnOnce() -> T) -> T {
        let own = fs::read_to_string("/proc/self/cgroup").expect("read");
        let own = own.lines().find_map(|line| line.strip_prefix("0::/")).expect("a group of version 2");
        let root = self.0.parent().expect("the root");
        let enter = |folder: PathBuf| {
            fs::write(folder.join("cgroup.procs"), std::process::id().to_string()).expect("enter");
        };
        enter(self.0.join("inner"));
        let done = act();
        enter(root.join(own));
        done
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        for folder in [self.0.join("inner"), self.0.clone()] {
            // A thread that is ending keeps it for a moment.
            let mut tries = 0;
            while let Err(error) = fs::remove_dir(&folder) {
                tries += 1;
                assert!(tries < 500, "remove {}: {error}", folder.display());
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }
}

/// Two closes, in the order of their connections: the server takes one after the other.
fn check(world: &World, closing: &Closing, meant: TcpStream, other: TcpStream, way: Way) {
    for stream in [meant, other] {
        world.ask_over(stream, Some(closing)).expect("an answer");
    }
    let wanted = if way == Way::Hold { (1, 1) } else { (1, 0) };
    let counts = closing.counts().expect("read")[0];
    assert_eq!(settled(world), wanted, "{counts:?}");
    assert_eq!(counts.answered, 1, "{counts:?}");
}

#[test]
fn root_sockets_of_a_control_group_are_meant_alone() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let group = ControlGroup::create();
        let connect = || world.client.enter(|| TcpStream::connect(world.address)).expect("enter");
        let setup = Setup { sockets: Sockets::Of(group.0.clone()), ..world.setup(way) };
        let closing = start(&world, &setup);
        let (meant, other) = (group.run(connect), connect());
        check(&world, &closing, meant.expect("connect"), other.expect("connect"), way);
    }
}

#[test]
fn root_sockets_that_ask_are_meant_alone() {
    for way in [Way::Swap, Way::Hold] {
        let Some(world) = World::create(false) else { return };
        let connect =
            || world.client.enter(|| TcpStream::connect(world.address)).expect("enter").expect("connect");
        let (meant, other) = (connect(), connect());
        assert_eq!(ask(&meant, 1).expect_err("nobody hears it").raw_os_error(), Some(libc::ENOPROTOOPT));
        let closing = start(&world, &Setup { sockets: Sockets::ThatAsk, ..world.setup(way) });
        for (socket, value) in [(&meant, 1), (&other, 1), (&other, 0)] {
            ask(socket, value).expect("ask");
        }
        assert_eq!(ask(&other, 2).expect_err("it is 0 or 1").raw_os_error(), Some(libc::EINVAL));
        check(&world, &closing, meant, other, way);
    }
}

#[test]
fn root_folder_that_is_no_control_group_is_refused_in_one_line() {
    let Some(world) = World::create(false) else { return };
    for (folder, why) in [("/proc/self", "is no control group"), ("/sys/fs/cgroup/nobody", "No such file")] {
        let setup = Setup { sockets: Sockets::Of(folder.into()), ..world.setup(Way::Swap) };
        let error = world.client.enter(|| Closing::start(&setup).err()).expect("enter").expect(folder);
        let error = error.to_string();
        assert!(error.contains(folder) && error.contains(why) && !error.contains('\n'), "{error}");
    }
}

/// TIDEGATE_CLOSE of docs/sockopt.md.
fn ask(socket: &impl AsRawFd, value: i32) -> Result<()> {
    // SAFETY: the kernel reads four bytes of the number, which lives until the call is over.
    let done = unsafe {
        let pointer = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), 0x7467, 3, pointer, size_of::<i32>() as u32)
    };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}
