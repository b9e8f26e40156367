#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""report_ckpt.py [--json FILE] < LINES - libdtp's checkpoints beside its peers', from JSON Lines.

A line without "peer" whose codec is not zipnn is libdtp's. Of several lines the median counts.
"""
import argparse
import json
import statistics
import sys


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--json")
    args = parser.parse_args()
    rates, plain, shrunk, order = {}, {}, {}, []
    for line in sys.stdin:
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        codec = row["op"] == "codec"
        peer = row.get("peer", row["codec"] if codec and row["codec"] == "zipnn" else "libdtp")
        for op in ("encode", "decode") if codec else (row["op"],):
            key = (op, row["ranks"], row.get("saved_by", 1), row["type"], row["bytes"])
            if key not in order:
                order.append(key)
            rate = row[f"{op}_gb_per_s"] if codec else row["gb_per_s"]
            rates.setdefault(key, {}).setdefault(peer, []).append(rate)
            if codec:
                shrunk.setdefault(key, {})[peer] = row["ratio"]
            elif peer == "libdtp":
                plain.setdefault(key, []).append(row["plain_gb_per_s"])
    if not any("libdtp" in r for r in rates.values()):
        sys.exit("report: no line of libdtp's")
    print("# GB/s (10^9 plain bytes per second), medians; times: libdtp over the peer; codec: of one core")
    print("#%8s %6s %8s %7s %12s %9s %9s %12s %9s %7s %8s" % (
        "op", "ranks", "saved by", "type", "bytes", "libdtp", "plain", "peer", "its", "times", "shrunk"))
    out = []
    for key in order:
        mine = statistics.median(rates[key].get("libdtp", [0]))
        files = statistics.median(plain[key]) if key in plain else 0
        for peer in [p for p in rates[key] if p != "libdtp"] or [""]:
            its = statistics.median(rates[key].get(peer, [0]))
            ratio = " / ".join("%.3f" % shrunk[key][p] for p in ("libdtp", peer) if p in shrunk.get(key, {}))
            print("%9s %6d %8d %7s %12d %9.3f %9s %12s %9s %7s %s" % (
                key[0], key[1], key[2], key[3], key[4], mine, "%.3f" % files if files else "-", peer or "-",
                "%.3f" % its if its else "-", "%.2f" % (mine / its) if its else "-", ratio))
            out.append({"bench": "peers.ckpt", "op": key[0], "ranks": key[1], "saved_by": key[2], "type": key[3],
                        "bytes": key[4], "gb_per_s": mine, "plain_gb_per_s": files, "peer": peer,
                        "peer_gb_per_s": its, "libdtp_speedup": mine / its if its else None})
    if args.json:
        with open(args.json, "w") as f:
            f.writelines(json.dumps(o) + "\n" for o in out)


if __name__ == "__main__":
    main()
