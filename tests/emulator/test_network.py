"""The network: places, times, order on a link, and faults."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.netfaults import TRANSIENT_AFTER, Failure, Group, LinkFault, LinkFaultKind
from emulator.network import CONTROL_BYTES, Network, NetworkConfig
from ftruntime.protocol.congestion import Tier
from ftruntime.protocol.errors import ConfigError

SMALL = NetworkConfig(buildings=2, ranks_per_host=2, hosts_per_rack=2, racks_per_zone=2)
MB8 = 8 << 20


def _network(replicas=4, ranks=16, config=SMALL):
    return Network(replicas, ranks, config)


@pytest.mark.parametrize(
    ("a", "b", "tier"),
    [
        ((0, 0), (0, 3), Tier.RACK),
        ((0, 0), (0, 4), Tier.ZONE),
        ((0, 0), (0, 8), Tier.BUILDING),
        ((0, 0), (1, 0), Tier.REGION),
        ((0, 0), (2, 0), Tier.BUILDING),  # replica 2 shares building 0, after replica 0's ranks
        ((0, 15), (2, 0), Tier.BUILDING),
    ],
)
def test_tiers(a, b, tier):
    assert _network().topology.tier(a, b) is tier
    assert _network().topology.tier(b, a) is tier


def test_latency_and_oversubscription_are_those_of_the_facts():
    network = _network(config=NetworkConfig(buildings=2))
    rack, region = network.link((0, 0), (0, 1)), network.link((0, 0), (1, 0))
    assert region[0] == pytest.approx(30 * rack[0]) == pytest.approx(60e-6)
    assert region[1] == pytest.approx(2.8 * 2.8 * rack[1]) == pytest.approx(2.8 * 2.8 * 8 / 400e9)


def test_a_nic_sends_one_thing_after_the_other():
    network = _network()
    latency, byte = network.link((0, 0), (1, 0))
    first = network.arrival((0, 0), (1, 0), MB8, 1.0)
    second = network.arrival((0, 0), (1, 0), MB8, 1.0)
    assert first == pytest.approx(1.0 + MB8 * byte + latency)
    assert second - first == pytest.approx(MB8 * byte)
    assert network.arrival((0, 1), (1, 1), MB8, 1.0) == first, "another rank has a NIC of its own"


def test_the_tree_does_not_wait_for_chunks():
    network = _network()
    network.arrival((0, 0), (1, 0), 1 << 30, 0.0)
    assert network.arrival((0, 0), (0, 1), CONTROL_BYTES, 0.0) < 1e-4


_SENDS = st.lists(
    st.tuples(
        st.integers(0, 3), st.integers(0, 1), st.floats(0.0, 0.5), st.sampled_from([CONTROL_BYTES, MB8])
    ),
    max_size=30,
)
_FAULTS = st.lists(
    st.builds(
        lambda kind, start, length, amount: LinkFault(kind, start, start + length, amount=amount),
        st.sampled_from([LinkFaultKind.DOWN, LinkFaultKind.BANDWIDTH]),
        st.floats(0.0, 3.0),
        st.floats(0.1, 3.0),
        st.just(0.0),
    ).map(lambda f: f if f.kind is LinkFaultKind.DOWN else f._replace(amount=0.5)),
    max_size=4,
)


@given(_SENDS, _FAULTS)
def test_links_are_fifo_and_nothing_is_faster_than_light(sends, faults):
    network = _network()
    for fault in faults:
        network.add(fault)
    now, last = 0.0, {}
    for target, position, wait, size in sends:
        now += wait
        link = ((0, position), (target, 1 - position if target == 0 else position))
        arrival = network.arrival(*link, size, now)
        assert arrival >= now + network.lookahead
        assert arrival >= last.get(link, 0.0)
        last[link] = arrival


def test_a_partition_holds_what_is_sent_until_it_heals_one_way():
    network = _network()
    network.add(LinkFault(LinkFaultKind.DOWN, 0.0, 10.0, Group(replicas=frozenset({0}))))
    latency, byte = network.link((0, 0), (1, 0))
    held = network.arrival((0, 0), (1, 0), CONTROL_BYTES, 2.0)
    assert held == pytest.approx(10.0 + CONTROL_BYTES * byte + latency)
    assert network.arrival((1, 0), (0, 0), CONTROL_BYTES, 2.0) < 2.1, "the other way is open"
    assert network.arrival((0, 0), (1, 0), CONTROL_BYTES, 9.99999) >= held, "and FIFO holds across the end"


def test_a_long_partition_resets_the_connection_once():
    network = _network()
    link = ((0, 0), (1, 0))
    network.add(LinkFault(LinkFaultKind.DOWN, 0.0, 100.0, target=Group(buildings=frozenset({1}))))
    assert network.arrival(*link, 1, 5.0) == math.inf
    assert network.failure(*link) == Failure(5.0 + SMALL.reset_after_s, True)
    assert network.arrival(*link, 1, 6.0) == math.inf
    assert network.failure(*link).time == 5.0 + SMALL.reset_after_s, "one connection, one reset"
    assert network.connected(*link, 30.0) == math.inf
    assert network.connected(*link, 90.0) == pytest.approx(100.0, abs=1e-3)
    assert network.arrival(*link, 1, 101.0) < 101.1


def test_a_fault_on_one_position_touches_no_other():
    network = _network()
    network.add(LinkFault(LinkFaultKind.DOWN, 0.0, 1.0, Group(positions=frozenset({3}))))
    assert network.arrival((0, 3), (1, 3), 1, 0.0) > 1.0 > network.arrival((0, 2), (1, 2), 1, 0.0)


def test_bandwidth_faults_slow_large_messages_only():
    plain, slow = _network(), _network()
    slow.add(LinkFault(LinkFaultKind.BANDWIDTH, 0.0, 10.0, amount=0.1))
    link = ((0, 0), (1, 0))
    latency = plain.link(*link)[0]
    assert slow.arrival(*link, MB8, 0.0) - latency == pytest.approx(
        10 * (plain.arrival(*link, MB8, 0.0) - latency)
    )


def test_a_lossy_link_breaks_connections_the_same_way_every_time():
    def run(seed):
        network, lost = _network(), []
        network.add(LinkFault(LinkFaultKind.LOSSY, 0.0, 1e3, amount=0.3, seed=seed))
        for number in range(200):
            if network.arrival((0, 0), (1, 0), 1, float(number)) == math.inf:
                assert network.failure((0, 0), (1, 0)) == Failure(number + TRANSIENT_AFTER, False)
                lost.append(number)
        return lost

    assert run(1) == run(1) != run(2)
    assert 30 < len(run(1)) < 90


def test_the_slow_path_ends_with_the_faults():
    network, plain = _network(), _network()
    network.add(LinkFault(LinkFaultKind.DOWN, 1.0, 2.0))
    network.arrival((0, 0), (1, 0), MB8, 1.5)
    assert network.faulty
    assert network.touched((0, 0), 1.9) and not network.touched((0, 0), 50.0)
    assert network.arrival((1, 0), (0, 0), 1, 50.0) == plain.arrival((1, 0), (0, 0), 1, 50.0)
    network.forget_old(1.9)
    assert network.faulty, "what is sent at that time is still to come"
    network.forget_old(50.0)
    assert not network.faulty


def test_only_positions_that_a_fault_is_about_are_touched():
    network = _network()
    assert network.touched_positions() == frozenset()
    network.add(LinkFault(LinkFaultKind.LOSSY, 1.0, 2.0, Group(frozenset({0}), frozenset(), frozenset({1}))))
    assert network.touched_positions() == {1}
    assert network.touched((0, 1), 1.5)
    assert not network.touched((0, 0), 1.5) and not network.touched((1, 1), 1.5)
    network.add(LinkFault(LinkFaultKind.DOWN, 1.0, 3.0))
    assert network.touched_positions() is None and network.touched((1, 1), 2.5)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"buildings": 0}, "network.buildings is 0"),
        ({"oversubscription": 0.5}, "network.oversubscription is 0.5"),
        ({"latency_s": 0.0}, "network.latency_s is 0.0"),
        ({"nic_gbps": math.inf}, "network.nic_gbps is inf"),
        ({"latency_factors": (1.0, 0.5, 1.0, 1.0)}, "network.latency_factors"),
    ],
)
def test_a_network_that_cannot_be_is_refused(values, named):
    with pytest.raises(ConfigError, match=named):
        Network(2, 4, NetworkConfig(**values))


@pytest.mark.parametrize(
    "fault",
    [
        LinkFault(LinkFaultKind.DOWN, 2.0, 1.0),
        LinkFault(LinkFaultKind.LOSSY, 0.0, 1.0, amount=1.5),
        LinkFault(LinkFaultKind.BANDWIDTH, 0.0, 1.0, amount=0.0),
    ],
)
def test_a_fault_that_cannot_be_is_refused(fault):
    with pytest.raises(ConfigError, match=str(fault.kind)):
        _network().add(fault)
