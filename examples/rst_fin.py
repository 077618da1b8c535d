#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server that asks for rst-fin: see rst_fin.c, which does the same.

    printf 'sockopt = true\\n[[listener]]\\nlisten = "0.0.0.0:8080"\\npolicy = "default"\\n' >guard.toml
    sudo tidegate guard --config guard.toml &
    python3 examples/rst_fin.py 8080
"""

import socket
import sys

SOL_TIDEGATE = 0x7467
TIDEGATE_RST_FIN = 1  # 0: keep, 1: reset if nothing is under way, 2: reset always


def ask_for_rst_fin(listener):
    try:
        listener.setsockopt(SOL_TIDEGATE, TIDEGATE_RST_FIN, 1)
    except OSError as error:  # no guard allows it: all is as ever
        print("rst-fin is not to be had:", error.strerror, flush=True)
    else:
        print("rst-fin is granted", flush=True)


def serve(client):
    try:
        while data := client.recv(512):
            client.sendall(data)
    except ConnectionResetError:
        print("the client's FIN has reset the connection", flush=True)
    else:
        print("the client has closed its half", flush=True)


def main():
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8080
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        ask_for_rst_fin(listener)
        while True:
            client, _ = listener.accept()
            with client:
                serve(client)


if __name__ == "__main__":
    main()
