/* The targets, each in a file of its name. */
#pragma once
#include "fuzz.h"

void fuzz_codec(const uint8_t *data, size_t size);
void fuzz_handshake(const uint8_t *data, size_t size);
void fuzz_kernel_table(const uint8_t *data, size_t size);
void fuzz_link_set(const uint8_t *data, size_t size);
void fuzz_replies(const uint8_t *data, size_t size);
void fuzz_sniff(const uint8_t *data, size_t size);
