/* OpenSSL 3 or 1.1.1, as far as it is needed here. It is loaded when it is first asked for, so that nothing
 * depends on it otherwise, neither to be built nor to run. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, result, arguments */
#define GF_CRYPTO_FUNCTIONS(F)                                                                               \
    F(OPENSSL_init_crypto, int, (uint64_t options, const void *settings))                                    \
    F(EVP_CIPHER_CTX_new, void *, (void))                                                                    \
    F(EVP_CIPHER_CTX_free, void, (void *context))                                                            \
    F(EVP_CIPHER_CTX_ctrl, int, (void *context, int what, int size, void *data))                             \
    F(EVP_aes_128_gcm, const void *, (void))                                                                 \
    F(EVP_aes_256_gcm, const void *, (void))                                                                 \
    F(EVP_sha256, const void *, (void))                                                                      \
    F(EVP_sha384, const void *, (void))                                                                      \
    F(EVP_CipherInit_ex, int,                                                                                \
      (void *context, const void *cipher, void *engine, const uint8_t *key, const uint8_t *iv, int encrypt)) \
    F(EVP_CipherUpdate, int, (void *context, uint8_t *out, int *out_size, const uint8_t *in, int size))      \
    F(EVP_CipherFinal_ex, int, (void *context, uint8_t *out, int *out_size))                                 \
    F(HMAC, uint8_t *,                                                                                       \
      (const void *hash, const void *key, int key_size, const uint8_t *data, size_t size, uint8_t *out,      \
       unsigned *out_size))                                                                                  \
    F(OPENSSL_cleanse, void, (void *data, size_t size))                                                      \
    F(ERR_get_error, unsigned long, (void))                                                                  \
    F(ERR_clear_error, void, (void))                                                                         \
    F(ERR_reason_error_string, const char *, (unsigned long error))                                          \
    F(BIO_new, void *, (const void *kind))                                                                   \
    F(BIO_s_mem, const void *, (void))                                                                       \
    F(BIO_read, int, (void *bio, void *data, int size))                                                      \
    F(BIO_write, int, (void *bio, const void *data, int size))                                               \
    F(X509_VERIFY_PARAM_set1_ip_asc, int, (void *parameters, const char *address))                           \
    F(X509_verify_cert_error_string, const char *, (long error))

#define GF_SSL_FUNCTIONS(F)                                                                                  \
    F(TLS_client_method, const void *, (void))                                                               \
    F(SSL_CTX_new, void *, (const void *method))                                                             \
    F(SSL_CTX_free, void, (void *context))                                                                   \
    F(SSL_CTX_ctrl, long, (void *context, int what, long number, void *data))                                \
    F(SSL_CTX_set_ciphersuites, int, (void *context, const char *names))                                     \
    F(SSL_CTX_set_verify, void, (void *context, int mode, const void *callback))                             \
    F(SSL_CTX_load_verify_locations, int, (void *context, const char *file, const char *folder))             \
    F(SSL_CTX_set_default_verify_paths, int, (void *context))                                                \
    F(SSL_CTX_set_keylog_callback, void,                                                                     \
      (void *context, void (*callback)(const void *ssl, const char *line)))                                  \
    F(SSL_new, void *, (void *context))                                                                      \
    F(SSL_free, void, (void *ssl))                                                                           \
    F(SSL_ctrl, long, (void *ssl, int what, long number, void *data))                                        \
    F(SSL_set_bio, void, (void *ssl, void *in, void *out))                                                   \
    F(SSL_set1_host, int, (void *ssl, const char *name))                                                     \
    F(SSL_get0_param, void *, (void *ssl))                                                                   \
    F(SSL_set_ex_data, int, (void *ssl, int index, void *data))                                              \
    F(SSL_get_ex_data, void *, (const void *ssl, int index))                                                 \
    F(SSL_connect, int, (void *ssl))                                                                         \
    F(SSL_get_error, int, (const void *ssl, int result))                                                     \
    F(SSL_get_verify_result, long, (const void *ssl))

#define GF_MEMBER(name, result, arguments) result(*name) arguments;
struct gf_crypto {
    GF_CRYPTO_FUNCTIONS(GF_MEMBER)
};
struct gf_ssl {
    GF_SSL_FUNCTIONS(GF_MEMBER)
};
#undef GF_MEMBER

#ifdef __cplusplus
extern "C" {
#endif

/* Null with the cause in `why`: the library is not there, or lacks something. Each is looked for once. */
const struct gf_crypto *gf_crypto_load(char *why, size_t why_size);
const struct gf_ssl *gf_ssl_load(char *why, size_t why_size);

#ifdef __cplusplus
}
#endif
