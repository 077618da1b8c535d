#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that says how long each response is: see bytes_to_come.c, which does the same.

    sudo tidegate uplink eth0 --rate 10mbit &
    python3 examples/bytes_to_come.py 8080
"""

import socket
import struct
import sys

SOL_TIDEGATE = 0x7467
TIDEGATE_BYTES_TO_COME = 2


def say_bytes_to_come(client, count):
    try:
        client.setsockopt(SOL_TIDEGATE, TIDEGATE_BYTES_TO_COME, struct.pack("=Q", count))
    except OSError as error:  # no uplink hears it: all is as ever
        print("nobody hears how many bytes will come:", error.strerror, flush=True)
    else:
        print(count, "bytes will come", flush=True)


def serve(client):
    try:
        count = int(client.recv(32) or 0)
        say_bytes_to_come(client, count)
        client.sendall(bytes(count))
    except (ValueError, ConnectionError) as error:
        print("a client has gone, or asked for no number:", error, flush=True)


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        while True:
            client, _ = listener.accept()
            with client:
                serve(client)


if __name__ == "__main__":
    main()
