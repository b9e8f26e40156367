#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""man.py --out DIR PROGRAM... - manual pages from what the programs say for --help, so that there is one text.

A help text is a usage line, paragraphs, and sections: a line that ends in ':' in column 0 with indented lines below.
The names listed in a section called "commands:" are sub-commands; their help becomes sections of the same page.
"""
import argparse
import os
import re
import subprocess

ESCAPES = [("\\", "\\e"), ("-", "\\-")]


def roff(line):
    for a, b in ESCAPES:
        line = line.replace(a, b)
    return "\\&" + line if line[:1] in (".", "'") else line


def help_of(program, *command):
    run = subprocess.run([program, *command, "--help"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if run.returncode != 0 or not run.stdout.strip():
        raise SystemExit(f"man: {' '.join([program, *command])} --help failed: {run.stderr.strip()}")
    return run.stdout


def version_of(program):
    run = subprocess.run([program, "--version"], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return run.stdout.strip().split("\n")[0]


def sections(text):
    """[(title, [lines])]: the part before the first section has the title ''."""
    out = [("", [])]
    for line in text.rstrip().split("\n"):
        head = re.match(r"^([A-Za-z][\w ,]*):$", line)
        if head:
            out.append((head[1], []))
        else:
            out[-1][1].append(line)
    return out


def commands(text):
    names = []
    for title, lines in sections(text):
        if title.lower() in ("commands", "subcommands", "benchmarks"):
            names += [m[1] for line in lines if (m := re.match(r"^ {1,4}([a-z][\w-]*)\b", line))]
    return [n for n in names if n != "help"]


def body(lines):
    """Paragraphs fill; `  term   text` becomes a tagged paragraph; deeper lines go on with the text before."""
    out, tagged = [], False
    for line in lines:
        if not line.strip():
            out.append(".PP")
            tagged = False
            continue
        item = re.match(r"^ {1,6}(\S.*?)(?: {2,}(\S.*))?$", line)
        if item and (item[2] or item[1].startswith("-") or not tagged):
            out += [".TP", "\\fB" + roff(item[1]) + "\\fR"] + ([roff(item[2])] if item[2] else [])
            tagged = True
        else:
            out.append(roff(line.strip()))
    while out and out[-1] == ".PP":
        out.pop()
    return out


def split_usage(lines):
    """(usage lines, the rest) of the part before the first section."""
    usage, rest, inside = [], [], False
    for line in lines:
        if re.match(r"(?i)^usage:", line):
            inside = True
            usage.append(re.sub(r"(?i)^usage:\s*", "", line))
        elif inside and line.startswith(" ") and line.strip():
            usage.append(re.sub(r"^or:\s*", "", line.strip()))
        else:
            inside = False
            rest.append(line)
    return [u for u in usage if u], rest


def summary_of(text, name):
    _, rest = split_usage(sections(text)[0][1])
    line = next((r.strip() for r in rest if r.strip()), name)
    return re.sub(rf"^{re.escape(name)}\s*(-|:)\s*", "", line).rstrip(".")


def usage_text(usage):
    out = []
    for line in usage:
        out += [".nf", "\\fB" + roff(line) + "\\fR", ".fi"]
    return out


def command_part(program, name, command):
    text = help_of(program, command)
    parts = sections(text)
    usage, rest = split_usage(parts[0][1])
    out = [f'.SH "{name.upper()} {command.upper()}"'] + usage_text(usage)
    out += [".PP"] + body(rest) if any(r.strip() for r in rest) else []
    for title, lines in parts[1:]:
        out += [f'.SS "{roff(title.capitalize())}"'] + body(lines)
    return out


def page(program):
    name, text = os.path.basename(program), help_of(program)
    parts = sections(text)
    usage, rest = split_usage(parts[0][1])
    out = [f'.\\" from {name} --help', f'.TH {roff(name.upper())} 1 "" "{roff(version_of(program))}" "libdtp"',
           ".SH NAME", f"{roff(name)} \\- {roff(summary_of(text, name))}", ".SH SYNOPSIS"] + usage_text(usage)
    out += [".SH DESCRIPTION"] + body(rest)
    for title, lines in parts[1:]:
        out += [f'.SH "{roff(title.upper())}"'] + body(lines)
    for command in commands(text):
        out += command_part(program, name, command)
    return re.sub(r"(\.PP\n)+(?=\.(PP|TP|S[HS])\b)", "", "\n".join(out) + "\n")


def main():
    parser = argparse.ArgumentParser(description="manual pages from --help")
    parser.add_argument("--out", required=True)
    parser.add_argument("programs", nargs="+")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    for program in args.programs:
        path = os.path.join(args.out, os.path.basename(program) + ".1")
        text = page(os.path.abspath(program))
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)


if __name__ == "__main__":
    main()
