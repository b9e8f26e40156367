#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""layouts.py - one group over two machines, in many networks made of namespaces.

  layouts.py RANK_FORM MODULE_DIR [--all] [NAME...]

A layout that can be solved forms within 2 s with nothing set but the root's addresses and the secret. One
that cannot ends in time with an error that names both addresses and the reason. The layouts themselves are
in layouts_list.py.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import layouts_list

FORM_MS = 2000
TIMEOUT_MS = {True: 6000, False: 1500}
GRACE_MS = 1600         # the deadline's grace, and starting
SECRET = os.urandom(32).hex()
LATE = re.compile("formed in|too late")

ALIEN = r"""
import socket, sys, time
s = [socket.create_server((sys.argv[1], int(p)), family=socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET)
     for p in sys.argv[3].split(',')]
print('up', flush=True)
kept = []
while True:
    c, _ = s[0].accept()
    if sys.argv[2] == 'http':
        c.sendall(b'HTTP/1.0 400 Bad Request\r\nServer: nothing of yours\r\n\r\n')
        c.close()
    kept.append(c)
"""


class World:
    """Namespaces, links and processes of one layout; `with` removes them all."""

    def __init__(self, n):
        self.n = n
        self.spaces = {}
        self.folders = []
        self.processes = []
        self.dir = tempfile.mkdtemp(prefix="dtp-layout-")

    def __enter__(self):
        return self

    def __exit__(self, *what):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()
        for name in self.spaces.values():
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
        for folder in self.folders:
            shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def ip(self, space, *commands):
        """Commands of ip in one namespace."""
        subprocess.run(["ip", "-n", self.spaces[space], "-force", "-batch", "-"], input="\n".join(commands),
                       text=True, check=True, stdout=subprocess.DEVNULL)

    def run(self, space, command, **more):
        return subprocess.run(["ip", "netns", "exec", self.spaces[space], "sh", "-c", command], check=True, **more)

    def space(self, *names):
        for name in names:
            full = f"dtpl{os.getpid()}-{self.n}-{name}"
            subprocess.run(["ip", "netns", "add", full], check=True)
            self.spaces[name] = full
            self.ip(name, "link set lo up")
            # Addresses are usable at once, and no filter on the way back.
            self.run(name, "for k in all default; do echo 0 >/proc/sys/net/ipv6/conf/$k/accept_dad; "
                           "echo 0 >/proc/sys/net/ipv4/conf/$k/rp_filter; done")

    def link(self, a, name_a, b, name_b, mtu=1500, mtu_b=None):
        """A cable between two namespaces."""
        subprocess.run(["ip", "link", "add", name_a, "mtu", str(mtu), "netns", self.spaces[a], "type", "veth",
                        "peer", "name", name_b, "mtu", str(mtu_b or mtu), "netns", self.spaces[b]], check=True)
        self.ip(a, f"link set {name_a} up")
        self.ip(b, f"link set {name_b} up")

    def addr(self, space, name, *addresses):
        self.ip(space, *[f"addr add {a} dev {name}" + (" nodad" if ":" in a else "") for a in addresses])

    def bridge(self, space, name, *addresses):
        self.ip(space, f"link add {name} type bridge", f"link set {name} up")
        self.addr(space, name, *addresses)

    def forward(self, space):
        self.run(space, "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")

    def link_local(self, space, name):
        """Its address, once the kernel gives one: its watch over links looks once a second."""
        for _ in range(200):
            out = subprocess.run(["ip", "-n", self.spaces[space], "-6", "-o", "addr", "show", "dev", name, "scope",
                                  "link", "-tentative"], text=True, capture_output=True).stdout
            m = re.search(r"inet6 (fe80:[0-9a-f:]+)/", out)
            if m:
                return m.group(1)
            time.sleep(0.01)
        raise RuntimeError(f"{name} has no link-local address")

    def etc(self, space, **files):
        """Files of /etc as this namespace sees them: hosts="...", resolv_conf="..."."""
        folder = f"/etc/netns/{self.spaces[space]}"
        if folder not in self.folders:
            os.makedirs(folder)
            self.folders.append(folder)
        for name, text in files.items():
            with open(f"{folder}/{name.replace('_', '.')}", "w") as f:
                f.write(text)

    def nft(self, space, text):
        for mark in "{;}":
            text = text.replace(mark, mark + "\n")
        self.run(space, "nft -f -", input=text, text=True, stderr=subprocess.DEVNULL)

    def alien(self, space, host, how, *ports):
        """A service that is none of ours: accepts and says nothing, or speaks HTTP."""
        p = subprocess.Popen(["ip", "netns", "exec", self.spaces[space], sys.executable, "-c", ALIEN, host, how,
                              ",".join(str(p) for p in ports)], stdout=subprocess.PIPE, text=True)
        self.processes.append(p)
        p.stdout.readline()

    def rank(self, rank, plan, timeout_ms, program, modules):
        alone = plan.get("one_machine")
        space = "a" if alone else "abc"[rank]
        root = plan["root"] if rank else plan.get("root_a", plan["root"])
        env = {"PATH": os.environ["PATH"], "DTP_JOB": f"layout-{os.getpid()}-{self.n}", "DTP_RANK": str(rank),
               "DTP_WORLD_SIZE": str(plan.get("machines", 2)), "DTP_LOCAL_RANK": str(rank if alone else 0), "DTP_LOCAL_SIZE": "2" if alone else "1", "DTP_ROOT": root,
               "DTP_SECRET": SECRET, "DTP_TIMEOUT_MS": str(timeout_ms)}
        env.update(plan.get("env", {}))
        out = open(f"{self.dir}/rank{rank}", "w+")
        command = [program, modules]
        if "lane" in plan:
            command = [os.path.join(os.path.dirname(program), "rank_main"), modules, "calls"]
        p = subprocess.Popen(["ip", "netns", "exec", self.spaces[space]] + command, env=env, stdout=out,
                             stderr=subprocess.STDOUT)
        self.processes.append(p)
        return p, out


def last_line(out):
    out.seek(0)
    lines = out.read().split("\n")
    return next((x for x in reversed(lines) if x.startswith(("formed", "failed"))), lines[-1]), lines


def check(layout, plan, lines, ended):
    """None, or what is wrong."""
    if not ended:
        return "a rank did not end"
    if "lane" in plan:
        for r, (_, said) in enumerate(lines):
            if f"rank {r}: ok" not in said or not any(x.endswith(f" is {plan['lane']}") for x in said):
                return " | ".join(x for x in said if x)
        return None
    if layout.want is None:
        for line, all_lines in lines:
            m = re.match(r"formed in (\d+) ms", line)
            if not m:
                return "did not form: " + " | ".join(x for _, y in lines for x in y if x)
            if int(m.group(1)) > FORM_MS:
                return line
        return None
    line = lines[-1][0]
    m = re.match(r"failed in (\d+) ms: (.*)", line)
    if not m:
        return f"should have failed: {line}"
    if int(m.group(1)) > TIMEOUT_MS[False] + GRACE_MS:
        return f"too late: {line}"
    want = plan.get("want", layout.want)
    return None if re.search(want, m.group(2)) else f"says '{m.group(2)}', not /{want}/"


def play(n, layout, program, modules):
    """Builds one layout and runs it; (what is wrong or None, what was said)."""
    with World(n) as w:
        w.space("a", "b")
        plan = layout.build(w)
        ms = TIMEOUT_MS[layout.want is None]
        delay = plan.get("delay_root", 0)
        ranks = {r: w.rank(r, plan, ms, program, modules) for r in range(plan.get("machines", 2))
                 if r > 0 or not (delay or plan.get("no_root"))}
        if delay:
            time.sleep(delay)
            ranks[0] = w.rank(0, plan, ms, program, modules)
        if "later" in plan:
            time.sleep(0.5)
            plan["later"]()
        ended = True
        for p, _ in ranks.values():
            try:
                p.wait(15)
            except subprocess.TimeoutExpired:
                ended = False
        lines = [last_line(out) for _, out in ranks.values()]
        for _, out in ranks.values():
            out.close()
        if "lane" in plan:
            return check(layout, plan, lines, ended), f"data over {plan['lane']}"
        return check(layout, plan, lines, ended), max(x[0] for x in lines) if plan.get("machines") else lines[-1][0]


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))   # removes what was made
    program, modules = sys.argv[1:3]
    names = [a for a in sys.argv[3:] if a != "--all"]
    everything = "--all" in sys.argv or bool(os.environ.get("DTP_TEST_LONG"))
    if os.geteuid() != 0:
        skip("network namespaces need root here")
    if not shutil.which("ip"):
        skip("ip (iproute2) is not installed")
    try:
        with World(0) as w:
            w.space("a", "b")
            w.link("a", "e0", "b", "e0")
            w.bridge("a", "br0")
    except (OSError, subprocess.CalledProcessError) as e:
        skip(f"no network namespaces: {e}")
    wrong = done = left_out = 0
    slowest = 0
    for n, layout in enumerate(layouts_list.LAYOUTS, 1):
        if (names and layout.name not in names) or not (names or everything or layout.quick):
            continue
        if layout.needs and not shutil.which(layout.needs):
            print(f"left out: {layout.name}: {layout.needs} is not installed")
            left_out += 1
            continue
        try:
            bad, said = play(n, layout, program, modules)
            if bad and LATE.match(bad):     # a busy machine is no wrong network
                print(f"again: {layout.name}: {bad}", flush=True)
                bad, said = play(n, layout, program, modules)
        except subprocess.CalledProcessError as e:
            if not layout.needs:
                raise
            print(f"left out: {layout.name}: {layout.needs} does not work here: {e}")
            left_out += 1
            continue
        print(f"{'FAILED' if bad else 'ok'}: {layout.name}: {bad or said}", flush=True)
        wrong += bool(bad)
        done += 1
        formed = re.match(r"formed in (\d+) ms", said)
        if formed and not bad:
            slowest = max(slowest, int(formed.group(1)))
    print(f"layouts: {done} tried, {wrong} wrong, {left_out} left out, slowest that formed {slowest} ms")
    return 1 if wrong or not done else 0


if __name__ == "__main__":
    sys.exit(main())
