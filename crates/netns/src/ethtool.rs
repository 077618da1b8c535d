//! The few ethtool(8) switches that an experiment needs, by ioctl, so that ethtool need not be
//! installed.

use std::os::fd::AsRawFd;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

use crate::error::Act;
use crate::{Namespace, Result};

/// An offload that can be switched. Values are the `ETHTOOL_S*` commands of
/// `include/uapi/linux/ethtool.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Offload {
    /// The sender leaves checksums unfinished; without, a packet socket sees what would be on a
    /// wire.
    TransmitChecksum = 0x0000_0017,
    /// TSO: the stack hands over segments larger than the MTU.
    TcpSegmentation = 0x0000_001f,
    /// GSO: the same in software, just before the driver.
    GenericSegmentation = 0x0000_0024,
    /// GRO; on veth it also makes the end receive through NAPI.
    GenericReceive = 0x0000_002c,
}

/// Switches one offload of an interface on or off.
pub fn set_offload(namespace: &Namespace, interface: &str, offload: Offload, on: bool) -> Result<()> {
    #[repr(C)]
    struct EthtoolValue {
        cmd: u32,
        data: u32,
    }
    namespace
        .enter(|| -> nix::Result<()> {
            let mut value = EthtoolValue { cmd: offload as u32, data: u32::from(on) };
            // SAFETY: ifreq is plain old data, for which all-zero is a valid value.
            let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
            for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes().take(libc::IFNAMSIZ - 1)) {
                *to = from.cast_signed();
            }
            request.ifr_ifru.ifru_data = (&raw mut value).cast();
            let socket = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None)?;
            // SAFETY: `request` and the `value` that it points to outlive the call, and SIOCETHTOOL
            // reads an ethtool_value for these commands.
            let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut request) };
            nix::errno::Errno::result(result)?;
            Ok(())
        })?
        .act_with(|| format!("switch {offload:?} of {interface} {}", if on { "on" } else { "off" }))
}
