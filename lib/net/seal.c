/* SPDX-License-Identifier: Apache-2.0 */
/* seal.c - BLAKE2b as a MAC, or ChaCha20-Poly1305 (RFC 8439) with the counter as its nonce. */
#include "net/seal.h"

#include <sodium.h>
#include <string.h>

static_assert(DTPI_SEAL_TAG_BYTES == crypto_aead_chacha20poly1305_IETF_ABYTES, "one tag for both");
static_assert(DTPI_SEAL_KEY_BYTES == crypto_aead_chacha20poly1305_IETF_KEYBYTES, "one key for both");

static void put_count(uint64_t count, uint8_t *out)
{
    for (size_t i = 0; i < 8; i++)
        out[i] = (uint8_t)(count >> (8 * i));
}

static void compute_mac(const dtpi_seal *s, uint64_t count, const void *head, size_t n_head,
                        const uint8_t *data, size_t bytes, uint8_t *mac_out)
{
    crypto_generichash_state h;
    uint8_t raw[8];

    put_count(count, raw);
    crypto_generichash_init(&h, s->key, sizeof(s->key), DTPI_SEAL_TAG_BYTES);
    crypto_generichash_update(&h, raw, sizeof(raw));
    crypto_generichash_update(&h, head, n_head);
    crypto_generichash_update(&h, data, bytes);
    crypto_generichash_final(&h, mac_out, DTPI_SEAL_TAG_BYTES);
}

void dtpi_seal_close(const dtpi_seal *s, uint64_t count, const void *head, size_t n_head,
                     const uint8_t *data, size_t bytes, uint8_t *out, uint8_t *tag_out)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES] = { 0 };

    if (!s->encrypts) {
        compute_mac(s, count, head, n_head, data, bytes, tag_out);
        return;
    }
    put_count(count, nonce + 4);
    crypto_aead_chacha20poly1305_ietf_encrypt_detached(out, tag_out, NULL, data, bytes, head, n_head,
                                                       NULL, nonce, s->key);
}

bool dtpi_seal_open(const dtpi_seal *s, uint64_t count, const void *head, size_t n_head,
                    uint8_t *data, size_t bytes, const uint8_t *tag)
{
    uint8_t nonce[crypto_aead_chacha20poly1305_IETF_NPUBBYTES] = { 0 };
    uint8_t mac[DTPI_SEAL_TAG_BYTES];

    if (!s->encrypts) {
        compute_mac(s, count, head, n_head, data, bytes, mac);
        return sodium_memcmp(mac, tag, sizeof(mac)) == 0;
    }
    put_count(count, nonce + 4);
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(data, NULL, data, bytes, tag, head,
                                                              n_head, nonce, s->key) == 0;
}

void dtpi_seal_derive(const dtpi_seal *s, const char *label, dtpi_seal *out)
{
    out->encrypts = s->encrypts;
    crypto_generichash(out->key, sizeof(out->key), (const uint8_t *)label, strlen(label) + 1, s->key,
                       sizeof(s->key));
}
