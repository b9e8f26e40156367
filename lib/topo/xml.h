/* SPDX-License-Identifier: Apache-2.0 */
/*
 * xml.h - a strict reader of the XML that topology files use: elements and attributes, one after
 * another, in place, without memory of its own.
 *
 * Text between elements, comments, processing instructions and a DOCTYPE without internal subset are
 * passed over; entities other than the five of XML and numeric ones, CDATA and namespaces are refused.
 */
#ifndef DTPI_TOPO_XML_H
#define DTPI_TOPO_XML_H

#include "base/base.h"

enum { DTPI_XML_MAX_ATTRS = 64, DTPI_XML_MAX_DEPTH = 512, DTPI_XML_MAX_NAME = 32 };

typedef struct dtpi_xml_attr {
    const char *name, *value;   /* terminated in place */
} dtpi_xml_attr;

typedef enum dtpi_xml_event {
    DTPI_XML_OPEN = 1,          /* name and attrs are set */
    DTPI_XML_CLOSE = 2,         /* name is set; also comes for <x/> */
    DTPI_XML_END = 3,           /* the document is complete */
    DTPI_XML_BAD = 4,           /* line and why are set */
} dtpi_xml_event;

typedef struct dtpi_xml {
    char *p, *end;              /* *end is a terminator */
    char *body;                 /* text between this element and the next, for OPEN */
    const char *name;
    dtpi_xml_attr attrs[DTPI_XML_MAX_ATTRS];
    uint32_t n_attrs;
    uint32_t depth;             /* of open elements */
    char open[DTPI_XML_MAX_DEPTH][DTPI_XML_MAX_NAME];
    bool self_closed, seen_root;
    uint32_t line;
    const char *why;
} dtpi_xml;

/* `text` (with a terminator behind `bytes`) is changed while it is read. */
void dtpi_xml_start(dtpi_xml *x, char *text, size_t bytes);
dtpi_xml_event dtpi_xml_next(dtpi_xml *x);

/* Value of an attribute of the element just opened, NULL when it has none such. */
const char *dtpi_xml_attr_of(const dtpi_xml *x, const char *name);

#endif /* DTPI_TOPO_XML_H */
