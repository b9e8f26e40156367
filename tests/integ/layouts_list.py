# SPDX-License-Identifier: Apache-2.0
"""layouts_list.py - networks in which two machines, a (the root's) and b, form a group, or cannot.

Each function builds one and says where the root is: {"root": text for DTP_ROOT, "root_a": another text on the
root's own machine, "later": called after half a second, ...}.
"""
import collections

Layout = collections.namedtuple("Layout", "name build want quick needs")
LAYOUTS = []
P = 7400


def layout(want=None, quick=False, needs=None):
    """want: a pattern for the error of a layout that cannot be solved."""
    def add(f):
        LAYOUTS.append(Layout(f.__name__, f, want, quick, needs))
        return f
    return add


def pair(w, *addresses, mtu=1500):
    """a and b on one cable: addresses of a end in 1, of b in 2."""
    w.link("a", "eth0", "b", "eth0", mtu)
    for x in addresses:
        w.addr("a", "eth0", x.replace("*", "1"))
        w.addr("b", "eth0", x.replace("*", "2"))


def pair_by_link(w):
    """Nothing but what every link has; the address of a."""
    pair(w)
    w.link_local("b", "eth0")
    return w.link_local("a", "eth0")


def silent(w, n):
    """n interfaces in b that lead nowhere, with an address each; the other ends are in a namespace apart."""
    w.space("nowhere")
    for i in range(n):
        w.link("b", f"dead{i}", "nowhere", f"dead{i}")
        w.addr("b", f"dead{i}", f"192.168.{i}.2/24", f"fd00:dead:{i}::2/64")


def switches(w, mtu):
    """a and b behind two switches with a line between them that takes less than 1500 bytes, and says nothing."""
    w.space("m", "n")
    w.link("a", "eth0", "m", "to-a")
    w.link("m", "line", "n", "line", mtu)
    w.link("b", "eth0", "n", "to-b")
    for x, port in (("m", "to-a"), ("n", "to-b")):
        w.ip(x, "link add br0 type bridge", f"link set {port} master br0", "link set line master br0",
             "link set br0 up")
    every_packet_alone(w)
    w.addr("a", "eth0", "10.0.0.1/24", "fd00::1/64")
    w.addr("b", "eth0", "10.0.0.2/24", "fd00::2/64")


def every_packet_alone(w):
    """Large ones must not pass as one."""
    for x in "ab":
        w.ip(x, "link set eth0 gso_max_segs 1")


def one_way(w, port, mtu):
    """A switch that drops what is larger, from one side alone."""
    w.space("m")
    w.link("a", "eth0", "m", "to-a")
    w.link("b", "eth0", "m", "to-b")
    w.ip("m", "link add br0 type bridge", "link set to-a master br0", "link set to-b master br0", "link set br0 up")
    w.nft("m", "table bridge t { chain f { type filter hook forward priority 0; "
               f"iifname \"{port}\" meta length > {mtu} drop; }} }}\n")
    every_packet_alone(w)
    w.addr("a", "eth0", "10.0.0.1/24")
    w.addr("b", "eth0", "10.0.0.2/24")


def router(w, mtu_b=1500):
    w.space("r")
    w.link("a", "eth0", "r", "to-a")
    w.link("b", "eth0", "r", "to-b", mtu_b)
    w.addr("a", "eth0", "10.1.0.1/24", "fd01::1/64")
    w.addr("r", "to-a", "10.1.0.254/24", "fd01::fe/64")
    w.addr("b", "eth0", "10.2.0.2/24", "fd02::2/64")
    w.addr("r", "to-b", "10.2.0.254/24", "fd02::fe/64")
    w.forward("r")
    w.ip("a", "route add default via 10.1.0.254", "route add default via fd01::fe")
    w.ip("b", "route add default via 10.2.0.254", "route add default via fd02::fe")


# ---- one cable ----

@layout(quick=True)
def one_cable_ipv4(w):
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P}"}


@layout(quick=True)
def ipv6_only(w):
    pair(w, "2001:db8::*/64")
    return {"root": f"[2001:db8::1]:{P}"}


@layout()
def ipv6_private_only(w):
    pair(w, "fd00::*/64")
    return {"root": f"[fd00::1]:{P}"}


@layout()
def link_local_with_scope(w):
    return {"root": f"[{pair_by_link(w)}%eth0]:{P}"}


@layout(quick=True)
def link_local_without_scope(w):
    return {"root": f"[{pair_by_link(w)}]:{P}"}


@layout()
def link_local_among_six_links(w):
    silent(w, 5)
    return {"root": f"[{pair_by_link(w)}]:{P}"}


@layout()
def link_local_ipv4(w):
    pair(w, "169.254.7.*/16")
    return {"root": f"169.254.7.1:{P}"}


@layout()
def point_to_point_31(w):
    w.link("a", "eth0", "b", "eth0")
    w.addr("a", "eth0", "10.0.0.0/31")
    w.addr("b", "eth0", "10.0.0.1/31")
    return {"root": f"10.0.0.0:{P}"}


@layout()
def single_addresses_of_a_cloud(w):
    w.link("a", "eth0", "b", "eth0")
    w.addr("a", "eth0", "10.0.0.1/32")
    w.addr("b", "eth0", "10.9.0.2/32")
    w.ip("a", "route add 10.9.0.2 dev eth0")
    w.ip("b", "route add 10.0.0.1 dev eth0")
    return {"root": f"10.0.0.1:{P}"}


@layout()
def two_subnets_on_one_cable(w):
    pair(w, "10.0.0.*/24", "10.7.0.*/24")
    w.ip("b", "addr del 10.7.0.2/24 dev eth0", "route add 10.7.0.0/24 dev eth0")
    return {"root": f"10.7.0.1:{P}"}


@layout()
def an_ipv6_address_out_of_use(w):
    pair(w, "fd00::*/64")
    w.ip("b", "addr add fd00::99/64 dev eth0 nodad preferred_lft 0")
    return {"root": f"[fd00::1]:{P}"}


@layout()
def jumbo_frames(w):
    pair(w, "10.0.0.*/24", mtu=9000)
    return {"root": f"10.0.0.1:{P}"}


@layout()
def the_smallest_mtu(w):
    pair(w, "fd00::*/64", mtu=1280)
    return {"root": f"[fd00::1]:{P}"}


# ---- loopback alone ----

@layout(quick=True)
def loopback_only(w):
    return {"root": f"127.0.0.1:{P}", "one_machine": True}


@layout()
def loopback_only_ipv6(w):
    return {"root": f"[::1]:{P}", "one_machine": True}


# ---- addresses that look right and are not ----

@layout(quick=True)
def docker0_on_both_machines(w):
    for x in "ab":
        w.bridge(x, "docker0", "172.17.0.1/16")
    pair(w, "10.0.0.*/24")
    return {"root": f"172.17.0.1:{P},10.0.0.1:{P}"}


@layout()
def virbr0_on_both_machines(w):
    for x in "ab":
        w.bridge(x, "virbr0", "192.168.122.1/24")
    pair(w, "10.0.0.*/24", "fd00::*/64")
    return {"root": f"192.168.122.1:{P},10.0.0.1:{P},[fd00::1]:{P}"}


@layout(quick=True)
def docker0_where_a_stranger_listens(w):
    for x in "ab":
        w.bridge(x, "docker0", "172.17.0.1/16")
    pair(w, "10.0.0.*/24")
    w.alien("b", "172.17.0.1", "silent", P)
    return {"root": f"172.17.0.1:{P},10.0.0.1:{P}"}


@layout()
def docker0_where_http_answers(w):
    for x in "ab":
        w.bridge(x, "docker0", "172.17.0.1/16")
    pair(w, "10.0.0.*/24")
    w.alien("b", "172.17.0.1", "http", P)
    return {"root": f"172.17.0.1:{P},10.0.0.1:{P}"}


@layout()
def twenty_bridges(w):
    for x in "ab":
        for i in range(20):
            w.bridge(x, f"br-{i:012x}", f"172.{18 + i % 14}.{i}.1/24")
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P}"}


@layout(quick=True)
def twenty_bridges_all_named_first(w):
    roots = []
    for x in "ab":
        for i in range(20):
            w.bridge(x, f"br-{i:012x}", f"172.18.{i}.1/24")
    pair(w, "10.0.0.*/24")
    roots = [f"172.18.{i}.1:{P}" for i in range(12)] + [f"10.0.0.1:{P}"]
    return {"root": ",".join(roots)}


@layout()
def several_cards_one_reachable(w):
    silent(w, 3)
    pair(w, "10.0.0.*/24")
    return {"root": f"192.168.0.1:{P},192.168.1.1:{P},192.168.2.1:{P},10.0.0.1:{P}"}


@layout()
def the_eighth_address_answers(w):
    silent(w, 7)
    pair(w, "10.0.0.*/24")
    return {"root": ",".join([f"192.168.{i}.1:{P}" for i in range(7)] + [f"10.0.0.1:{P}"])}


@layout()
def the_default_route_is_dead(w):
    silent(w, 1)
    pair(w, "10.0.0.*/24")
    w.ip("b", "route add default via 192.168.0.1")
    return {"root": f"8.8.8.8:{P},10.0.0.1:{P}"}


# ---- two families of addresses ----

@layout(quick=True)
def ipv6_silent_ipv4_works(w):
    silent(w, 1)
    pair(w, "10.0.0.*/24")
    return {"root": f"[fd00:dead:0::1]:{P},10.0.0.1:{P}"}


@layout()
def ipv4_silent_ipv6_works(w):
    silent(w, 1)
    pair(w, "fd00::*/64")
    return {"root": f"192.168.0.1:{P},[fd00::1]:{P}"}


@layout()
def ipv6_unreachable_ipv4_works(w):
    pair(w, "10.0.0.*/24")
    w.ip("b", "route add unreachable 2001:db8::/32")
    return {"root": f"[2001:db8::1]:{P},10.0.0.1:{P}"}


@layout()
def ipv6_swallowed_by_a_router(w):
    router(w)
    w.ip("r", "route add blackhole 2001:db8::/32")
    return {"root": f"[2001:db8::1]:{P},10.1.0.1:{P}"}


@layout()
def ipv6_off_in_the_root(w):
    w.run("a", "echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6; "
               "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6")
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P},[fd00::1]:{P}"}


# ---- routers ----

@layout(quick=True)
def behind_a_router(w):
    router(w)
    return {"root": f"10.1.0.1:{P}"}


@layout()
def behind_a_router_ipv6(w):
    router(w)
    return {"root": f"[fd01::1]:{P}"}


@layout()
def behind_two_routers(w):
    w.space("r", "s")
    w.link("a", "eth0", "r", "to-a")
    w.link("r", "to-s", "s", "to-r")
    w.link("b", "eth0", "s", "to-b")
    w.addr("a", "eth0", "10.1.0.1/24")
    w.addr("r", "to-a", "10.1.0.254/24")
    w.addr("r", "to-s", "10.3.0.1/24")
    w.addr("s", "to-r", "10.3.0.2/24")
    w.addr("s", "to-b", "10.2.0.254/24")
    w.addr("b", "eth0", "10.2.0.2/24")
    w.ip("a", "route add default via 10.1.0.254")
    w.ip("r", "route add default via 10.3.0.2")
    w.ip("s", "route add default via 10.3.0.1")
    w.ip("b", "route add default via 10.2.0.254")
    w.forward("r")
    w.forward("s")
    return {"root": f"10.1.0.1:{P}"}


@layout(quick=True)
def there_one_way_back_another(w):
    w.space("r", "s")
    for x, n in (("r", 1), ("s", 2)):
        w.link("a", f"eth{n}", x, "to-a")
        w.link("b", f"eth{n}", x, "to-b")
        w.addr("a", f"eth{n}", f"10.{n}.1.1/24")
        w.addr(x, "to-a", f"10.{n}.1.254/24")
        w.addr("b", f"eth{n}", f"10.{n}.2.2/24")
        w.addr(x, "to-b", f"10.{n}.2.254/24")
        w.forward(x)
    w.ip("b", "route add 10.1.1.0/24 via 10.1.2.254")
    w.ip("a", "route add 10.1.2.0/24 via 10.2.1.254")
    w.ip("s", "route add 10.1.2.0/24 via 10.2.2.2")
    return {"root": f"10.1.1.1:{P}"}


@layout()
def rules_choose_the_route(w):
    pair(w, "10.0.0.*/24")
    w.addr("a", "lo", "10.50.0.1/32")
    w.ip("b", "route add 10.50.0.1 via 10.0.0.1 table 77", "rule add to 10.50.0.1 lookup 77")
    return {"root": f"10.50.0.1:{P}"}


@layout()
def an_address_that_no_interface_has(w):
    pair(w, "10.0.0.*/24")
    w.ip("a", "route add local 10.60.0.1 dev lo")
    w.ip("b", "route add 10.60.0.1 via 10.0.0.1")
    return {"root": f"10.60.0.1:{P}"}


@layout(needs="nft")
def nat_on_the_way_to_the_root(w):
    router(w)
    w.ip("r", "addr add 10.2.0.250/24 dev to-b")
    w.nft("r", "table ip t { chain p { type nat hook prerouting priority -100; "
               f"ip daddr 10.2.0.250 tcp dport {P} dnat to 10.1.0.1; }} }}\n")
    return {"root": f"10.2.0.250:{P}"}


@layout(needs="nft", quick=True)
def nat_hides_the_other_machine(w):
    router(w)
    w.ip("a", "route del default")
    w.nft("r", "table ip t { chain p { type nat hook postrouting priority 100; oifname \"to-a\" masquerade; } }\n")
    return {"root": f"10.1.0.1:{P}"}


@layout(needs="nft")
def a_firewall_drops_the_first_address(w):
    pair(w, "10.0.0.*/24", "10.7.0.*/24")
    w.nft("a", "table ip t { chain p { type filter hook input priority 0; ip daddr 10.0.0.1 drop; } }\n")
    return {"root": f"10.0.0.1:{P},10.7.0.1:{P}"}


@layout(needs="nft")
def a_firewall_opens_one_port_of_eight(w):
    pair(w, "10.0.0.*/24")
    w.nft("a", "table ip t { chain p { type filter hook input priority 0; "
               f"tcp dport {P}-{P + 4} drop; }} }}\n")
    w.alien("a", "10.0.0.1", "silent", *range(P, P + 5))
    return {"root": f"10.0.0.1:{P}-{P + 7}"}


# ---- large packets that vanish ----

@layout(quick=True)
def mtu_hole(w):
    switches(w, 1300)
    return {"root": f"10.0.0.1:{P}"}


@layout()
def mtu_hole_ipv6(w):
    switches(w, 1300)
    return {"root": f"[fd00::1]:{P}"}


@layout()
def mtu_hole_deep(w):
    switches(w, 700)
    return {"root": f"10.0.0.1:{P}"}


@layout(needs="nft")
def mtu_hole_towards_the_root(w):
    one_way(w, "to-b", 1300)
    return {"root": f"10.0.0.1:{P}"}


@layout(needs="nft")
def mtu_hole_from_the_root(w):
    one_way(w, "to-a", 1300)
    return {"root": f"10.0.0.1:{P}"}


@layout()
def mtu_hole_of_the_own_card(w):
    pair(w, "10.0.0.*/24")
    w.ip("a", "link set eth0 mtu 1300")
    every_packet_alone(w)
    return {"root": f"10.0.0.1:{P}"}


@layout()
def mtu_hole_beside_a_good_path(w):
    switches(w, 576)
    w.link("a", "eth1", "b", "eth1")
    w.addr("a", "eth1", "10.7.0.1/24")
    w.addr("b", "eth1", "10.7.0.2/24")
    return {"root": f"10.0.0.1:{P},10.7.0.1:{P}"}


@layout()
def mtu_of_a_router(w):
    router(w, 1300)
    return {"root": f"10.1.0.1:{P}"}


@layout(needs="nft")
def mtu_of_a_router_that_is_silent(w):
    router(w, 1300)
    w.nft("r", "table ip t { chain o { type filter hook output priority 0; ip protocol icmp drop; } }\n")
    every_packet_alone(w)
    return {"root": f"10.1.0.1:{P}"}


# ---- three machines: c is to be the child of b, at the addresses that b has told the root ----

CHAIN = {"DTP_RADIX": "1"}


def three(w, **addresses):
    """a, b and c at one switch."""
    w.space("c", "m")
    w.ip("m", "link add br0 type bridge", "link set br0 up")
    for x in "abc":
        w.link(x, "eth0", "m", f"to-{x}")
        w.ip("m", f"link set to-{x} master br0")
        w.addr(x, "eth0", *addresses[x])


@layout(quick=True)
def a_chain_of_three_with_docker0(w):
    three(w, a=["10.0.0.1/24"], b=["10.0.0.2/24"], c=["10.0.0.3/24"])
    for x in "abc":
        w.bridge(x, "docker0", "172.17.0.1/16")
    return {"root": f"10.0.0.1:{P}", "machines": 3, "env": CHAIN}


@layout()
def a_chain_of_three_ipv6(w):
    three(w, a=["fd00::1/64"], b=["fd00::2/64"], c=["fd00::3/64"])
    return {"root": f"[fd00::1]:{P}", "machines": 3, "env": CHAIN}


@layout()
def a_chain_of_three_link_local(w):
    three(w, a=[], b=[], c=[])
    for x in "bca":
        a = w.link_local(x, "eth0")
    return {"root": f"[{a}]:{P}", "machines": 3, "env": CHAIN}


@layout(quick=True)
def the_parent_speaks_another_family(w):
    three(w, a=["10.0.0.1/24", "fd00::1/64"], b=["fd00::2/64"], c=["10.0.0.3/24"])
    for x in "bc":      # no common ground in the links' own addresses either
        w.ip(x, "addr flush dev eth0 scope link")
    return {"root": f"10.0.0.1:{P},[fd00::1]:{P}", "machines": 3, "env": CHAIN}


@layout()
def the_parent_is_reached_by_the_root_alone(w):
    w.space("c")
    w.link("a", "eth1", "b", "eth0")
    w.link("a", "eth2", "c", "eth0")
    w.addr("a", "eth1", "10.1.0.1/24")
    w.addr("b", "eth0", "10.1.0.2/24")
    w.addr("a", "eth2", "10.2.0.1/24")
    w.addr("c", "eth0", "10.2.0.3/24")
    return {"root": f"10.1.0.1:{P},10.2.0.1:{P}", "machines": 3, "env": CHAIN}


@layout()
def the_parent_s_first_address_is_dead_here(w):
    w.space("c")
    w.link("a", "eth1", "b", "eth1")
    w.link("a", "eth2", "c", "eth2")
    w.link("b", "eth3", "c", "eth3")
    w.addr("a", "eth1", "10.1.0.1/24")
    w.addr("b", "eth1", "10.1.0.2/24")
    w.addr("a", "eth2", "10.2.0.1/24")
    w.addr("c", "eth2", "10.2.0.3/24")
    w.addr("b", "eth3", "10.3.0.2/24")
    w.addr("c", "eth3", "10.3.0.3/24")
    w.ip("c", "route add blackhole 10.1.0.2")
    return {"root": f"10.1.0.1:{P},10.2.0.1:{P}", "machines": 3, "env": CHAIN}


# ---- names ----

NO_DNS = "nameserver 10.255.255.1\noptions timeout:5 attempts:2\n"


@layout(quick=True)
def no_name_service(w):
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf=NO_DNS, hosts="127.0.0.1 localhost\n")
    w.ip("b", "route add blackhole 10.255.255.1")
    return {"root": f"10.0.0.1:{P}"}


@layout()
def no_name_service_and_a_name_beside(w):
    silent(w, 1)
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf="nameserver 192.168.0.9\n", hosts="127.0.0.1 localhost\n")
    return {"root": f"root.example.com:{P},10.0.0.1:{P}"}


@layout()
def a_name_in_etc_hosts(w):
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf=NO_DNS, hosts="127.0.0.1 localhost\n10.0.0.1 root\n")
    return {"root": f"root:{P}"}


@layout(quick=True)
def a_name_that_is_127_0_1_1_at_home(w):
    pair(w, "10.0.0.*/24")
    w.etc("a", resolv_conf=NO_DNS, hosts="127.0.0.1 localhost\n127.0.1.1 root\n")
    w.etc("b", resolv_conf=NO_DNS, hosts="127.0.0.1 localhost\n10.0.0.1 root\n127.0.1.1 b\n")
    return {"root": f"root:{P}"}


@layout()
def a_name_with_a_dead_address_first(w):
    silent(w, 1)
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf=NO_DNS, hosts="192.168.0.1 root\nfd00:dead:0::1 root\n10.0.0.1 root\n")
    return {"root": f"root:{P}"}


@layout()
def etc_hosts_is_empty(w):
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf="", hosts="")
    return {"root": f"10.0.0.1:{P}"}


# ---- bulk data: UCX is told which device to use ----

@layout(quick=True)
def data_beside_docker0(w):
    docker0_on_both_machines(w)
    return {"root": f"10.0.0.1:{P}", "lane": "tcp/eth0"}


@layout()
def data_beside_twenty_bridges(w):
    return dict(twenty_bridges(w), lane="tcp/eth0")


@layout()
def data_over_ipv6(w):
    return dict(ipv6_only(w), lane="tcp/eth0")


@layout()
def data_over_one_card_of_four(w):
    return dict(several_cards_one_reachable(w), lane="tcp/eth0")


@layout()
def data_through_a_router(w):
    return dict(behind_a_router(w), lane="tcp/eth0")


@layout()
def data_beside_docker0_with_control_over_ucx(w):
    return dict(data_beside_docker0(w), env={"DTP_NET": "ucx"})


# ---- ports ----

@layout(quick=True)
def the_first_ports_are_taken(w):
    pair(w, "10.0.0.*/24")
    w.alien("a", "0.0.0.0", "silent", P, P + 1, P + 2)
    return {"root": f"10.0.0.1:{P}-{P + 7}"}


@layout()
def the_first_ports_are_taken_ipv6(w):
    pair(w, "fd00::*/64")
    w.alien("a", "::", "http", P, P + 1, P + 2)
    return {"root": f"[fd00::1]:{P}-{P + 7}"}


# ---- late ----

@layout()
def the_root_comes_late(w):
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P}", "delay_root": 0.7}


@layout()
def the_cable_comes_late(w):
    pair(w, "10.0.0.*/24")
    w.ip("b", "link set eth0 down")
    return {"root": f"10.0.0.1:{P}", "later": lambda: w.ip("b", "link set eth0 up")}


@layout()
def the_address_comes_late(w):
    w.link("a", "eth0", "b", "eth0")
    w.addr("a", "eth0", "10.0.0.1/24")
    return {"root": f"10.0.0.1:{P}", "later": lambda: w.addr("b", "eth0", "10.0.0.2/24")}


# ---- those that cannot be solved ----

REACH = r"node \S+ did not reach the root agent: .*"


@layout(want=REACH + r"10\.0\.0\.1:7400: Network is unreachable", quick=True)
def no_route(w):
    w.link("a", "eth0", "b", "eth0")
    w.addr("a", "eth0", "10.0.0.1/24")
    return {"root": f"10.0.0.1:{P}"}


@layout(want=REACH + r"\[fd00::1\]:7400: Network is unreachable")
def no_route_ipv6(w):
    pair(w, "10.0.0.*/24")
    return {"root": f"[fd00::1]:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400: Network is unreachable")
def loopback_only_and_the_root_elsewhere(w):
    return {"root": f"10.0.0.1:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400( from 10\.0\.0\.2 \(eth0\))?: (Network is unreachable|no answer|No route to host)")
def the_cable_is_out(w):
    pair(w, "10.0.0.*/24")
    w.ip("a", "link set eth0 down")
    return {"root": f"10.0.0.1:{P}", "no_root": True}


@layout(want=REACH + r"10\.0\.0\.1:7400 from 10\.0\.0\.2 \(eth0\): Connection refused", quick=True)
def no_root(w):
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P}", "no_root": True}


@layout(want=REACH + r"10\.1\.0\.1:7400 from 10\.2\.0\.2 \(eth0\): no answer")
def a_router_swallows_everything(w):
    router(w)
    w.ip("r", "route del 10.1.0.0/24", "route add blackhole 10.1.0.0/24")
    return {"root": f"10.1.0.1:{P}"}


@layout(want=REACH + r"10\.1\.0\.1:7400 from 10\.2\.0\.2 \(eth0\): No route to host")
def a_router_says_no(w):
    router(w)
    w.ip("r", "route del 10.1.0.0/24", "route add unreachable 10.1.0.0/24")
    return {"root": f"10.1.0.1:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400.*: Permission denied")
def a_route_that_is_prohibited(w):
    pair(w, "10.0.0.*/24")
    w.ip("b", "route add prohibit 10.0.0.1")
    return {"root": f"10.0.0.1:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400 from 10\.0\.0\.1 \(eth9\): Connection refused")
def the_root_s_address_is_here_too(w):
    pair(w, "10.0.0.*/24")
    w.bridge("b", "eth9", "10.0.0.1/24")
    return {"root": f"10.0.0.1:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400: Network is unreachable")
def another_family_of_addresses(w):
    w.link("a", "eth0", "b", "eth0")
    w.addr("a", "eth0", "10.0.0.1/24")
    w.addr("b", "eth0", "fd00::2/64")
    return {"root": f"10.0.0.1:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400 from 10\.0\.0\.2 \(eth0\): (it connects, but )?large messages vanish on the way", quick=True)
def mtu_hole_without_bottom(w):
    switches(w, 400)
    return {"root": f"10.0.0.1:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400 from 10\.0\.0\.2 \(eth0\): (it accepts, but does not speak|no answer)")
def a_silent_stranger_at_the_root(w):
    pair(w, "10.0.0.*/24")
    w.alien("a", "10.0.0.1", "silent", P)
    return {"root": f"10.0.0.1:{P}", "no_root": True}


@layout(want=REACH + r"10\.0\.0\.1:7400 from 10\.0\.0\.2 \(eth0\): .*(no agent of libdtp|closed the connection|Connection reset)")
def http_at_the_root(w):
    pair(w, "10.0.0.*/24")
    w.alien("a", "10.0.0.1", "http", P)
    return {"root": f"10.0.0.1:{P}", "no_root": True}


@layout(want=REACH + r"(no name service gave an address of host root\.example\.com|cannot resolve host root\.example\.com)", quick=True)
def a_name_and_no_name_service(w):
    silent(w, 1)
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf="nameserver 192.168.0.9\n", hosts="127.0.0.1 localhost\n")
    return {"root": f"root.example.com:{P}"}


@layout(want=REACH + r"127\.0\.1\.1:7400 from 127\.0\.0\.1 \(lo\): Connection refused")
def a_name_that_is_127_0_1_1_everywhere(w):
    pair(w, "10.0.0.*/24")
    for x in "ab":
        w.etc(x, resolv_conf=NO_DNS, hosts="127.0.0.1 localhost\n127.0.1.1 root\n")
    return {"root": f"root:{P}"}


@layout(want=REACH + r"10\.0\.0\.1:7400 from 10\.0\.0\.2 \(eth0\): Connection refused; \[fd00::1\]:7400: Network is unreachable")
def two_addresses_two_reasons(w):
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P},[fd00::1]:{P}", "no_root": True}


@layout(want=REACH + r"10\.0\.0\.1:7400-7407 from 10\.0\.0\.2 \(eth0\): Connection refused")
def no_port_of_a_range_answers(w):
    pair(w, "10.0.0.*/24")
    return {"root": f"10.0.0.1:{P}-{P + 7}", "no_root": True}
