#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""started.py COMMAND [ARGUMENTS] - executes the command, with the time in place of START_NS among its arguments."""
import os
import sys
import time

words = sys.argv[1:]
now = str(time.monotonic_ns())
os.execvp(words[0], [now if w == "START_NS" else w for w in words])
