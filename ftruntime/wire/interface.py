"""Which of a machine's addresses to use: traffic that takes the slow interface trains at its speed."""

from __future__ import annotations

import ipaddress
import socket

import psutil

from ftruntime.protocol.errors import ConfigError

from .ends import Endpoint, family


def resolve(host: str, port: int) -> Endpoint:
    """The numeric endpoint of ``host``. Raises ConfigError if it has no address."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"host {host!r} has no address: {error.strerror or error}") from None
    return Endpoint(str(found[0][4][0]), port)


def local_address(wanted: str, towards: Endpoint | None = None) -> str:
    """The address to listen at.

    wanted:   an interface ("eth1"), a network ("10.1.0.0/16", "fd00::/8"), an address, or "": the one from
              which the system would reach ``towards``
    Raises ConfigError, naming what there is, if nothing fits.
    """
    if not wanted:
        return _towards(towards)
    known = _addresses()
    if wanted in known:
        return known[wanted][0]
    every = [address for addresses in known.values() for address in addresses]
    try:
        network = ipaddress.ip_network(wanted, strict=False)
    except ValueError:
        network = None
    fitting = [a for a in every if network is not None and ipaddress.ip_address(a) in network]
    if not fitting:
        there = ", ".join(f"{name} ({' '.join(addresses)})" for name, addresses in sorted(known.items()))
        raise ConfigError(f"interface {wanted!r} fits no address of this machine; there are: {there}")
    return fitting[0]


def _towards(endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return "127.0.0.1"
    with socket.socket(family(endpoint.host), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((endpoint.host, endpoint.port))  # sends nothing: it asks for the route
        except OSError as error:
            raise ConfigError(f"there is no route to {endpoint}: {error.strerror}") from None
        return str(probe.getsockname()[0])


def _addresses() -> dict[str, list[str]]:
    """Addresses of each interface; those that need a scope to be reached are left out."""
    found: dict[str, list[str]] = {}
    for name, addresses in psutil.net_if_addrs().items():
        for entry in addresses:
            internet = entry.family in (socket.AF_INET, socket.AF_INET6)
            if internet and "%" not in entry.address:
                found.setdefault(name, []).append(entry.address)
    return found
