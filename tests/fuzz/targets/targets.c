#include "targets.h"

#include "gpuferry/frames.h"

#define WORDS(name, ...) static const uint64_t name[] = {__VA_ARGS__}
#define TARGET(name)     {#name, fuzz_##name, name##_words, sizeof name##_words / sizeof *name##_words}

WORDS(codec_words, 0, 1, 2, 3, 4, 8, 9, 14, 16);
WORDS(handshake_words, GF_OP_GREETING, GF_OP_QUEUED, GF_OP_REDIRECT, GF_OP_WELCOME, GF_OP_REFUSED,
      GF_OP_RESUMED, GF_OP_MOVED, sizeof(struct gf_header), sizeof(struct gf_welcome),
      sizeof(struct gf_device), sizeof(struct gf_redirect), sizeof(struct gf_moved), GF_FRAME_MAX);
WORDS(kernel_table_words, sizeof(struct gf_kernel), sizeof(struct gf_kernel_param), 32764);
WORDS(link_set_words, GF_LINK_SET_MAGIC, 0xBA55ED50u, sizeof(struct gf_link_set));
WORDS(replies_words, GF_OP_REFUSED, GF_OP_OUTPUT, GF_OP_MOVED, GF_OP_ACKNOWLEDGE, GF_OP_HOST_CALL,
      GF_FLAG_REPLY, sizeof(struct gf_header), sizeof(struct gf_moved), GF_FRAME_MAX, GF_HANDSHAKE_FRAME_MAX);
WORDS(sniff_words, 0xba55ed50u, 0x464c457f, 0x4b4e4c4d49534647ull, 64, 190, 51);

const struct fuzz_target fuzz_targets[] = {TARGET(codec),    TARGET(handshake), TARGET(kernel_table),
                                           TARGET(link_set), TARGET(replies),   TARGET(sniff)};
const size_t fuzz_target_count = sizeof fuzz_targets / sizeof *fuzz_targets;
