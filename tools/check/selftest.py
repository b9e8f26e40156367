#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""selftest.py - every check finds the violation planted for it, and nothing in clean text."""
import os
import sys
import tempfile
import unittest

import binary
import floors
import ghosts
import headers
import shape

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import tally  # noqa: E402

FLOORS = "base 0\nctx 1\nnet 3\ntopo 3\ngroup 4\n"


class Tree(unittest.TestCase):
    """A small source tree in a temporary folder."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = self.folder.name
        self.write("lib/FLOORS", FLOORS)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as f:
            f.write(text)

    def found(self, check, n, part=""):
        problems, _ = check(self.root)
        self.assertEqual(len(problems), n, problems)
        if n:
            self.assertIn(part, problems[0])


class Floors(Tree):
    def test_lower_floor_own_folder_and_public_headers_pass(self):
        self.write("lib/group/a.c", '#include "b.h"\n#include "net/net.h"\n#include <dtp/group.h>\n#include <stdio.h>\n')
        self.found(floors.check, 0)

    def test_higher_floor_is_found(self):
        self.write("lib/ctx/a.c", '#include "group/group.h"\n')
        self.found(floors.check, 1, "lib/ctx/a.c:1: 'group/group.h' is on floor 4")

    def test_folder_beside_is_found(self):
        self.write("lib/net/a.c", '\n#include "topo/topo.h"\n')
        self.found(floors.check, 1, "lib/net/a.c:2:")

    def test_an_include_in_a_comment_is_no_include(self):
        self.write("lib/ctx/a.c", '/*\n#include "group/group.h"\n*/\n')
        self.found(floors.check, 0)

    def test_unknown_folder_is_found(self):
        self.write("lib/misc/a.c", "")
        self.found(floors.check, 1, "misc is not in lib/FLOORS")

    def test_driver_that_includes_a_driver_is_found(self):
        self.write("lib/net/tcp.c", '#include "net/unix.h"\nconst struct dtpi_net_ops dtpi_net_tcp = { 0 };\n')
        self.write("lib/net/unix.c", '#include "net/unix.h"\nconst dtpi_net_ops dtpi_net_unix = { 0 };\n')
        self.write("lib/net/unix.h", "")
        self.found(floors.check, 1, "a driver includes another driver's 'net/unix.h'")

    def test_heavy_header_outside_its_driver_is_found(self):
        self.write("lib/group/a.c", "#include <ucp/api/ucp.h>\n")
        self.write("lib/net/ucx.c", "#include <ucp/api/ucp.h>\n")
        self.found(floors.check, 1, "lib/group/a.c:1: <ucp/api/ucp.h>")

    def test_example_that_looks_inside_is_found(self):
        self.write("lib/base/a.c", "")
        self.write("docs/examples/a.c", '#include "ctx/ctx.h"\n')
        self.found(floors.check, 1, "docs/examples/a.c")


HEADER = """#ifndef DTP_A_H
#define DTP_A_H
#include <stddef.h>
#ifdef __cplusplus
extern "C" {
#endif
#ifndef DTP_API
#define DTP_API __attribute__((visibility("default")))
#endif
typedef struct dtp_a dtp_a;
%s
#ifdef __cplusplus
}
#endif
#endif
"""


class Headers(Tree):
    def header(self, text, n, part=""):
        self.write("include/dtp/a.h", HEADER % text)
        self.found(headers.check, n, part)

    def test_plain_declarations_pass(self):
        self.header("DTP_API int dtp_a_get(const dtp_a *a,\n                  int i);\nenum { DTP_N = 3 };", 0)

    def test_inline_function_is_found(self):
        self.header("static inline int dtp_a_two(void) { return 2; }", 1, "inline")

    def test_macro_with_arguments_is_found(self):
        self.header("#define DTP_MAX(a, b) ((a) > (b))", 1, "takes arguments")

    def test_macro_in_a_prototype_is_found(self):
        self.header("#define DTP_OUT\nDTP_API int dtp_a_get(int *DTP_OUT p);", 1, "macro DTP_OUT")

    def test_prototype_without_export_is_found(self):
        self.header("int dtp_a_get(const dtp_a *a);", 1, "without DTP_API")

    def test_conditional_part_is_found(self):
        self.header("#if defined(DTP_X)\n#endif", 1, "conditional")

    def test_header_that_needs_another_is_found(self):
        self.header("DTP_API int dtp_a_get(FILE *f);", len(headers.compilers()), "does not compile alone as C")


class Ghosts(Tree):
    def test_names_and_prefixes_that_exist_pass(self):
        self.write("lib/base/a.c", "/* dtp_a_open, dtp_a_*, dtp_<noun> */\nint dtp_a_open;\n")
        self.found(ghosts.check, 0)

    def test_ghost_in_a_comment_is_found(self):
        self.write("lib/base/a.c", "int x;\n/* see dtpi_gone() */\n")
        self.found(ghosts.check, 1, "lib/base/a.c:2: dtpi_gone does not exist")

    def test_name_in_a_string_is_no_comment(self):
        self.write("lib/base/a.c", 'const char *s = "/* dtpi_gone";\n')
        self.found(ghosts.check, 0)

    def test_names_that_cgo_reads_from_comments_exist(self):
        self.write("bindings/go/a.go", '/*\nint dtp_go_a(void);\n*/\nimport "C"\n\n//export dtp_go_b\n// dtp_go_b calls dtp_go_a\n')
        self.found(ghosts.check, 0)

    def test_code_in_a_document_is_no_link(self):
        self.write("docs/a.md", "`f[T](ctx)` and\n```go\ng[T](ctx, x)\n```\n")
        self.found(ghosts.check, 0)

    def test_ghost_and_dead_link_in_a_document_are_found(self):
        self.write("docs/a.md", "`dtp_gone_open()` [x](gone.md) [y](a.md)\n")
        self.found(ghosts.check, 2, "docs/a.md:1")


class Shape(Tree):
    def setUp(self):
        super().setUp()
        self.write("tools/check/shape.allow", "")

    def function(self, n):
        return "static int long_one(int a,\n                    int b)\n{\n" + "    a++;\n" * n + "}\n"

    def test_short_function_passes(self):
        self.write("lib/base/a.c", self.function(58))
        self.found(shape.check, 0)

    def test_long_function_is_found(self):
        self.write("lib/base/a.c", self.function(59))
        self.found(shape.check, 1, "lib/base/a.c:3: long_one has 61 lines")

    def test_long_file_is_found(self):
        self.write("lib/base/a.c", "int a;\n" * 801)
        self.found(shape.check, 1, "801 lines")

    def test_exception_counts_and_a_stale_one_is_found(self):
        self.write("lib/base/a.c", self.function(59))
        self.write("tools/check/shape.allow", "lib/base/a.c:long_one a dull switch\n")
        self.found(shape.check, 0)
        self.write("lib/base/a.c", self.function(5))
        self.found(shape.check, 1, "not needed any more")


class Binary(unittest.TestCase):
    def test_heavy_library_is_found(self):
        problems = binary.needs_problems("libdtp.so", ["libc.so.6", "libsodium.so.23", "libucp.so.0"])
        self.assertEqual(problems, ["libdtp.so needs libucp.so.0, which belongs behind a module"])

    def test_undeclared_and_missing_symbols_are_found(self):
        problems = binary.exports_problems("libdtp.so", {"dtp_a", "helper"}, {"dtp_a", "dtp_b"})
        self.assertEqual(len(problems), 2, problems)


class Tally(unittest.TestCase):
    def test_cmocka_cases_are_counted(self):
        text = "[==========] Running 5 test(s).\n[  PASSED  ] 3 test(s).\n[  SKIPPED ] 1 test(s)\n[  FAILED  ] 1 test(s)"
        self.assertEqual(tally.cmocka_counts(text), [3, 1, 1])

    def test_other_programs_are_not(self):
        self.assertIsNone(tally.cmocka_counts("fine"))

    def test_a_part_that_ran_nothing_has_failed(self):
        self.assertEqual(tally.count("meson", "/no/such/file", 0), [0, 1, 0])
        self.assertEqual(tally.count("gojson", os.devnull, 0), [0, 1, 0])
        self.assertEqual(tally.count("build", "-", 0), [1, 0, 0])
        self.assertEqual(tally.count("build", "-", 2), [0, 1, 0])


if __name__ == "__main__":
    unittest.main()
