#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_boot.py [--json FILE] < LINES - one table out of the JSON Lines of libdtp and its peers.

A line without "peer" is libdtp's. Of several runs the median counts. The last column is the peer's time over
libdtp's: how many times faster libdtp is.
"""
import argparse
import json
import statistics
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    args = parser.parse_args()
    times = {}
    for line in sys.stdin:
        if line.startswith("{"):
            row = json.loads(line)
            times.setdefault(row["ranks"], {}).setdefault(row.get("peer", "libdtp"), []).append(row["total_ms"])
    if not any("libdtp" in t for t in times.values()):
        sys.exit("report_boot: no line of libdtp's")
    out = []
    print("# from the first process until all ranks are through a barrier: median of the runs, in ms")
    print("#%7s %-16s %5s %12s %12s %12s %9s" % ("ranks", "", "runs", "median", "min", "max", "x libdtp"))
    for ranks in sorted(times):
        mine = statistics.median(times[ranks]["libdtp"]) if "libdtp" in times[ranks] else None
        for peer in sorted(times[ranks], key=lambda p: (p != "libdtp", p)):
            runs = times[ranks][peer]
            t = statistics.median(runs)
            ratio = t / mine if mine else 0
            print("%8d %-16s %5d %12.2f %12.2f %12.2f %9.1f" % (ranks, peer, len(runs), t, min(runs), max(runs),
                                                               ratio))
            out.append({"bench": "peers.boot", "peer": peer, "ranks": ranks, "total_ms": t, "min_ms": min(runs),
                        "max_ms": max(runs), "runs": len(runs), "libdtp_speedup": ratio})
    if args.json:
        with open(args.json, "w") as f:
            f.writelines(json.dumps(o) + "\n" for o in out)


if __name__ == "__main__":
    main()
