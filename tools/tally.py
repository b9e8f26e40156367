#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tally.py KIND FILE RC - prints "passed failed skipped" of one part of `./dev test`.

KIND says what FILE is: meson (a testlog of JSON lines; cmocka programs count by their cases),
junit (pytest's XML), gojson (`go test -json`), build (no file: one test, judged by RC).
A part that failed (RC) without a failed test counts as one failure, as does one whose FILE says nothing.
Why tests were skipped goes to stderr.
"""
import collections
import json
import re
import sys
import xml.etree.ElementTree as ET

CMOCKA = {"passed": r"\[  PASSED  \] (\d+) test", "failed": r"\[  FAILED  \] (\d+) test",
          "skipped": r"\[  SKIPPED \] (\d+) test"}


def cmocka_counts(text):
    """Sums of a cmocka program's groups, or None where the text is not cmocka's."""
    if "[==========]" not in text:
        return None
    return [sum(int(n) for n in re.findall(CMOCKA[k], text)) for k in ("passed", "failed", "skipped")]


def meson(path):
    total = [0, 0, 0]
    for line in open(path, encoding="utf-8", errors="replace"):
        test = json.loads(line)
        kind = {"OK": 0, "EXPECTEDFAIL": 0, "SKIP": 2}.get(test["result"], 1)
        counts = cmocka_counts((test.get("stdout") or "") + (test.get("stderr") or ""))
        if counts is None or sum(counts) == 0 or (kind == 1 and counts[1] == 0):
            counts = [int(kind == i) for i in range(3)]
        total = [a + b for a, b in zip(total, counts)]
    return total


def junit(path):
    total = [0, 0, 0]
    for suite in ET.parse(path).getroot().iter("testsuite"):
        n, failed, errors, skipped = (int(suite.get(k, 0)) for k in ("tests", "failures", "errors", "skipped"))
        total[0] += n - failed - errors - skipped
        total[1] += failed + errors
        total[2] += skipped
    return total


def gojson(path):
    total = [0, 0, 0]
    for line in open(path, encoding="utf-8", errors="replace"):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event.get("Test") and event.get("Action") in ("pass", "fail", "skip"):
            total[("pass", "fail", "skip").index(event["Action"])] += 1
    return total


def skip_reasons(kind, path):
    """(reason, number of tests) of what was skipped, the most frequent first."""
    if kind != "junit":
        return []
    skipped = ET.parse(path).getroot().iter("skipped")
    return collections.Counter(s.get("message", "") for s in skipped).most_common()


def count(kind, path, rc):
    try:
        total = {"meson": meson, "junit": junit, "gojson": gojson, "build": lambda p: [int(rc == 0), 0, 0]}[kind](path)
        for reason, n in skip_reasons(kind, path):
            print(f"dev: {n} skipped: {reason}", file=sys.stderr)
    except (OSError, ValueError, ET.ParseError):
        total = [0, 0, 0]
    if total[1] == 0 and (rc != 0 or sum(total) == 0):
        total[1] = 1
    return total


if __name__ == "__main__":
    print(*count(sys.argv[1], sys.argv[2], int(sys.argv[3])))
