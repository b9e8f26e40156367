#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report.py [--json FILE] < LINES - one table out of the JSON Lines of libdtp and its peers.

A line without "peer" is libdtp's. Of several runs the median counts. The last column is the best peer's time
over libdtp's: above 1 libdtp is faster.
"""
import argparse
import json
import statistics
import sys


def text_of(size):
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift}{unit}"
    return str(size)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    args = parser.parse_args()
    times, wrong = {}, 0
    for line in sys.stdin:
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        peer = row.get("peer", "libdtp")
        times.setdefault(peer, {}).setdefault(row["size"], []).append(row["time_us"])
        wrong += max(row["wrong"], 0)
        ranks = row["ranks"]
    if "libdtp" not in times:
        sys.exit("report: no line of libdtp's")
    peers = ["libdtp"] + sorted(p for p in times if p != "libdtp")
    print(f"# allreduce f32 sum, {ranks} ranks: time in us, then GB/s (10^9 bytes); best peer / libdtp")
    print("#%9s" % "size" + "".join("%20s" % p for p in peers) + "%9s" % "ratio")
    out = []
    for size in sorted(times["libdtp"]):
        cells, best = "", None
        mine = statistics.median(times["libdtp"][size])
        for peer in peers:
            runs = times[peer].get(size)
            if not runs:
                cells += "%20s" % "-"
                continue
            t = statistics.median(runs)
            cells += "%12.2f%8.2f" % (t, size / t / 1e3)
            out.append({"bench": "peers.allreduce", "peer": peer, "ranks": ranks, "size": size, "time_us": t,
                        "algbw_gb_per_s": size / t / 1e3, "runs": len(runs), "libdtp_speedup": t / mine})
            if peer != "libdtp" and (best is None or t < best):
                best = t
        print("%10s" % text_of(size) + cells + ("%9.2f" % (best / mine) if best else "%9s" % "-"))
    print(f"# wrong values: {wrong} {'OK' if wrong == 0 else 'FAILED'}")
    if args.json:
        with open(args.json, "w") as f:
            f.writelines(json.dumps(o) + "\n" for o in out)
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
