/* SPDX-License-Identifier: Apache-2.0 */
/* render.c - the public face of the renderers. */
#include "topo/topo.h"

dtp_status dtp_topo_render(const dtp_topo *topo, dtp_topo_format format, char **text_out,
                           dtp_error *err)
{
    dtp_status st;

    switch (format) {
    case DTP_TOPO_TEXT:
        st = dtpi_topo_render_text(topo, text_out, err);
        break;
    case DTP_TOPO_JSON:
        st = dtpi_topo_render_json(topo, text_out, err);
        break;
    case DTP_TOPO_MATRIX:
        st = dtpi_topo_render_matrix(topo, text_out, err);
        break;
    default:
        st = dtpi_fail(err, DTP_ERR_INVAL, "unknown format %d", (int)format);
    }
    return dtpi_noun(err, "topo", st);
}

void dtp_text_free(char *text)
{
    dtpi_text_free(&dtpi_malloc_allocator, text);
}
